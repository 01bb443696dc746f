"""The catalogue: what comes with dragoman, what users and packages add, and what is left out."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dragoman.catalogue import Descriptor, Launch, load_catalogue
from dragoman.catalogue import load as catalogue_load
from dragoman.catalogue.load import Catalogue, built_in, find_entry_points
from dragoman.config import project, trust_project
from dragoman.errors import UnknownPeer
from tests.unit.config.folders import load, paths_in, repository, write
from tests.unit.test_init import loaded_by

MINE = 'name = "mine"\ntitle = "Mine"\nroles = ["plan"]\n[[launch]]\ncommand = ["mine"]\n'

KNOWN = {
    "codex", "gemini", "qwen", "copilot", "cursor", "claude", "opencode", "goose", "kimi", "cline",
    "auggie", "codex-acp", "mistral-vibe", "kiro", "kilo", "scout",
}  # fmt: skip

DOCUMENTS = {
    "codex": {"execute"},
    "gemini": {"research", "exploration"},
    "cursor": {"debug", "plan"},
    "copilot": {"review", "research"},
    "qwen": {"write"},
}


@pytest.fixture(scope="module")
def ours() -> Catalogue:
    return Catalogue(built_in())


def test_the_peers_that_come_with_dragoman_are_all_there(ours: Catalogue) -> None:
    assert set(ours.names) == KNOWN
    assert ours.problems == []


def test_the_peers_of_the_documents_claim_the_roles_of_the_documents(ours: Catalogue) -> None:
    assert {name: set(ours.get(name).roles) for name in DOCUMENTS} == DOCUMENTS
    assert set(DOCUMENTS["gemini"]) <= set(ours.roles)


def test_every_fact_has_a_source_with_a_date_or_is_ours(ours: Catalogue) -> None:
    for peer in ours:
        assert "2026-" in peer.source or peer.name == "scout", peer.name
        assert peer.roles, peer.name


def test_every_wrong_form_of_ours_differs_from_every_right_one(ours: Catalogue) -> None:
    right = {launch.command for peer in ours for launch in peer.launch}
    for peer in ours:
        for form in peer.wrong_forms:
            assert form.command not in right
            assert form.remedy.startswith("`")


def test_what_was_never_run_is_not_called_verified(ours: Catalogue) -> None:
    unverified = {peer.name for peer in ours if not peer.verified}
    assert unverified == {"auggie", "cursor", "goose", "kiro"}


def test_a_name_that_is_none_names_the_nearest(ours: Catalogue) -> None:
    with pytest.raises(UnknownPeer) as caught:
        ours.get("gemeni")
    assert caught.value.nearest == ("gemini",)
    with pytest.raises(UnknownPeer, match="peers add"):
        ours.get("zzzzzz")


def test_claimants_of_a_role_are_found(ours: Catalogue) -> None:
    assert "copilot" in ours.claimants("review")
    assert ours.claimants("translate") == ()


def test_roles_can_be_replaced_in_a_copy(ours: Catalogue) -> None:
    other = ours.with_roles({"copilot": ("translate",)})
    assert other.names == ours.names
    assert other.claimants("translate") == ("copilot",)
    assert "translate" in other.roles and "translate" not in ours.roles
    assert other.get("gemini").roles == ours.get("gemini").roles


def test_a_users_peer_is_one_of_the_catalogue_with_its_file_as_origin(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    file = write(paths.peers_folder / "mine.toml", MINE)
    catalogue = load_catalogue(load(tmp_path, paths), entry_points=list)
    assert catalogue.origin("mine") == str(file)
    assert catalogue.origin("codex") == "dragoman"
    assert "mine" in catalogue and len(catalogue) == len(KNOWN) + 1
    assert catalogue.claimants("plan") == ("claude", "cline", "cursor", "kiro", "mine")


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("codex", MINE.replace('"mine"', '"codex"', 1), "there is already a peer 'codex'"),
        ("other", MINE, "the file of the peer 'mine' must be named mine.toml"),
        ("mine", MINE.replace("title", "titel"), "did you mean `title`?"),
        ("mine", "= 3", "not valid TOML"),
    ],
)
def test_a_broken_file_is_left_out_and_told_and_the_rest_is_there(
    tmp_path: Path, name: str, text: str, words: str
) -> None:
    paths = paths_in(tmp_path)
    file = write(paths.peers_folder / f"{name}.toml", text)
    write(paths.peers_folder / "zebra.toml", MINE.replace('"mine"', '"zebra"', 1))
    config = load(tmp_path, paths)
    catalogue = load_catalogue(config, entry_points=list)
    (problem,) = catalogue.problems
    assert words in str(problem) and str(file) in str(problem)
    assert "zebra" in catalogue and "codex" in catalogue
    if name not in catalogue:
        with pytest.raises(UnknownPeer, match="its descriptor is invalid: ") as asked:
            catalogue.get(name)
        assert words in str(asked.value)


def test_a_collision_names_both_places(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    file = write(paths.peers_folder / "mine.toml", MINE)
    root = repository(
        tmp_path / "repo", '[peers.mine]\ntitle = "x"\n[[peers.mine.launch]]\ncommand = ["x"]\n'
    )
    trust_project(root, paths)
    (problem,) = load_catalogue(load(root, paths), entry_points=list).problems
    assert str(file) in str(problem) and str(root / "dragoman.toml") in str(problem)


def test_a_trusted_projects_peer_counts_and_says_its_name_once(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    table = '[peers.ours]\ntitle = "x"\n[[peers.ours.launch]]\ncommand = ["./run"]\n'
    root = repository(tmp_path / "repo", table)
    assert "ours" not in load_catalogue(load(root, paths), entry_points=list)
    trust_project(root, paths)
    catalogue = load_catalogue(load(root, paths), entry_points=list)
    assert catalogue.get("ours").launch[0].command == (str(root / "run"),)
    write(root / "dragoman.toml", table.replace("title", 'name = "theirs"\ntitle'))
    trust_project(root, paths)
    (problem,) = load_catalogue(load(root, paths), entry_points=list).problems
    assert "it must be 'ours', the name of the table" in str(problem)


def test_asking_for_one_peer_reads_the_file_of_that_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def parse(data: bytes, *, origin: str) -> dict[str, Any]:
        read.append(origin)
        return project.parse(data, origin=origin)

    monkeypatch.setattr(catalogue_load, "parse", parse)
    catalogue = load_catalogue(load(tmp_path, paths_in(tmp_path)), entry_points=list)
    assert catalogue.get("qwen") is catalogue.get("qwen")
    assert read == ["dragoman: qwen.toml"]
    assert len(catalogue) == len(KNOWN) and "kimi" in catalogue
    assert len(list(catalogue)) == len(read) == len(KNOWN)


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
        catalogue = load_catalogue(config, entry_points=functools.partial(_same, entries))
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
        (Entry("theirs", lambda: 3), "which is not a descriptor"),
        (Entry("mine", lambda: PEER), "registers the peer 'mine' but describes the peer 'theirs'"),
        (Entry("theirs", lambda: Path("/nonexistent/x.toml")), "cannot be read"),
        (Entry("theirs", lambda: {"name": "theirs"}), "lacks the key"),
    ],
)
def test_a_broken_package_stops_nothing(tmp_path: Path, entry: Entry, words: str) -> None:
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
    catalogue = load_catalogue(config)
    assert catalogue.origin("theirs") == "the package theirs (theirs)"


def test_where_no_package_registers_anything_the_metadata_of_packages_is_not_loaded() -> None:
    loaded = loaded_by(
        "from pathlib import Path\n"
        "from dragoman.catalogue import load_catalogue\n"
        "from dragoman.config import find_paths, load_config\n"
        "load_catalogue(load_config(Path('/'), find_paths())).get('scout')"
    )
    assert "dragoman.catalogue.load" in loaded
    assert loaded.isdisjoint({"importlib.metadata", "importlib.resources", "tomlkit"})
