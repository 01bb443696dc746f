"""`dragoman broker` where no broker runs, and its words."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dragoman.broker.client import brokers
from dragoman.broker.records import BrokerRecord
from dragoman.errors import BrokerUnavailable
from tests.unit.broker.test_records import record
from tests.unit.cli.calling import Shell


def test_without_brokers_there_is_nothing_to_list_and_nothing_to_stop(shell: Shell) -> None:
    listed = shell("broker", "list")
    assert (listed.code, listed.out) == (0, "")
    assert "No broker is running" in listed.err
    assert shell("broker", "list", "--format", "json").out == ""
    assert shell("broker", "status").out == ""
    assert shell("broker", "stop", "--all").code == 0
    assert shell("broker", "reap").out == ""
    assert shell("broker", "stop").code == 2
    assert shell("broker", "stop", "gemini", "--all").code == 2
    assert "no broker 'gemini' is running; `dragoman" in shell("broker", "stop", "gemini").err


def test_a_broker_of_no_peer_is_refused_with_the_nearest_name(shell: Shell) -> None:
    assert "is running; did you mean gemini?" in shell("broker", "stop", "gemni").err
    assert "named gemni. Did you mean gemini?" in shell("broker", "logs", "gemni").err


def test_a_broker_that_cannot_be_stopped_does_not_keep_the_others_running(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = []

    async def stop(record: BrokerRecord, **options: bool) -> bool:
        if record.name.startswith("stuck"):
            raise BrokerUnavailable(f"the broker {record.name} cannot be stopped")
        await asyncio.sleep(0)
        stopped.append(record.name)
        return True

    found = [record(name) for name in ("stuck-1", "good-1", "stuck-2", "good-2")]
    monkeypatch.setattr(brokers, "list_brokers", lambda paths: found)
    monkeypatch.setattr(brokers, "stop_broker", stop)
    said = shell("broker", "stop", "--all")
    assert said.code != 0 and stopped == ["good-1", "good-2"]
    assert said.out == "good-1: stopped\ngood-2: stopped\n"
    assert all(
        f"the broker {name} cannot be stopped" in said.err for name in ("stuck-1", "stuck-2")
    )


def test_logs_are_there_after_the_broker(shell: Shell, tmp_path: Path) -> None:
    assert shell("broker", "logs").code == 1
    folder = shell.home / "state_home" / "logs"
    folder.mkdir(parents=True)
    (folder / "broker-gemini-01.log").write_text("first\nsecond \x1b[2J\n")
    (folder / "broker-qwen-01.log").write_text("other\n")
    said = shell("broker", "logs", "gemini", "-n", "1")
    head, line = said.out.splitlines()
    assert head.endswith("broker-gemini-01.log")
    assert line == "second ␛[2J"
    assert "other" in shell("broker", "logs").out
    unknown = shell("broker", "logs", "nosuch")
    assert (unknown.code, unknown.err) == (1, "There is no log of a broker named nosuch.\n")
    for lines in ("0", "-5"):
        refused = shell("broker", "logs", "--lines", lines)
        assert (refused.code, "--lines must be at least 1" in refused.err) == (2, True)
    (folder / "broker-odd-01.log").mkdir()
    failed = shell("broker", "logs", "odd")
    assert (failed.code, "broker-odd-01.log': Is a directory" in failed.err) == (1, True)


def test_logs_of_a_peer_are_not_those_of_one_with_a_longer_name(shell: Shell) -> None:
    folder = shell.home / "state_home" / "logs"
    folder.mkdir(parents=True)
    (folder / "broker-codex-0123456789ab.log").write_text("of codex\n")
    (folder / "broker-codex-acp-ba9876543210.log").write_text("of codex-acp\n")
    assert "codex-acp" not in shell("broker", "logs", "codex").out
    assert "of codex\n" not in shell("broker", "logs", "codex-acp").out
    assert "of codex-acp\n" in shell("broker", "logs", "codex-acp").out
