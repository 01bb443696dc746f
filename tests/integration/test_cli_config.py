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
        assert "set permissions to approve-all" in shown
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


def test_a_setting_is_written_the_way_a_person_types_it(cli: Cli) -> None:
    for key, typed, shown in (
        ("enabled_peers", "codex, gemini", "codex, gemini"),
        ("peer.codex.env", "MY_KEY", "MY_KEY"),
        ("peer.codex.roles", "review,plan", "review, plan"),
        ("ttl", "90s", "90 s"),
        ("timeouts.total", "10m", "10 min"),
        ("peer.codex.limits.turn_seconds", "1h", "1 h"),
    ):
        assert cli("config", "set", key, typed).code == 0
        (line,) = cli("config", "show", key).out.splitlines()[1:]
        assert line.startswith(key) and shown in line


def test_a_table_is_shown_alone_and_a_misspelled_setting_is_suggested(cli: Cli) -> None:
    lines = cli("config", "show", "timeouts").out.splitlines()[1:]
    assert len(lines) > 3 and all(line.startswith("timeouts.") for line in lines)
    wrong = cli("config", "show", "default_pear")
    assert (wrong.code, wrong.out) == (2, "")
    assert "there is no setting 'default_pear'; did you mean default_peer?" in wrong.err
    assert "Did you mean 'show'?" in cli("config", "get", "ttl").err


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("default_peer", "codx", "there is no peer 'codx'; did you mean codex?"),
        ("enabled_peers", "codex,gemni", "there is no peer 'gemni'; did you mean gemini?"),
        ("peer.codxe.model", "x", "there is no peer 'codxe'; did you mean codex?"),
        ("peer.codex.model", "5", "peer.codex.model: expected a string, got a whole number"),
        ("peer.codex.env", "[1]", "peer.codex.env[0]: expected a string, got a whole number"),
        ("timeouts.total", "5x", "use a number or 'never'"),
    ],
)
def test_a_mistake_in_a_setting_is_named_and_nothing_is_written(
    cli: Cli, key: str, value: str, said: str
) -> None:
    done = cli("config", "set", key, value)
    assert done.code == 2
    assert said in done.err and "nothing was changed" in done.err
    assert not (cli.home / "config_home" / "config.toml").exists()


def test_a_peer_that_is_not_added_yet_can_have_settings(cli: Cli) -> None:
    assert cli("config", "set", "peer.my-own-agent.model", "large").code == 0
