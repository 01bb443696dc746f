"""Keeping a peer alive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dragoman.broker.server import supervisor
from dragoman.broker.server.supervisor import FIRST_DELAY, MAX_DELAY, PeerSupervisor, delay_after
from dragoman.errors import ConnectionEnded, ConnectionLost, DragomanError, SpawnError
from dragoman.rpc.tasks import TaskOwner
from tests.aio import aio


class FakeFar:
    def __init__(self, generation: int) -> None:
        self.generation = generation
        self.died = asyncio.Event()

    async def wait_ended(self) -> ConnectionLost:
        await self.died.wait()
        return ConnectionEnded()


class Watching:
    def __init__(self) -> None:
        self.seen: list[str] = []
        self.far: Any = None
        self.wanted = False
        self.changed = asyncio.Event()
        self.starts_fail = False
        self.starting: Callable[[], None] = lambda: None
        self.open = 0

    def _note(self, what: str) -> None:
        self.seen.append(what)
        self.changed.set()

    def peer_up(self, far: Any) -> None:
        self.far = far
        self._note(f"up {far.generation}")

    def peer_down(self, far: Any, failure: ConnectionLost) -> None:
        self._note(f"down {far.generation}")

    def peer_unstartable(self, error: DragomanError) -> None:
        self._note(f"unstartable: {error}")

    def peer_coming(self) -> None:
        self._note("coming")

    def is_wanted(self) -> bool:
        return self.wanted

    @asynccontextmanager
    async def start(self, generation: int) -> AsyncIterator[Any]:
        self.starting()
        if self.starts_fail:
            raise SpawnError("no")
        self.open += 1
        try:
            yield FakeFar(generation)
        finally:
            self.open -= 1

    async def until(self, *seen: str) -> None:
        async with asyncio.timeout(5):
            while tuple(self.seen[-len(seen) :]) != seen:
                self.changed.clear()
                await self.changed.wait()


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "FIRST_DELAY", 0.001)


def supervised(watching: Any) -> PeerSupervisor:
    return PeerSupervisor(watching.start, watching)


def test_the_waits_double_up_to_a_limit_and_vary() -> None:
    assert delay_after(1, 1.0) == supervisor.FIRST_DELAY
    assert delay_after(2, 1.0) == 2 * delay_after(1, 1.0)
    assert delay_after(1000, 1.0) == MAX_DELAY
    assert delay_after(3, 0.0) == delay_after(3, 1.0) / 2
    assert FIRST_DELAY < MAX_DELAY


@aio
async def test_a_peer_that_dies_is_started_again() -> None:
    watching, tasks = Watching(), TaskOwner("test")
    tasks.start(supervised(watching).run(), "keep")
    await watching.until("up 1")
    watching.far.died.set()
    await watching.until("up 1", "down 1", "up 2")
    await tasks.aclose()
    assert watching.open == 0, "and it goes with its keeper"


@aio
async def test_a_peer_that_keeps_dying_stays_down_until_it_is_needed() -> None:
    watching, tasks = Watching(), TaskOwner("test")
    keeper = supervised(watching)
    tasks.start(keeper.run(), "keep")
    for number in range(1, 5):
        await watching.until(f"up {number}")
        watching.far.died.set()
    await watching.until("down 4")
    for _ in range(20):
        await asyncio.sleep(0)
    assert watching.seen[-1] == "down 4"
    keeper.want()
    await watching.until("down 4", "up 5")
    await tasks.aclose()


@aio
async def test_a_peer_that_cannot_be_started_is_tried_again_when_it_is_needed() -> None:
    watching, tasks = Watching(), TaskOwner("test")
    watching.starts_fail = True
    keeper = supervised(watching)
    tasks.start(keeper.run(), "keep")
    await watching.until("unstartable: no")
    assert keeper.starts == 1
    keeper.want()
    await watching.until("unstartable: no", "coming", "unstartable: no")
    watching.starts_fail = False
    keeper.want()
    await watching.until("coming", "up 3")
    await tasks.aclose()


@aio
async def test_a_peer_that_callers_waited_for_is_not_started_again_after_it_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervisor, "FIRST_DELAY", 0.0)
    watching, tasks = Watching(), TaskOwner("test")
    watching.starts_fail = True
    keeper = supervised(watching)
    watching.starting = keeper.want
    tasks.start(keeper.run(), "keep")
    await watching.until("unstartable: no")
    for _ in range(20):
        await asyncio.sleep(0)
    assert keeper.starts == 1
    await tasks.aclose()
