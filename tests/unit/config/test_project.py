"""The file of a project: which one it is, and when it counts."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from msgspec import structs

from dragoman.config.project import (
    adapter_file,
    find_project_file,
    parse,
    read_project,
    trust_project,
)
from dragoman.errors import ConfigInvalid, UsageError
from tests.unit.config.folders import paths_in, repository, write


def test_the_nearest_file_up_to_the_root_of_the_repository_counts(tmp_path: Path) -> None:
    write(tmp_path / "dragoman.toml", "")
    root = repository(tmp_path / "repo")
    deep = root / "a" / "b"
    deep.mkdir(parents=True)
    assert find_project_file(deep) is None
    top = write(root / "dragoman.toml", "")
    assert find_project_file(deep) == top
    near = write(root / "a" / "dragoman.toml", "")
    assert find_project_file(deep) == near
    assert find_project_file(root) == top


def test_without_a_repository_only_the_folder_itself_counts(tmp_path: Path) -> None:
    file = write(tmp_path / "dragoman.toml", "")
    (tmp_path / "below").mkdir()
    assert find_project_file(tmp_path) == file
    assert find_project_file(tmp_path / "below") is None


def test_trusting_needs_a_file_that_loads_and_is_the_one_that_was_shown(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    root = repository(tmp_path / "repo")
    with pytest.raises(UsageError, match=r"no dragoman\.toml"):
        trust_project(root, paths)
    write(root / "dragoman.toml", "= nonsense")
    with pytest.raises(ConfigInvalid, match="not valid TOML"):
        trust_project(root, paths)
    write(root / "dragoman.toml", 'format = "json"')
    shown = read_project(root, paths)
    assert shown is not None
    for other in (
        structs.replace(shown, data=b'format = "text"'),
        structs.replace(shown, adapters={root / "adapter.py": b"1"}),
    ):
        with pytest.raises(UsageError, match="changed since"):
            trust_project(root, paths, shown=other)
    assert not _trusted(root, tmp_path)
    trust_project(root, paths, shown=shown)
    assert _trusted(root, tmp_path)
    write(root / "dragoman.toml", 'format = "json" ')
    assert not _trusted(root, tmp_path)


def _trusted(root: Path, tmp_path: Path) -> bool:
    project = read_project(root, paths_in(tmp_path))
    return project is not None and project.trusted


@pytest.mark.parametrize(
    ("data", "words"),
    [(b"\xff\xfe", "not UTF-8"), (b"x = ", "not valid TOML"), (b"a = [" * 3000, "not valid TOML")],
)
def test_a_file_that_cannot_be_read_is_a_problem_and_not_a_crash(
    tmp_path: Path, data: bytes, words: str
) -> None:
    root = repository(tmp_path / "repo")
    (root / "dragoman.toml").write_bytes(data)
    project = read_project(root, paths_in(tmp_path))
    assert project is not None and project.problem is not None
    assert words in str(project.problem)
    assert project.table == {}


@pytest.mark.skipif(sys.platform == "win32", reason="pipes of POSIX")
def test_a_project_file_that_is_a_pipe_or_a_dead_link_blocks_nothing(tmp_path: Path) -> None:
    root = repository(tmp_path / "repo")
    os.mkfifo(root / "dragoman.toml")
    project = read_project(root, paths_in(tmp_path))
    assert project is not None and "not a regular file" in str(project.problem)
    (root / "dragoman.toml").unlink()
    (root / "dragoman.toml").symlink_to(root / "nowhere")
    assert read_project(root, paths_in(tmp_path)) is None


def test_a_secret_in_a_project_file_makes_it_useless(tmp_path: Path) -> None:
    key = "sk-" + "a1" * 20
    root = repository(tmp_path / "repo", f'[peers.x.env]\nX = "{key}"\n')
    project = read_project(root, paths_in(tmp_path))
    assert project is not None and "secret" in str(project.problem)
    assert key not in str(project.problem)


def test_the_python_files_that_peers_name_are_read_with_the_project(tmp_path: Path) -> None:
    root = repository(
        tmp_path / "repo",
        '[peers.a]\nadapter = "a.py"\n[peers.b]\nadapter = "sub/b.py:Make"\n'
        '[peers.c]\nadapter = "module:attr"\n[peers.d]\nadapter = "missing.py"\n',
    )
    write(root / "a.py", "A")
    write(root / "sub" / "b.py", "B")
    project = read_project(root, paths_in(tmp_path))
    assert project is not None
    assert project.adapters == {root / "a.py": b"A", root / "sub" / "b.py": b"B"}


def test_an_adapter_is_a_file_or_a_module() -> None:
    here = Path("/here")
    assert adapter_file("x.py", here) == here / "x.py"
    assert adapter_file("/abs/x.py:Make", here) == Path("/abs/x.py")
    assert adapter_file("package.module:attr", here) is None
    assert adapter_file("nonsense", here) is None
    assert adapter_file("~no-such-user/x.py", here) == here / "~no-such-user" / "x.py"


@pytest.mark.parametrize(
    "data",
    [
        b"a" + b".a" * 100_000 + b" = 1",
        b"[" + b"a . " * 100_000 + b"a]",
        b"'a'" + b'."b"' * 100_000 + b" = 1",
        b"a = " + b"[" * 50_000,
        b"a = 1" + b"0" * 5_000,
    ],
)
def test_a_file_that_is_made_to_hold_us_up_is_refused_at_once(data: bytes) -> None:
    with pytest.raises(ConfigInvalid):
        parse(data, origin="dragoman.toml")


def test_ordinary_keys_and_texts_with_many_dots_are_accepted() -> None:
    text = "x = '" + "... " * 500 + "'\ny = '" + "a" * 100_000 + '\'\n[a.b."c.d"]\ne.f = 1\n'
    assert parse(text.encode(), origin="")["a"]["b"]["c.d"]["e"]["f"] == 1


def test_a_directory_that_cannot_be_examined_has_no_project() -> None:
    assert find_project_file(Path("/", "n" * 300, "inner")) is None
