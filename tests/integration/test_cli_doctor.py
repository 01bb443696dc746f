"""`dragoman doctor` as a program, with a process that was really left behind."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.cli_shell import Cli, cli_in


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return cli_in(tmp_path)


def test_a_fresh_place_has_nothing_bad(cli: Cli) -> None:
    done = cli("doctor")
    assert done.code == 0, done.out
    assert "\x1b" not in done.out
    assert done.out.splitlines()[-1].startswith("0 bad, ")


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
def test_a_process_whose_dragoman_is_gone_is_found_and_not_touched(cli: Cli) -> None:
    waits = "import sys; sys.stdin.read()"
    child = subprocess.Popen(  # noqa: TID251 - a process that no dragoman of ours may know
        [sys.executable, "-I", "-S", "-c", waits],
        stdin=subprocess.PIPE,
        env={**os.environ, "DRAGOMAN_MARK": "0123456789abcdef.1"},
    )
    try:
        done = cli("doctor", "--format", "json")
        assert child.poll() is None
        found = [json.loads(line) for line in done.out.splitlines()]
        (mine,) = [one for one in found if one["cure"] == f"kill {child.pid}"]
        assert mine["state"] == "warn" and "sys.stdin" in mine["text"]
    finally:
        child.communicate()


def test_a_report_can_be_shown_to_strangers(cli: Cli) -> None:
    cli.extra |= {"ANTHROPIC_API_KEY": "sk-not-for-you", "USER": "somebody"}
    (cli.home / "config_home").mkdir()
    (cli.home / "config_home" / "config.toml").write_text('enabled_peers = ["nobody"]\n')
    done = cli("doctor", "--report")
    assert done.code == 1
    assert "nobody is enabled by ~/config_home/config.toml" in done.out
    assert "sk-not-for-you" not in done.out
    assert str(cli.home) not in done.out


def test_python_can_be_asked_about_it_too(cli: Cli) -> None:
    assert cli("--version").out.splitlines()[0] in cli("doctor", "--report").out


def test_damaged_stores_are_found_set_aside_and_work_goes_on(cli: Cli) -> None:
    (cli.cwd / "app.py").write_text("def main(): ...\n")
    ask = ("delegate", "exploration", "where is main defined?")
    assert cli.child(*ask).code == 0
    state = cli.home / "state_home"
    with sqlite3.connect(state / "ledger.db") as ledger:
        # A text that is none, as a broken disk leaves it.
        ledger.execute("UPDATE health SET data = CAST(x'7bff' AS TEXT)")
    ledger.close()
    (state / "sessions.db").write_bytes(b"garbage " * 1000)
    sick = cli.child("doctor")
    assert sick.code == 1
    assert sick.out.count(" is damaged: ") == 2
    done = cli.child(*ask)
    assert done.code == 0, done.err
    assert "app.py" in done.out
    for name in ("ledger.db", "sessions.db"):
        assert done.err.count(f"{name}: it was damaged and is now ") == 1
        assert len(list(state.glob(f"{name}.damaged-*[0-9]"))) == 1
    again = cli.child(*ask)
    assert again.code == 0 and "damaged" not in again.err
    cured = cli.child("doctor")
    assert cured.code == 0 and cured.out.count("set aside") == 2


def test_a_store_that_lacks_a_table_is_damaged(cli: Cli) -> None:
    (cli.cwd / "app.py").write_text("def main(): ...\n")
    ask = ("run", "scout", "where is main defined?")
    assert cli.child(*ask).code == 0
    store = cli.home / "state_home" / "sessions.db"
    with sqlite3.connect(store) as connection:
        connection.execute("DROP TABLE sessions")
    connection.close()
    sick = cli.child("doctor")
    assert sick.code == 1 and f"{store} is damaged: " in sick.out
    done = cli.child(*ask)
    assert done.code == 0 and "sessions.db: it was damaged and is now " in done.err
    assert "damaged" not in cli.child(*ask).err


def test_a_ledger_with_a_value_of_a_newer_dragoman_is_left_alone_and_work_goes_on(cli: Cli) -> None:
    (cli.cwd / "app.py").write_text("def main(): ...\n")
    ask = ("delegate", "exploration", "where is main defined?")
    assert cli.child(*ask).code == 0
    state = cli.home / "state_home"
    with sqlite3.connect(state / "ledger.db") as ledger:
        ledger.execute("UPDATE health SET data = json_set(data, '$.failures', 'many')")
    ledger.close()
    done = cli.child(*ask)
    assert done.code == 0 and "app.py" in done.out, done.err
    assert "ledger.db: it contains a value that this version does not know" in done.err
    assert list(state.glob("ledger.db.damaged-*")) == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("sessions.db", ("sessions", "prune", "--older-than", "1d", "--yes")),
        ("ledger.db", ("ledger", "prune", "--older-than", "1d", "--yes")),
        ("ledger.db", ("verdict", "j-1", "good")),
        ("ledger.db", ("peers", "unpark", "scout")),
    ],
)
def test_no_command_sets_a_damaged_file_aside_without_a_word(
    cli: Cli, name: str, words: tuple[str, ...]
) -> None:
    state = cli.home / "state_home"
    state.mkdir(exist_ok=True)
    (state / name).write_bytes(b"garbage " * 1000)
    assert cli(*words).err.count(f"{name}: it was damaged and is now ") == 1
