"""Peers that packages bring along: what they may give, and from where they are loaded."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dragoman.catalogue import Descriptor, Launch, load_catalogue
from dragoman.catalogue.entry_points import find_entry_points
from dragoman.config import trust_project
from tests.unit.config.folders import load, paths_in, repository, write
from tests.unit.test_init import loaded_by

FILE = 'name = "theirs"\ntitle = "Theirs"\n[[launch]]\ncommand = ["t"]\n'


@dataclass
class Entry:
    """An entry point of an installed package."""

    name: str
    load: Callable[[], Any]
    value: str = "package:peer"
    dist: Any = None


PEER = Descriptor(name="theirs", title="T", launch=(Launch(command=("t",)),))


def test_a_package_registers_a_descriptor_a_table_a_path_or_a_function(tmp_path: Path) -> None:
    config = load(tmp_path, paths_in(tmp_path))
    table = {"name": "theirs", "title": "T", "launch": [{"command": ["t"]}]}
    file = write(tmp_path / "theirs.toml", FILE)
    for value in (PEER, table, file, str(file), lambda: PEER):
        entries = [Entry("theirs", functools.partial(_same, value))]
        catalogue = load_catalogue(
            config, strict=True, entry_points=functools.partial(_same, entries)
        )
        assert "theirs" in catalogue
        assert "package" in catalogue.origin("theirs")


def _same(value: Any) -> Any:
    return value


def _broken() -> Any:
    raise ImportError("no module named x")


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (Entry("theirs", _broken), "could not be loaded: no module named x"),
        (Entry("theirs", lambda: 3), "which is no descriptor"),
        (Entry("mine", lambda: PEER), "registers 'mine' and describes 'theirs'"),
        (Entry("theirs", lambda: Path("/nonexistent/x.toml")), "cannot be read"),
        (Entry("theirs", lambda: {"name": "theirs"}), "lacks the key"),
    ],
)
def test_a_package_that_is_broken_stops_nobody(tmp_path: Path, entry: Entry, words: str) -> None:
    catalogue = load_catalogue(load(tmp_path, paths_in(tmp_path)), entry_points=lambda: [entry])
    (problem,) = catalogue.problems
    assert words in str(problem)
    assert "codex" in catalogue


def test_a_package_that_only_lies_in_the_checkout_is_not_loaded_before_trust(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = paths_in(tmp_path)
    root = repository(tmp_path / "repo", "")
    write(root / "evil.py", f"import os; os.mkdir({str(tmp_path / 'mark')!r}); peer = {{}}")
    info = root / "evil-1.dist-info"
    write(info / "METADATA", "Metadata-Version: 2.1\nName: evil\nVersion: 1\n")
    write(info / "entry_points.txt", "[dragoman.peers]\nevil = evil:peer\n")
    monkeypatch.chdir(root)
    monkeypatch.syspath_prepend(str(root))
    assert load_catalogue(load(root, paths)).problems == []
    assert not (tmp_path / "mark").exists()
    trust_project(root, paths)
    (problem,) = load_catalogue(load(root, paths)).problems
    assert "evil" in str(problem)
    assert (tmp_path / "mark").exists()
    sys.modules.pop("evil", None)


def test_a_users_own_peer_goes_before_one_of_a_package(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    file = write(paths.peers_folder / "theirs.toml", FILE)
    entry = Entry("theirs", lambda: PEER)
    catalogue = load_catalogue(load(tmp_path, paths), entry_points=lambda: [entry])
    assert catalogue.origin("theirs") == str(file)
    (problem,) = catalogue.problems
    assert "the package" in str(problem) and str(file) in str(problem)


def test_a_package_that_is_installed_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "lib" / "site-packages"
    write(place / "theirs-1.dist-info" / "METADATA", "Metadata-Version: 2.1\nName: theirs\n")
    write(
        place / "theirs-1.dist-info" / "entry_points.txt",
        "[dragoman.peers]\ntheirs = installed_theirs:peer\n",
    )
    table = {"name": "theirs", "title": "T", "launch": [{"command": ["t"]}]}
    write(place / "installed_theirs.py", f"peer = {table!r}")
    config = load(tmp_path, paths_in(tmp_path))
    assert find_entry_points(config) == []
    monkeypatch.syspath_prepend(str(place))
    catalogue = load_catalogue(config, strict=True)
    assert catalogue.origin("theirs") == "the package theirs (theirs)"


def test_where_no_package_registers_anything_the_metadata_of_packages_is_not_loaded() -> None:
    loaded = loaded_by(
        "from pathlib import Path\n"
        "from dragoman.catalogue import load_catalogue\n"
        "from dragoman.config import find_paths, load_config\n"
        "load_catalogue(load_config(Path('/'), find_paths())).get('scout')"
    )
    assert "dragoman.catalogue.entry_points" in loaded
    assert loaded.isdisjoint({"importlib.metadata", "importlib.resources", "tomlkit"})
