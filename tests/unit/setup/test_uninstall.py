"""What dragoman has put on a machine, as it is found there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dragoman.paths import Paths
from dragoman.setup.install.clients import HostEnvironment
from dragoman.setup.uninstall import package_command, remove, take_inventory
from tests.aio import aio


def paths_in(folder: Path) -> Paths:
    names = ("config", "data", "cache", "state", "runtime")
    return Paths(**{name: folder / name for name in names})


def test_an_untouched_machine_has_nothing(tmp_path: Path) -> None:
    around = HostEnvironment(tmp_path, {}, "linux")
    found = take_inventory(paths_in(tmp_path / "d"), around, keep_config=False)
    assert found.is_empty and found.left == ()


def test_shell_completion_is_named_and_left(tmp_path: Path) -> None:
    file = tmp_path / ".zfunc" / "_dragoman"
    file.parent.mkdir()
    file.write_text("#compdef dragoman\n")
    around = HostEnvironment(tmp_path, {}, "linux")
    found = take_inventory(paths_in(tmp_path / "d"), around, keep_config=False)
    assert found.left == (file,) and found.is_empty


def test_settings_that_cannot_be_read_are_named_if_they_may_have_an_entry(tmp_path: Path) -> None:
    file = tmp_path / ".codex" / "config.toml"
    file.parent.mkdir()
    file.write_text('[mcp_servers.dragoman]\ncommand = "dragoman"\nbroken =\n')
    (tmp_path / ".claude.json").write_text('{"theme": ')
    around = HostEnvironment(tmp_path, {}, "linux")
    found = take_inventory(paths_in(tmp_path / "d"), around, keep_config=False)
    assert [error.path for error in found.unread] == [str(file)]
    assert "it is not valid TOML: " in found.unread[0].problem


@aio
async def test_a_skill_beside_other_files_goes_alone(tmp_path: Path) -> None:
    folder = tmp_path / ".claude" / "skills" / "dragoman"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("skill")
    (folder / "notes.md").write_text("mine")
    around = HostEnvironment(tmp_path, {}, "linux")
    found = take_inventory(paths_in(tmp_path / "d"), around, keep_config=False)
    assert found.skills == (folder / "SKILL.md",)
    assert await remove(found) == []
    assert [path.name for path in folder.iterdir()] == ["notes.md"]


@pytest.mark.parametrize(
    ("prefix", "command"),
    [
        ("/home/a/.local/share/pipx/venvs/dragoman", "pipx uninstall dragoman"),
        ("/home/a/.local/share/uv/tools/dragoman", "uv tool uninstall dragoman"),
        ("/usr", f"{sys.executable} -m pip uninstall dragoman"),
    ],
)
def test_the_package_is_removed_by_what_installed_it(
    prefix: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", prefix)
    assert package_command() == command
