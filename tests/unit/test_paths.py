"""Where dragoman keeps its files."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from platformdirs import PlatformDirs

from dragoman.errors import ConfigInvalid
from dragoman.paths import USUAL, VARIABLES, find_paths, runtime_problem

posix = pytest.mark.skipif(os.name != "posix" or sys.platform == "darwin", reason="XDG folders")


def test_every_folder_can_be_moved_by_its_variable(tmp_path: Path) -> None:
    environ = {variable: str(tmp_path / name) for name, variable in VARIABLES.items()}
    paths = find_paths(environ)
    assert {name: getattr(paths, name) for name in VARIABLES} == {
        name: tmp_path / name for name in VARIABLES
    }
    assert paths.config_file == tmp_path / "config" / "config.toml"
    assert paths.peers_folder == tmp_path / "config" / "peers"
    assert paths.trust_file == tmp_path / "data" / "trust.json"


def test_without_variables_the_folders_are_those_of_the_platform_and_all_different() -> None:
    paths = find_paths({})
    found = {getattr(paths, name) for name in VARIABLES}
    assert len(found) == len(VARIABLES)
    assert all(path.is_absolute() and "dragoman" in str(path) for path in found)


def test_without_a_runtime_directory_sockets_are_where_only_this_user_can_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    paths = find_paths({})
    assert paths.runtime == paths.state / "run"


def test_a_tilde_is_the_home_and_nothing_is_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    paths = find_paths({"DRAGOMAN_CONFIG_HOME": "~/mine"})
    assert paths.config == tmp_path / "mine"
    assert list(tmp_path.iterdir()) == []


def test_without_a_home_nothing_is_looked_for_in_the_working_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigInvalid, match="HOME"):
        find_paths({})
    with pytest.raises(ConfigInvalid, match="DRAGOMAN_DATA_HOME"):
        every = dict.fromkeys(VARIABLES.values(), "/somewhere")
        find_paths({**every, "DRAGOMAN_DATA_HOME": "~/data"})


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the library is always asked")
@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"XDG_CONFIG_HOME": "/etc/mine", "XDG_STATE_HOME": "/var/mine/"},
        {"XDG_CONFIG_HOME": "", "XDG_DATA_HOME": "not/absolute", "XDG_CACHE_HOME": "~/cache"},
        {"HOME": "/nowhere/at/all"},
        {"HOME": "/"},
        {"HOME": ""},
        {"HOME": "not/absolute"},
        {"ANDROID_DATA": "/data", "ANDROID_ROOT": "/system"},
    ],
)
def test_what_is_found_without_the_library_is_what_it_finds(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, _ in USUAL.values():
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    paths, dirs = find_paths({}), PlatformDirs("dragoman", appauthor=False)
    for name in USUAL:
        assert getattr(paths, name) == getattr(dirs, f"user_{name}_path")


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A runtime folder as the system makes it; pytest's own folders may be below a wider one."""
    with tempfile.TemporaryDirectory(prefix="dgm") as name:
        folder = Path(name).resolve() / "run"
        folder.mkdir(mode=0o700)
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
        yield folder


@posix
def test_a_runtime_folder_of_ours_alone_is_used(runtime: Path) -> None:
    assert runtime_problem(str(runtime)) is None
    assert find_paths({}).runtime == runtime / "dragoman"


@posix
@pytest.mark.parametrize("mode", [0o755, 0o770, 0o1700, 0o500])
def test_a_runtime_folder_of_another_mode_is_passed_over_without_a_word(
    runtime: Path, mode: int, recwarn: pytest.WarningsRecorder
) -> None:
    runtime.chmod(mode)
    assert f"{mode:04o}" in str(runtime_problem(str(runtime)))
    paths = find_paths({})
    assert paths.runtime == paths.state / "run"
    assert not recwarn.list


@posix
def test_a_runtime_folder_that_another_user_made_or_can_replace_is_passed_over(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = runtime.with_name("link")
    link.symlink_to(runtime)
    below = runtime / "below"
    below.mkdir(mode=0o700)
    assert runtime_problem(str(link)) == "it is not a directory"
    assert runtime_problem("run") == "it is not an absolute path"
    assert runtime_problem(str(runtime / "none")) == "No such file or directory"
    assert "null" in str(runtime_problem("/run\0"))
    assert runtime_problem(str(below)) is None
    runtime.chmod(0o770)
    assert runtime_problem(str(below)) == "another user can replace it"
    runtime.chmod(0o1777)
    assert runtime_problem(str(below)) is None
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    assert runtime_problem(str(below)) == f"it belongs to another user (uid {me})"
    paths = find_paths({})
    assert paths.runtime == paths.state / "run"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the library is always asked")
def test_on_linux_no_library_is_loaded_for_the_usual_folders() -> None:
    code = (
        "import sys\nfrom dragoman.paths import find_paths\n"
        "find_paths({})\nprint('platformdirs' in sys.modules)"
    )
    usual = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=usual, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
