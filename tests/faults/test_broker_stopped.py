"""A broker that is stopped by a signal: every command that waits for it ends and says what to do.

The broker is a process of its own. It is stopped before the command or at a known point in it. The
timeouts are shortened, because only they can end these commands.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from dragoman.broker.client import connect, find_or_start, hello
from dragoman.broker.client import sessions as broker_sessions
from dragoman.broker.client.brokers import list_brokers
from dragoman.broker.protocol import RESULT
from dragoman.broker.records import BrokerRecord
from dragoman.gateway.relay import Upstream
from dragoman.paths import find_paths
from dragoman.rpc import Connection
from dragoman.runs import job_events, jobs, sessions
from dragoman.runs import run as runs
from dragoman.transports.process.identity import kill
from tests.integration.cli_shell import Cli, Done, warm_cli

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")

SHORT = 3.0
"""Seconds in place of every timeout for a broker. They also apply to a broker that is not stopped,
which must answer in time on a busy machine."""


@pytest.fixture
def warm(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cli]:
    monkeypatch.setattr(sessions, "SUBMIT_TIMEOUT", SHORT)
    monkeypatch.setattr(job_events, "ATTACH_TIMEOUT", SHORT)
    for name in ("ANSWER_TIMEOUT", "WAIT_TIMEOUT"):
        monkeypatch.setattr(jobs, name, SHORT)
    for name in ("PROBE_INTERVAL", "PROBE_TIMEOUT"):
        monkeypatch.setattr(hello, name, SHORT)
    times = find_or_start.StartTimes(answer=SHORT)
    monkeypatch.setitem(find_or_start.ensure.__kwdefaults__, "times", times)  # type: ignore[arg-type]
    with warm_cli() as cli:
        yield cli


def run(cli: Cli, prompt: str, *words: str) -> Done:
    return cli("run", prompt, "--approve-reads", *words, "--", *cli.agent)


def broker_of(cli: Cli) -> BrokerRecord:
    (record,) = list_brokers(find_paths(cli.env))
    return record


@contextmanager
def stopped(cli: Cli) -> Iterator[Callable[[], None]]:
    """Stops the broker when called; at the end, the broker continues if it still exists."""
    records: list[BrokerRecord] = []

    def stop() -> None:
        if not records:
            records.append(broker_of(cli))
            assert kill(records[0].broker, signal.SIGSTOP)

    try:
        yield stop
    finally:
        for record in records:
            kill(record.broker, signal.SIGCONT)
        assert records, "the command did not get as far as it should"


def before(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, call: Callable[[], None]
) -> None:
    """Let a function do something else first."""
    real = getattr(owner, name)

    def wrapped(*args: Any, **options: Any) -> Any:
        call()
        return real(*args, **options)

    monkeypatch.setattr(owner, name, wrapped)


def running_job(cli: Cli) -> str:
    done = run(cli, "wait", "--no-wait", "-s", "one")
    assert done.code == 0, done
    job = done.out.strip()
    while json.loads(cli("jobs", "result", job, "--format", "json").out)["state"] != "running":
        pass
    return job


# -- run


@pytest.mark.parametrize("words", [("--no-wait",), ()], ids=["no-wait", "wait"])
@pytest.mark.parametrize("stage", ["before the call", "behind the greeting"])
def test_a_broker_that_stops_before_the_handshake_is_replaced(
    warm: Cli, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], stage: str
) -> None:
    assert run(warm, "hello", "-s", "one").code == 0
    first = broker_of(warm)
    with stopped(warm) as stop:
        if stage == "before the call":
            stop()
        else:
            before(monkeypatch, connect.WarmClient, "start", stop)
        done = run(warm, "hello", "-s", "two", *words)
    assert done.code == 0, done
    assert broker_of(warm).broker != first.broker


@pytest.mark.parametrize("words", [("--no-wait",), ()], ids=["no-wait", "wait"])
def test_a_broker_that_stops_while_a_session_opens_is_to_blame(
    warm: Cli, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    assert run(warm, "hello", "-s", "one").code == 0
    with stopped(warm) as stop:
        before(monkeypatch, runs, "open_session", stop)
        done = run(warm, "hello", "-s", "two", *words)
    assert done.code == 1, done
    assert "the broker was lost before a prompt was sent" in done.err
    assert f"dragoman broker stop {broker_of(warm).name}" in done.err


def test_a_prompt_that_a_stopped_broker_does_not_confirm_may_have_run(
    warm: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(warm, "hello", "-s", "one").code == 0
    with stopped(warm) as stop:
        before(monkeypatch, runs, "submit", stop)
        done = run(warm, "hello", "-s", "two", "--no-wait")
    assert (done.code, done.out) == (1, ""), done
    assert "did not confirm the job j-" in done.err
    assert f"dragoman broker stop {broker_of(warm).name}" in done.err


def test_a_turn_whose_broker_stops_ends_long_before_its_budgets(
    warm: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(warm, "hello", "-s", "one").code == 0
    with stopped(warm) as stop:
        before(monkeypatch, runs.Run, "_begin", stop)
        done = run(warm, "hello", "-s", "two")
    assert done.code == 1, done
    assert "the broker" in done.err and f"does not answer within {SHORT:g} s" in done.err


@pytest.mark.parametrize("words", [("--env", "ACME_REGION"), ("--cold",)], ids=["terms", "cold"])
def test_a_session_of_a_stopped_broker_is_not_used_in_another_process(
    warm: Cli, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setattr(broker_sessions, "ANSWER_TIMEOUT", SHORT)
    warm.extra["ACME_REGION"] = "north"
    assert run(warm, "hello", "-s", "one").code == 0
    name = broker_of(warm).name
    with stopped(warm) as stop:
        stop()
        done = run(warm, "hello", "-s", "one", *words)
    assert done.code == 1, done
    assert "the session one may be open in another broker" in done.err
    assert f"dragoman broker stop {name}" in done.err


# -- jobs


@pytest.mark.parametrize("words", [("watch",), ("result", "--wait"), ("cancel",)], ids="-".join)
def test_a_command_for_a_job_ends_when_its_broker_was_stopped(
    warm: Cli, words: tuple[str, ...]
) -> None:
    job = running_job(warm)
    with stopped(warm) as stop:
        stop()
        done = warm("jobs", *words, job)
    assert done.code == 1, done
    assert f"the job {job} has not ended, and the broker" in done.err
    assert f"dragoman broker stop {broker_of(warm).name}" in done.err


def test_the_result_so_far_of_a_job_is_shown_without_its_broker(warm: Cli) -> None:
    job = running_job(warm)
    with stopped(warm) as stop:
        stop()
        done = warm("jobs", "result", job)
    assert done.code == 3, done


def test_a_watch_ends_when_the_broker_stops_before_it_attaches(
    warm: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = running_job(warm)
    with stopped(warm) as stop:
        before(monkeypatch, Upstream, "route", stop)
        done = warm("jobs", "watch", job)
    assert done.code == 1, done
    assert f"the job {job} has not ended, and the broker" in done.err


def test_a_watch_ends_when_the_broker_stops_while_it_follows(
    warm: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = running_job(warm)
    real = Connection.begin
    with stopped(warm) as stop:

        def begin(connection: Connection, method: str, *args: Any, **options: Any) -> Any:
            if method == RESULT:
                stop()
            return real(connection, method, *args, **options)

        monkeypatch.setattr(Connection, "begin", begin)
        done = warm("jobs", "watch", job)
    assert done.code == 1, done
    assert f"the job {job} has not ended, and the broker" in done.err


def test_a_watch_of_a_session_ends_when_its_broker_stops(
    warm: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(warm, "hello", "-s", "one").code == 0
    with stopped(warm) as stop:
        before(monkeypatch, Upstream, "route", stop)
        done = warm("sessions", "watch", "one")
    assert done.code == 1, done
    assert f"does not answer within {SHORT:g} s" in done.err


def test_a_watch_of_a_session_says_that_the_broker_was_stopped_before(warm: Cli) -> None:
    assert run(warm, "hello", "-s", "one").code == 0
    with stopped(warm) as stop:
        stop()
        done = warm("sessions", "watch", "one", "--format", "quiet")
    assert done.code == 1, done
    assert f"dragoman broker stop {broker_of(warm).name}" in done.err


def test_a_program_behind_broker_attach_is_let_go_when_the_broker_stops(warm: Cli) -> None:
    # A separate process, because of its stdin: the timeouts are the real ones.
    words = warm.argv("broker", "attach", "--", *warm.agent)
    params = {"protocolVersion": 1}
    initialize = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    with subprocess.Popen(  # noqa: TID251 - the other program
        words,
        cwd=warm.cwd,
        env=warm.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as attached:
        assert attached.stdin is not None and attached.stdout is not None
        attached.stdin.write(json.dumps(initialize) + "\n")
        attached.stdin.flush()
        assert "protocolVersion" in attached.stdout.readline()
        with stopped(warm) as stop:
            stop()
            assert attached.stderr is not None
            told = attached.stderr.read()
        assert attached.wait() == 1
    assert "does not answer within 10 s" in told


def test_lists_are_shown_while_a_broker_is_stopped(warm: Cli) -> None:
    assert run(warm, "hello", "-s", "one").code == 0
    with stopped(warm) as stop:
        stop()
        assert "one" in warm("sessions", "list").out
        assert broker_of(warm).name in warm("broker", "list").out
