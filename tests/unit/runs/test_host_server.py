"""The remote side of `--host`, on a stream in memory."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman.broker import host_protocol as protocol
from dragoman.errors import BrokerError, CallCancelled, RemoteError, UnknownJob, UsageError
from dragoman.paths import find_paths
from dragoman.rpc import Connection, End
from dragoman.rpc.responder import Ignore
from dragoman.rpc.tasks import THREAD_NAME
from dragoman.runs import host_server
from dragoman.runs.host_server import HostServer
from dragoman.store import Store, store_path
from dragoman.transports.memory import memory_pair
from dragoman.wire.messages import Notification
from tests.aio import aio
from tests.unit.runs.stored import job, said, session

HELLO = {"protocol": protocol.PROTOCOL, "version": "0"}


class Submitter:
    """Counts submissions and holds them until they are released."""

    def __init__(self) -> None:
        self.jobs: list[str] = []
        self.begun = asyncio.Event()
        self.go = asyncio.Event()

    async def __call__(self, prompt: protocol.HostPrompt) -> protocol.HostSubmitted:
        self.jobs.append(prompt.job)
        self.begun.set()
        await self.go.wait()
        if prompt.peer == "unknown":
            raise UsageError("there is no such peer")
        return protocol.HostSubmitted(job=prompt.job, session="s-1", peer="p")


@asynccontextmanager
async def served(
    tmp_path: Path, submit: Submitter | None = None, *, listener: Ignore | None = None
) -> AsyncIterator[tuple[Connection, asyncio.Task[None]]]:
    paths = find_paths({"DRAGOMAN_STATE_HOME": str(tmp_path / "state")})
    near, far = memory_pair()
    server = HostServer(submit or Submitter(), paths=paths, program=(sys.executable, "-c"))
    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(server.serve(far))
        connection = Connection(near, End.CLIENT, listener, trace=False)
        async with connection:
            yield connection, serving


async def ask(connection: Connection, method: str, params: Any) -> Any:
    return msgspec.json.decode(await connection.call(method, params, timeout=10.0))


@aio
async def test_the_greeting_has_the_protocol_and_applies_the_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAGOMAN_DEPTH", "0")
    async with served(tmp_path) as (connection, _):
        hello = {**HELLO, "environment": {"DRAGOMAN_DEPTH": "2", "PATH": "/evil"}}
        greeting = await ask(connection, protocol.HELLO, hello)
        assert greeting["protocol"] == protocol.PROTOCOL
        assert os.environ["DRAGOMAN_DEPTH"] == "2"
        assert os.environ["PATH"] != "/evil"


@aio
async def test_requests_with_another_protocol_are_rejected(tmp_path: Path) -> None:
    async with served(tmp_path) as (connection, _):
        greeting = await ask(connection, protocol.HELLO, {"protocol": 99, "version": "9"})
        assert greeting["protocol"] == protocol.PROTOCOL
        with pytest.raises(RemoteError, match="hello"):
            await ask(connection, protocol.SUBMIT, {"job": "j-1", "peer": "p"})


@aio
async def test_a_job_requested_twice_is_submitted_once(tmp_path: Path) -> None:
    submit = Submitter()
    async with served(tmp_path, submit) as (connection, _), asyncio.TaskGroup() as tasks:
        await ask(connection, protocol.HELLO, HELLO)
        params = {"job": "j-1", "peer": "p"}
        both = [
            tasks.create_task(ask(connection, protocol.SUBMIT, params)),
            tasks.create_task(ask(connection, protocol.SUBMIT, params)),
        ]
        await submit.begun.wait()
        submit.go.set()
        answers = [await each for each in both]
    assert answers[0] == answers[1]
    assert submit.jobs == ["j-1"]


@aio
async def test_a_submission_error_keeps_its_class(tmp_path: Path) -> None:
    submit = Submitter()
    submit.go.set()
    async with served(tmp_path, submit) as (connection, _):
        await ask(connection, protocol.HELLO, HELLO)
        with pytest.raises(RemoteError) as refused:
            await ask(connection, protocol.SUBMIT, {"job": "j-1", "peer": "unknown"})
    assert refused.value.data["dragoman"]["errorClass"] == "usage"


@aio
async def test_a_submission_is_finished_after_the_connection_has_ended(tmp_path: Path) -> None:
    submit = Submitter()
    async with served(tmp_path, submit) as (connection, serving):
        await ask(connection, protocol.HELLO, HELLO)
        connection.begin(
            protocol.SUBMIT, {"job": "j-1", "peer": "p"}, settle=lambda result, error: None
        )
        await submit.begun.wait()
        await connection.aclose()
        assert not serving.done()
        submit.go.set()
        await serving


@aio
async def test_a_ping_is_answered(tmp_path: Path) -> None:
    async with served(tmp_path) as (connection, _):
        await ask(connection, protocol.HELLO, HELLO)
        assert await ask(connection, protocol.PING, {}) == {}


@aio
async def test_a_silent_connection_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "SILENCE_TIMEOUT", 0.05)
    async with served(tmp_path) as (connection, _):
        async with asyncio.timeout(10):
            await connection.wait_ended()


@aio
async def test_a_command_runs_and_its_output_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    async with served(tmp_path) as (connection, _):
        await ask(connection, protocol.HELLO, HELLO)
        ended = await ask(connection, protocol.COMMAND, {"argv": ["print('hi'); exit(3)"]})
        assert ended == {"code": 3}


@aio
async def test_an_interrupt_says_whether_there_was_a_command(tmp_path: Path) -> None:
    async with served(tmp_path) as (connection, _):
        await ask(connection, protocol.HELLO, HELLO)
        assert await ask(connection, protocol.INTERRUPT, {}) == {"interrupted": False}


@aio
async def test_an_unknown_job_is_an_error(tmp_path: Path) -> None:
    async with served(tmp_path) as (connection, _):
        await ask(connection, protocol.HELLO, HELLO)
        with pytest.raises(RemoteError, match="there is no job"):
            await ask(connection, protocol.FOLLOW, {"job": "j-none"})
        assert await ask(connection, protocol.CANCEL, {"job": "j-none"}) == {"cancelled": False}
        answer = {"id": "q", "digest": "d", "result": {}}
        assert await ask(connection, protocol.ANSWER, answer) == {"answered": False}


class Notifications(Ignore):
    """Collects the notifications from the server."""

    def __init__(self) -> None:
        self.got: asyncio.Queue[Notification] = asyncio.Queue()

    def notification(self, notification: Notification) -> None:
        self.got.put_nowait(notification)


@aio
async def test_a_user_whose_questions_cannot_be_shown_gets_one_notice_and_it_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(host_server, "WATCH_INTERVAL", 0.0)
    tries, enough = 0, asyncio.Event()

    async def watch(*args: Any, **options: Any) -> None:
        nonlocal tries
        tries += 1
        if tries == 3 * host_server.WATCH_FAILURES:
            enough.set()
            await asyncio.Event().wait()
        raise BrokerError("it is too old")

    async def follow(*args: Any, **options: Any) -> AsyncIterator[tuple[int, bytes]]:
        await enough.wait()
        yield 0, said("done")

    monkeypatch.setattr(host_server, "watch_questions", watch)
    monkeypatch.setattr(host_server, "follow_job", follow)
    paths = find_paths({"DRAGOMAN_STATE_HOME": str(tmp_path / "state")})
    with Store.open(store_path(paths.state)) as store:
        store.create_session(session())
        store.create_job(job(state="running", outcome=None, endpoint="scout-1"))
    notifications = Notifications()
    async with served(tmp_path, listener=notifications) as (connection, _):
        await ask(connection, protocol.HELLO, HELLO)
        await ask(connection, protocol.FOLLOW, {"job": "j-0000000001", "answers": True})
    got = [notifications.got.get_nowait() for _ in range(notifications.got.qsize())]
    assert [each.method for each in got] == [protocol.NOTICE, protocol.LINES]
    assert msgspec.json.decode(got[0].params) == {
        "text": "questions of job j-0000000001 cannot be shown: it is too old; trying again"
    }


@aio
async def test_a_job_that_is_cancelled_while_it_is_submitted_is_reported_as_cancelled(
    tmp_path: Path,
) -> None:
    submit = Submitter()
    async with served(tmp_path, submit) as (connection, _), asyncio.TaskGroup() as tasks:
        await ask(connection, protocol.HELLO, HELLO)
        params = {"job": "j-1234", "peer": "p"}
        submitting = tasks.create_task(told(connection, protocol.SUBMIT, params))
        await submit.begun.wait()
        assert await ask(connection, protocol.CANCEL, {"job": "j-1234"}) == {"cancelled": True}
        refused = await submitting
    assert isinstance(refused, CallCancelled) and "before it was started" in str(refused)


async def told(connection: Connection, method: str, params: Any) -> Any:
    try:
        return await ask(connection, method, params)
    except RemoteError as error:
        return error


@aio
async def test_a_job_whose_prompt_was_sent_while_it_was_cancelled_is_cancelled_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[str] = []
    cancelled: list[str] = []

    async def find_sent(job: str, *, paths: Any) -> Any:
        found.append(job)
        return job

    async def cancel_job(job: str, *, paths: Any) -> bool:
        cancelled.append(job)
        return True

    monkeypatch.setattr(host_server, "find_sent", find_sent)
    monkeypatch.setattr(host_server, "cancel_job", cancel_job)
    submit = Submitter()
    async with served(tmp_path, submit) as (connection, _), asyncio.TaskGroup() as tasks:
        await ask(connection, protocol.HELLO, HELLO)
        params = {"job": "j-1234", "peer": "p"}
        submitting = tasks.create_task(told(connection, protocol.SUBMIT, params))
        await submit.begun.wait()
        await ask(connection, protocol.CANCEL, {"job": "j-1234"})
        # It is cancelled before its submission is answered, with which the other side may leave.
        assert isinstance(await submitting, CallCancelled)
    assert found == ["j-1234"] and cancelled == ["j-1234"] * 2


@aio
async def test_the_job_to_follow_is_looked_up_off_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []

    def look_up(word: str, *, paths: Any) -> str:
        threads.append(threading.current_thread().name)
        raise UnknownJob(f"there is no job {word!r}")

    monkeypatch.setattr(host_server, "job_id_of", look_up)
    async with served(tmp_path) as (connection, _):
        await ask(connection, protocol.HELLO, HELLO)
        with pytest.raises(RemoteError, match="there is no job 'last'"):
            await ask(connection, protocol.FOLLOW, {"job": "last"})
    assert threads == [THREAD_NAME]
