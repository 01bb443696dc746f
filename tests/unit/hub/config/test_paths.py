"""Where dragoman keeps its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.errors import ConfigInvalid
from dragoman.hub.config.paths import VARIABLES, find_paths


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


def test_without_a_runtime_folder_sockets_are_where_nobody_else_can_write(
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
