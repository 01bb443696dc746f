"""A consumer that is slower than the other side: held back, never deadlocked, bounded in memory."""

from __future__ import annotations

import asyncio
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw, Struct

from dragoman import connect
from dragoman.client.acp import client as client_module
from dragoman.errors import Overflow
from dragoman.rpc import Connection, ConnectionSettings, End, Lane, Limits, Router
from dragoman.rpc import outbox as outbox_module
from dragoman.rpc.lanes import ITEM_SIZE
from dragoman.testing.scripted import Expect, Notify, Reply
from dragoman.transports.base import HIGH_WATER_SIZE
from dragoman.transports.memory import memory_pair
from dragoman.wire.messages import Notification, Request
from dragoman.wire.peer import Noise, Stray
from tests.aio import aio
from tests.integration.acp_programs import TIMEOUT, scripted
from tests.unit.rpc.other_side import Witness, soon, talk, turns, until

HOUR = 3600.0
SMALL = 50 * (ITEM_SIZE + 100)


class Update(Struct):
    session: str
    n: int


def limits(
    *, stall: float = HOUR, overflow: float = HOUR, hard: int = 100 * SMALL
) -> ConnectionSettings:
    return ConnectionSettings(
        limits=Limits(SMALL, hard, stall_interval=stall, overflow_timeout=overflow),
    )


async def flood(agent: Connection, count: int, session: str = "s") -> None:
    for n in range(count):
        await agent.notify("update", Update(session, n))


@aio
async def test_a_slow_handler_holds_the_sender_back_and_loses_nothing() -> None:
    gate = asyncio.Event()
    seen: list[int] = []

    async def handle(update: Update) -> None:
        await gate.wait()
        seen.append(update.n)

    router = Router()
    router.on_notification("update", handle, Update)
    ours, theirs = memory_pair()
    async with (
        Connection(theirs, End.AGENT) as agent,
        Connection(ours, End.CLIENT, router, settings=limits()) as client,
    ):
        flooding = agent.tasks.start(flood(agent, 20_000), "flood")
        await until(lambda: client.flow.paused and theirs.unsent_size > 0)
        await turns(50)
        assert not flooding.done()
        # One read more than the limit may have arrived.
        assert client.flow.queued < SMALL + 2000 * (ITEM_SIZE + 100)
        gate.set()
        await soon(flooding)
        await until(lambda: len(seen) == 20_000)
        assert not client.flow.paused
    assert seen == list(range(20_000))


@aio
async def test_a_handler_that_calls_back_on_its_connection_does_not_deadlock() -> None:
    """The answer it waits for stands behind more updates than may wait."""
    seen: list[int] = []
    client_router = Router()

    async def handle(update: Update) -> None:
        if update.n % 100 == 0:
            await client.call("ping", timeout=30.0)
        seen.append(update.n)

    client_router.on_notification("update", handle, Update)
    agent_router = Router()
    agent_router.on_request("ping", lambda raw: None)
    ours, theirs = memory_pair()
    async with (
        Connection(theirs, End.AGENT, agent_router) as agent,
        Connection(ours, End.CLIENT, client_router, settings=limits()) as client,
    ):
        await soon(flood(agent, 2000))
        await until(lambda: len(seen) == 2000)
    assert seen == list(range(2000))


@aio
async def test_a_handler_that_calls_on_another_connection_stays_held_back() -> None:
    """A bridge between two peers must not read from the one what the other does not take."""
    router = Router()

    async def hand_on(update: Update) -> None:
        await elsewhere.call("update", update)

    router.on_notification("update", hand_on, Update)
    ours, theirs = memory_pair()
    far, silent = memory_pair()
    async with (
        Connection(theirs, End.AGENT) as agent,
        Connection(far, End.CLIENT) as elsewhere,
        Connection(ours, End.CLIENT, router, settings=limits()) as client,
    ):
        agent.tasks.start(flood(agent, 20_000), "flood")
        await until(lambda: client.flow.paused)
        await turns(50)
        assert client.flow.paused
        assert elsewhere.flow.calling == 0
        assert client.flow.queued < SMALL + 2000 * (ITEM_SIZE + 100)
    await silent.aclose()


@aio
async def test_a_consumer_stuck_behind_its_own_connection_goes_on_after_the_stall_interval() -> (
    None
):
    """It waits for an event that a later message on the same connection brings."""
    come = asyncio.Event()
    seen: list[int] = []
    router = Router()

    async def handle(update: Update) -> None:
        await come.wait()
        seen.append(update.n)

    router.on_notification("update", handle, Update)
    router.on_notification("go on", lambda raw: come.set())
    ours, theirs = memory_pair()
    settings = limits(stall=0.01)
    async with (
        Connection(theirs, End.AGENT) as agent,
        Connection(ours, End.CLIENT, router, settings=settings),
    ):
        await soon(flood(agent, 2000))
        await agent.notify("go on")
        await until(lambda: len(seen) == 2000)
    assert seen == list(range(2000))


class Lanes:
    """Handlers with a lane for each session and nothing between the pump and the consumer."""

    def __init__(self) -> None:
        self.lanes: dict[str, Lane[int]] = {}

    def attach(self, connection: Connection) -> None:
        self.lanes = {name: Lane(connection.flow) for name in ("stuck", "quick")}

    def request(self, request: Request) -> object:
        return None

    def notification(self, notification: Notification) -> None:
        session, n = (b"stuck", 0) if b"stuck" in notification.line else (b"quick", 1)
        self.lanes[session.decode()].put(n, len(notification.line))

    def noise(self, noise: Noise | Stray) -> None:
        raise AssertionError(noise)


@aio
async def test_a_consumer_that_never_reads_is_cut_and_the_others_go_on() -> None:
    handlers = Lanes()
    ours, theirs = memory_pair()
    settings = limits(stall=0.01, overflow=0.02, hard=2 * SMALL)
    taken = 0
    async with (
        Connection(theirs, End.AGENT) as agent,
        Connection(ours, End.CLIENT, handlers, settings=settings) as client,
    ):
        stuck, quick = handlers.lanes["stuck"], handlers.lanes["quick"]

        async def consume() -> None:
            nonlocal taken
            while True:
                await quick.get()
                taken += 1

        consuming = client.tasks.start(consume(), "consume")
        for _ in range(20):
            await soon(flood(agent, 200, "stuck"))
            await soon(flood(agent, 200, "quick"))
        await until(lambda: taken == 20 * 200)
        assert stuck.ended is not None and quick.ended is None
        held = len(stuck)
        assert 0 < held < 4000
        for _ in range(held):
            await stuck.get()
        with pytest.raises(Overflow):
            await stuck.get()
        assert client.failure is None
        assert not consuming.done()
        assert client.flow.queued == 0


@aio
async def test_a_turn_that_is_cut_for_its_slow_reader_may_have_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = limits(stall=0.01, overflow=0.02, hard=2 * SMALL)
    monkeypatch.setattr(client_module, "connection_settings", lambda max_line_size: settings)
    update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "x"}}
    agent = scripted(
        Expect("session/prompt"),
        Notify("session/update", {"sessionId": "s1", "update": update}, times=2000),
        Reply({"stopReason": "end_turn"}),
    )
    async with (
        asyncio.timeout(TIMEOUT),
        connect(agent, workspace=tmp_path) as peer,
        peer.session() as session,
        session.prompt("go") as turn,
    ):
        await until(lambda: turn._lane.ended is not None)
        with pytest.raises(Overflow) as caught:
            await turn.wait()
    assert caught.value.may_have_run


@aio
async def test_memory_stays_bounded_however_much_is_sent_to_a_slow_handler() -> None:
    count = 50_000
    handled = 0
    done = asyncio.Event()

    async def handle(update: Update) -> None:
        nonlocal handled
        await asyncio.sleep(0)
        handled += 1
        if handled == count:
            done.set()

    router = Router()
    router.on_notification("update", handle, Update)
    ours, theirs = memory_pair()
    tracemalloc.start()
    try:
        async with (
            Connection(theirs, End.AGENT) as agent,
            Connection(ours, End.CLIENT, router) as client,
        ):
            flooding = agent.tasks.start(flood(agent, count), "flood")
            await until(lambda: client.flow.paused)
            assert not flooding.done()
            async with asyncio.timeout(50.0):
                await done.wait()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 * 1024 * 1024


@pytest.mark.parametrize("over", ["soft", "hard"])
@aio
async def test_the_end_of_a_connection_over_its_limits_leaves_no_timer(over: str) -> None:
    router = Router()

    async def stuck(raw: Raw) -> None:
        await asyncio.Event().wait()

    router.on_notification("update", stuck)
    ours, theirs = memory_pair()
    settings = limits(hard=100 * SMALL if over == "soft" else SMALL + 1)
    async with (
        Connection(theirs, End.AGENT) as agent,
        Connection(ours, End.CLIENT, router, settings=settings) as client,
    ):
        agent.tasks.start(flood(agent, 5000), "flood")
        await until(lambda: client.flow.paused)
    assert client.flow._timer is None
    assert len(client.tasks) == 0


@aio
async def test_many_senders_at_once_do_not_overflow_a_reader_that_keeps_reading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outbox_module, "MAX_UNSENT_SIZE", 4 * HIGH_WATER_SIZE)
    answered: list[Any] = []

    async def large(request: Request) -> str:
        await asyncio.sleep(0)
        return "x" * HIGH_WATER_SIZE

    async with talk(Witness(large)) as (connection, other):
        other.say(*({"id": n, "method": "large"} for n in range(20)))
        await soon(
            asyncio.gather(*(connection.notify("tell", "x" * HIGH_WATER_SIZE) for _ in range(20)))
        )
        await until(lambda: len(other.heard) == 40)
        assert connection.failure is None
        answered = [message["id"] for message in other.heard if "id" in message]
    assert sorted(answered) == list(range(20))
