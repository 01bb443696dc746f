"""`dragoman config` as a program: trust is asked for on a terminal, files are for their owner."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.integration.cli_shell import Cli, cli_in

WANTS = 'permissions = "approve-all"\n'


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return cli_in(tmp_path)


def permissions(cli: Cli) -> list[str]:
    (line,) = [one for one in cli("config", "show").out.splitlines() if one.startswith("perm")]
    return line.split()[1:]


def test_a_project_counts_after_a_yes_and_no_longer_when_it_changes(cli: Cli) -> None:
    file = cli.cwd / "dragoman.toml"
    file.write_text(WANTS)
    assert permissions(cli) == ["ask", "default"]
    with cli.terminal("config", "trust") as terminal:
        shown = terminal.expect("Do you trust it? [y/N]")
        assert "decide about permissions: approve-all" in shown
        terminal.type("y\n")
        assert terminal.wait() == 0
    assert permissions(cli) == ["approve-all", str(file)]
    file.write_text(WANTS + "# one byte more\n")
    assert permissions(cli) == ["ask", "default"]


def test_the_end_of_input_is_a_no(cli: Cli) -> None:
    (cli.cwd / "dragoman.toml").write_text(WANTS)
    with cli.terminal("config", "trust") as terminal:
        terminal.expect("[y/N]")
        terminal.type("\x04")
        assert terminal.wait() == 1
    assert permissions(cli) == ["ask", "default"]


def test_settings_come_from_file_project_variable_in_this_order(cli: Cli) -> None:
    assert cli("config", "init").code == 0
    (cli.cwd / ".git").mkdir()
    (cli.cwd / "dragoman.toml").write_text('permissions = "deny-all"\n')
    assert permissions(cli) == ["deny-all", str(cli.cwd / "dragoman.toml")]
    cli.extra["DRAGOMAN_PERMISSIONS"] = "approve-reads"
    assert permissions(cli) == ["approve-reads", "DRAGOMAN_PERMISSIONS"]


def test_files_of_the_user_are_for_the_user_alone(cli: Cli) -> None:
    (cli.cwd / "dragoman.toml").write_text(WANTS)
    cli("config", "init")
    cli("config", "trust", "--yes")
    for file in (
        cli.home / "config_home" / "config.toml",
        cli.home / "data_home" / "trust.json",
    ):
        assert stat.S_IMODE(os.stat(file).st_mode) == 0o600
