"""A real server that stalls, callers that give up, and a coordinator that takes long to load."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from nats.aio.msg import Msg

from dragoman.fleet import connection as connection_module
from dragoman.fleet import leadership, subjects
from dragoman.fleet.connection import FleetConnection
from dragoman.fleet.coordinator import Coordinator, CoordinatorOptions, CoordinatorSession
from dragoman.fleet.records import FleetJob, FleetResult, JobSpec, ObjectRef, encode
from dragoman.fleet.server import FleetServer, ServerOptions
from dragoman.fleet.streams import ensure_streams
from dragoman.fleet.submitter import JobReader
from dragoman.fleet.team import Access, coordinator_access
from dragoman.rpc.tasks import TaskOwner
from tests.aio import aio
from tests.fleet.rig import TIMEOUT, Rig

SPEC = JobSpec(
    role="execute",
    prompt="x",
    bundle=ObjectRef(owner="s1", id="x", chunks=1, size=1, key=""),
)


@asynccontextmanager
async def server(rig: Rig) -> AsyncIterator[FleetServer]:
    """A server with the streams of a team, and no coordinator."""
    options = ServerOptions(host="127.0.0.1", port=0, program=rig.server_program)
    async with FleetServer(rig.folder, options) as running:
        async with FleetConnection(access_of(running)) as owner:
            await ensure_streams(owner.client.jetstream(), running.keys.disk_size)
        yield running


def access_of(running: FleetServer) -> Access:
    return coordinator_access(running.keys, running.keys.team(None), int(time.time()))


async def ignore(message: Msg) -> None: ...


@aio
async def test_a_connection_still_answers_after_a_caller_gave_up_a_subscription(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = TaskOwner("test")
    async with server(rig) as running, FleetConnection(access_of(running)) as owner:
        pinged = asyncio.Event()
        flush = owner.client.flush

        async def flush_and_tell(timeout: int) -> None:
            asyncio.get_running_loop().call_soon(pinged.set)
            await flush(timeout)

        monkeypatch.setattr(owner.client, "flush", flush_and_tell)
        os.kill(running.pid, signal.SIGSTOP)
        try:
            subscribing = tasks.start(owner.subscribe("evt.*.f1.*", ignore), "subscribe")
            await pinged.wait()
            subscribing.cancel()
            await asyncio.wait({subscribing})
        finally:
            os.kill(running.pid, signal.SIGCONT)
        assert subscribing.cancelled()
        assert await owner.last(subjects.JOBS, subjects.job_record("f1")) is None
    await tasks.aclose()


@pytest.mark.timeout(120)
@aio
async def test_a_server_that_stalls_when_a_job_is_first_followed_is_waited_for(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "REQUEST_TIMEOUT", 1.0)
    async with server(rig) as running:
        credential = rig.join("submitter", "s1")
        notices: list[str] = []

        def notice(text: str) -> None:
            notices.append(text)
            os.kill(running.pid, signal.SIGCONT)

        async with FleetConnection(access_of(running)) as owner:
            result = FleetResult(ok=True, outcome="ok")
            job = FleetJob(
                id="f1", submitter="s1", spec=SPEC, created_at=0.0, state="done", result=result
            )
            await owner.store(subjects.job_record("f1"), encode(job))
        async with FleetConnection(credential) as submitter, asyncio.timeout(TIMEOUT):
            reader = JobReader(submitter, "f1", submitted=True, on_notice=notice)
            os.kill(running.pid, signal.SIGSTOP)
            try:
                assert [event async for event in reader.follow()] == []
            finally:
                os.kill(running.pid, signal.SIGCONT)
        assert reader.job == job
        assert "Reconnecting" in notices[0] and notices[1:] == ["the fleet's server answers again"]


@pytest.mark.timeout(120)
@aio
async def test_a_coordinator_that_loads_longer_than_its_time_to_live_coordinates(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    load, loads = CoordinatorSession.load, list[CoordinatorSession]()
    tasks = TaskOwner("test")
    async with server(rig) as running, FleetConnection(access_of(running)) as owner:
        renewed, renewals = asyncio.Event(), list[Msg]()

        async def on_renewal(message: Msg) -> None:
            renewals.append(message)
            # It is renewed four times in its time to live.
            if len(renewals) > 6:
                renewed.set()

        async def slow_load(session: CoordinatorSession) -> None:
            loads.append(session)
            await load(session)
            await renewed.wait()

        await owner.subscribe(leadership.KEY, on_renewal)
        monkeypatch.setattr(CoordinatorSession, "load", slow_load)
        recorded = asyncio.Event()

        async def on_record(message: Msg) -> None:
            recorded.set()

        await owner.subscribe(subjects.job_record("f1"), on_record)
        await owner.store(subjects.submission("s1", "f1"), encode(SPEC))
        coordinator = Coordinator(access_of(running), CoordinatorOptions(ttl=2.0))
        tasks.start(coordinator.run(), "coordinator")
        async with asyncio.timeout(TIMEOUT):
            await recorded.wait()
        assert len(loads) == 1
        await tasks.aclose()
