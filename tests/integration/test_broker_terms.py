"""Who shares a broker and who does not, and what becomes of a session that is wanted elsewhere.

From the command line to real brokers and real agents. What a broker does with one session is in
`test_broker_serving`, how it is started in `test_broker_starting`.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dragoman.hub.broker.listing import list_brokers
from dragoman.hub.broker.records import Record
from dragoman.hub.config.paths import find_paths
from dragoman.transports.identity import ProcessState, kill, state_of
from tests.integration.cli_shell import Cli, Done, warm_cli

WAIT_TIMEOUT = 10.0
"""Seconds for something that a broker does by itself."""

ASK = ("run", "scout", "where is main defined?", "--format", "json")


@pytest.fixture
def warm() -> Iterator[Cli]:
    with warm_cli() as cli:
        (cli.cwd / ".git").mkdir()
        (cli.cwd / "sub").mkdir()
        (cli.cwd / "app.py").write_text("def main(): ...\n")
        yield cli


def until(holds: Callable[[], Any]) -> None:
    give_up_at = time.monotonic() + WAIT_TIMEOUT
    while not holds():
        assert time.monotonic() < give_up_at, "it never came to that"


def result(done: Done) -> dict[str, Any]:
    assert done.out, done.err
    last: dict[str, Any] = json.loads(done.out.splitlines()[-1])
    assert "outcome" in last, last
    return last


def brokers(cli: Cli) -> list[Record]:
    return [record for record in list_brokers(find_paths(cli.env)) if not record.draining]


def test_from_a_folder_below_a_session_goes_on_in_the_broker_where_it_began(warm: Cli) -> None:
    first = result(warm(*ASK, "-s", "talk"))
    below = result(warm(*ASK, "-s", "talk", "--cwd", "sub"))
    assert (below["context"], below["session"]) == ("live", first["session"])
    assert len(brokers(warm)) == 1


def test_who_may_write_and_who_may_not_share_the_agent(warm: Cli) -> None:
    for flag in ("--approve-all", "--approve-reads", "--deny-all"):
        assert result(warm(*ASK, "-s", "talk", flag))["outcome"] == "ok"
    assert len(brokers(warm)) == 1


def test_a_session_moves_to_a_broker_with_other_variables_and_back(warm: Cli) -> None:
    warm.extra["ACME_REGION"] = "north"
    first = result(warm(*ASK, "-s", "talk"))
    (before,) = brokers(warm)
    moved = result(warm(*ASK, "-s", "talk", "--env", "ACME_REGION"))
    assert (moved["context"], moved["session"]) == ("restored", first["session"])
    back = result(warm(*ASK, "-s", "talk"))
    assert (back["outcome"], back["session_key"]) == ("ok", first["session_key"])
    answer = "`main` is defined in `app.py:1`"
    until(lambda: warm("sessions", "show", "talk").out.count(answer) == 3)
    assert warm("sessions", "show", "talk").out.count("> where is main") == 3
    assert before.name in {record.name for record in brokers(warm)}


def test_a_session_whose_job_runs_is_not_taken_away(warm: Cli) -> None:
    warm.extra["ACME_REGION"] = "north"
    words = ("-s", "talk", "--approve-reads")
    done = warm("run", "wait", *words, "--no-wait", "--", *warm.agent)
    job = done.out.strip()
    assert job.startswith("j-"), done.err
    until(lambda: "running" in warm("jobs", "list").out)
    for more in (("--env", "ACME_REGION"), ("--cold",)):
        taken = warm("run", "hello", *words, *more, "--", *warm.agent)
        assert taken.code == 2, taken.out + taken.err
        assert "a turn of the session talk runs" in taken.err
    assert warm("jobs", "cancel", job).code == 0


def test_of_idle_brokers_the_least_recent_stops(warm: Cli) -> None:
    warm.extra["DRAGOMAN_MAX_IDLE_BROKERS"] = "2"
    folders = [warm.cwd.parent / name for name in ("one", "two", "three")]
    for folder in folders:
        folder.mkdir()
        (folder / "app.py").write_text("def main(): ...\n")
    one, two, three = (str(folder) for folder in folders)
    for name in (one, two, one):
        assert result(warm(*ASK, "--cwd", name))["outcome"] == "ok"
    assert {record.workspace for record in brokers(warm)} == {one, two}
    assert result(warm(*ASK, "--cwd", three))["outcome"] == "ok"
    until(lambda: {record.workspace for record in brokers(warm)} == {one, three})


@pytest.mark.parametrize("shown", ["list", "watch"])
def test_a_job_of_a_killed_broker_is_shown_as_crashed_at_once(warm: Cli, shown: str) -> None:
    words = ("-s", "talk", "--approve-reads", "--no-wait")
    job = warm("run", "wait", *words, "--", *warm.agent).out.strip()
    # What was said so far is there while it runs.
    until(lambda: "waiting" in warm("jobs", "result", job).out)
    (record,) = brokers(warm)
    assert kill(record.broker, signal.SIGKILL)
    until(lambda: state_of(record.broker) is ProcessState.DEAD)
    if shown == "list":
        (row,) = map(json.loads, warm("jobs", "list", "--format", "json").out.splitlines())
        assert (row["state"], row["outcome"]) == ("ended", "crashed")
    done = warm("jobs", "watch" if shown == "watch" else "result", job)
    assert "crashed" in done.out + done.err
    assert done.code not in (0, 3)


def test_the_next_command_cleans_up_behind_a_killed_broker_and_goes_on(warm: Cli) -> None:
    first = result(warm(*ASK, "-s", "talk"))
    (record,) = brokers(warm)
    os.kill(record.broker.pid, signal.SIGKILL)
    second = result(warm(*ASK, "-s", "talk"))
    assert (second["outcome"], second["session"]) == ("ok", first["session"])
    assert second["context"] == "restored"
    assert [each.broker.pid == record.broker.pid for each in brokers(warm)] == [False]
