"""A fleet job as JSON, and requests for unknown jobs. tests/console uses a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from msgspec import structs
from starlette.applications import Starlette

from dragoman.console import retry
from dragoman.console.fleet_routes import FleetRoutes, job_as_json
from dragoman.errors import FleetUnreachable
from dragoman.fleet import subjects, submitter
from dragoman.fleet.records import NOTICE, EventBatch, FleetAttempt, FleetJob, FleetResult, encode
from dragoman.paths import Paths
from dragoman.rpc.tasks import TaskOwner
from tests.aio import aio
from tests.unit.console.place import TIMEOUT, console, short_paths, told
from tests.unit.fleet import test_submitter
from tests.unit.fleet.fakes import MemoryConnection
from tests.unit.fleet.test_worker import SPEC


@pytest.fixture
def paths() -> Iterator[Paths]:
    with short_paths() as paths:
        yield paths


def test_a_job_has_its_attempts_and_its_result() -> None:
    attempt = FleetAttempt(number=1, worker="w1", assigned_at=1.0, end="lost", why="silent")
    result = FleetResult(ok=False, outcome="lost", worker="w1", attempt=1, why="it ran a command")
    job = FleetJob(
        id="f1", submitter="s1", spec=SPEC, created_at=0.0, state="done", attempts=(attempt,),
        result=result,
    )  # fmt: skip
    found = job_as_json(job, mine="s1")
    assert found["mine"] and found["attempts"][0]["why"] == "silent"
    assert found["result"]["outcome"] == "lost" and not found["result"]["patch"]
    assert not job_as_json(job, mine="other")["mine"]


@aio
async def test_a_job_of_an_unknown_fleet_is_not_found(paths: Paths) -> None:
    async with console(paths) as place, place.browser() as client:
        assert (await client.get("/api/v1/fleet/team.alice/jobs/f1")).status_code == 404
        cancel = await client.post("/api/v1/fleet/team.alice/jobs/f1/cancel", json={})
        assert cancel.status_code == 404 and "no submitter credential" in cancel.json()["message"]
        async with place.socket(client) as socket:
            await socket.send('{"type": "follow", "session": "fleet/team.alice/f1"}')
            assert "no submitter credential" in (await told(socket, "error"))["message"]


def feed_of(memory: MemoryConnection, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The feed of the jobs in a fleet whose server is in memory."""
    monkeypatch.setattr(
        "dragoman.fleet.connection.FleetConnection", lambda credential: nullcontext(memory)
    )
    feeds: dict[str, Any] = {}
    state: Any = SimpleNamespace(add_feed=feeds.__setitem__)
    fleet: Any = SimpleNamespace(team=lambda id: SimpleNamespace(credential=None))
    FleetRoutes(state, fleet)
    return feeds["fleet/"]


@aio
async def test_a_lost_server_is_a_notice_at_once_and_not_with_the_next_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory = MemoryConnection("s1")
    gone = memory.fail_reads = FleetUnreachable("the server is gone")
    monkeypatch.setattr(submitter, "RETRY_INTERVAL", 0.01)
    monkeypatch.setattr(submitter, "POLL_INTERVAL", 0.01)
    sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def send(told: Sequence[dict[str, Any]], live: bool) -> None:
        for each in told:
            sent.put_nowait(each)

    tasks = TaskOwner("test")
    tasks.start(feed_of(memory, monkeypatch)("fleet/team.alice/f1", send), "follow")
    try:
        async with asyncio.timeout(TIMEOUT):
            notices = [await sent.get()]
            # The server comes back, and is lost again with the same words.
            memory.fail_reads = None
            notices.append(await sent.get())
            memory.fail_reads = gone
            notices.append(await sent.get())
    finally:
        await tasks.aclose()
    lost, back, again = notices
    assert lost["type"] == "Noticed" and "the server is gone" in lost["title"]
    assert "answers again" in back["title"]
    assert again["title"] == lost["title"] and again["mark"] != lost["mark"]


@aio
async def test_a_fleet_that_cannot_be_reached_is_a_notice_and_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory = MemoryConnection("s1")
    await memory.store(subjects.job_record("f1"), encode(test_submitter.JOB))
    follow = feed_of(memory, monkeypatch)
    failures = [FleetUnreachable("no route"), FleetUnreachable("no route")]

    @asynccontextmanager
    async def connecting(credential: Any) -> AsyncIterator[MemoryConnection]:
        if failures:
            raise failures.pop()
        yield memory

    monkeypatch.setattr("dragoman.fleet.connection.FleetConnection", connecting)
    monkeypatch.setattr(retry, "backoff", lambda failed, rng: 0.0)
    monkeypatch.setattr(submitter, "SETTLE_TIMEOUT", 0.0)
    sent: list[dict[str, Any]] = []

    async def send(told: Sequence[dict[str, Any]], live: bool) -> None:
        sent.extend(told)

    async with asyncio.timeout(TIMEOUT):
        await follow("fleet/team.alice/f1", send)
    assert not failures
    assert [each["title"] for each in sent] == [
        "no route; trying again",
        "4 events of f1 are missing",
    ]


@aio
async def test_a_notice_of_the_delegation_is_shown_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = MemoryConnection("s1")
    await memory.store(subjects.job_record("f1"), encode(test_submitter.JOB))
    batch = EventBatch(first=1, events=({"type": NOTICE, "text": "its changes stay in /tmp/x"},))
    await memory.store(subjects.events("w2", "f1", 2), encode(batch))
    monkeypatch.setattr(submitter, "SETTLE_TIMEOUT", 0.0)
    sent: list[dict[str, Any]] = []

    async def send(told: Sequence[dict[str, Any]], live: bool) -> None:
        sent.extend(told)

    async with asyncio.timeout(TIMEOUT):
        await feed_of(memory, monkeypatch)("fleet/team.alice/f1", send)
    assert sent[1]["type"] == "Noticed" and sent[1]["mark"] == "2:1"
    assert sent[1]["title"] == "w2: its changes stay in /tmp/x"


@pytest.mark.parametrize(("state", "cancelled"), [("running", True), ("done", False)])
@aio
async def test_a_job_that_has_already_ended_is_not_reported_as_cancelled(
    state: Any, cancelled: bool
) -> None:
    memory = MemoryConnection("s1")
    job = structs.replace(test_submitter.JOB, submitter="s1", state=state)
    await memory.store(subjects.job_record("f1"), encode(job))
    fleet: Any = SimpleNamespace(
        team=lambda id: SimpleNamespace(open_connection=memory.as_connection)
    )
    routes = FleetRoutes(SimpleNamespace(add_feed=lambda *feed: None), fleet).routes()  # type: ignore[arg-type]
    transport = httpx2.ASGITransport(app=Starlette(routes=routes))
    async with httpx2.AsyncClient(transport=transport, base_url="http://console") as client:
        answer = await client.post("/api/v1/fleet/team.alice/jobs/f1/cancel", json={})
    assert answer.json() == {"cancelled": cancelled}


@aio
async def test_events_of_a_job_that_cannot_be_read_are_a_notice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory = MemoryConnection("s1")
    await memory.store(subjects.job_record("f1"), encode(test_submitter.JOB))
    await memory.store(subjects.events("w2", "f1", 2), b"nonsense")
    await memory.store(subjects.events("w2", "f1", 2), test_submitter.batch(2, "b"))
    monkeypatch.setattr(submitter, "SETTLE_TIMEOUT", 0.0)
    sent: list[dict[str, Any]] = []

    async def send(told: Sequence[dict[str, Any]], live: bool) -> None:
        sent.extend(told)

    await feed_of(memory, monkeypatch)("fleet/team.alice/f1", send)
    attempt, unreadable, event, missing = sent
    assert attempt["title"] == "attempt 2 on w2" and event["mark"] == "2:2"
    assert unreadable["title"].startswith("events of w2 cannot be read")
    assert (missing["severity"], missing["title"]) == ("warning", "3 events of f1 are missing")
