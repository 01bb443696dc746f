"""A peer is ended only if it owes something, says nothing at all, and does not answer a probe."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dragoman.broker.server.liveness import Liveness
from dragoman.errors import ConnectionEnded, ConnectionLost, PeerUnresponsive
from dragoman.rpc.tasks import TaskOwner
from tests.aio import aio

QUICK: dict[str, float] = {
    "probe_timeout": 0.02,
    "stopped_timeout": 0.01,
    "first_look": 0.001,
    "look_interval": 0.001,
}


class FakeFar:
    """A peer of which the test says how it fares."""

    def __init__(self, *, answers: bool = False, pings: bool = True) -> None:
        self.heard = 7
        self.is_stopped = False
        self.is_held = False
        self.failure: ConnectionLost | None = None
        self.pings = 0
        self.over = asyncio.Event()
        self._answers = answers
        self._pings = pings

    def ping(self) -> bool:
        self.pings += 1
        self.heard += self._answers
        return self._pings

    async def end(self, why: PeerUnresponsive) -> None:
        self.failure = why
        self.over.set()


class Watched:
    """An owner of tasks that knows those that were started."""

    def __init__(self, owner: TaskOwner) -> None:
        self._owner = owner
        self.started: list[asyncio.Task[Any]] = []

    def start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = self._owner.start(work, name)
        self.started.append(task)
        return task


@asynccontextmanager
async def watching(*, working: bool = False) -> AsyncIterator[tuple[Liveness, Watched]]:
    owner = TaskOwner("test")
    tasks: Any = Watched(owner)
    try:
        yield Liveness(tasks, is_working=lambda far: working, **QUICK), tasks
    finally:
        await owner.aclose()


async def judged(far: Any, *, window: float = 0.0, working: bool = False) -> bool:
    """Whether a peer that is doubted is ended."""
    async with watching(working=working) as (liveness, tasks), asyncio.timeout(5):
        liveness.doubt(far, "a cancel", heard=7, window=window)
        await asyncio.gather(*tasks.started)
        return bool(far.over.is_set())


@aio
async def test_a_peer_that_answers_no_probe_is_ended() -> None:
    far = FakeFar()
    assert await judged(far)
    assert isinstance(far.failure, PeerUnresponsive)
    assert "no answer to a cancel" in str(far.failure)
    assert "is being restarted" in str(far.failure)


@aio
async def test_a_peer_that_answers_the_probe_is_left_alone() -> None:
    assert not await judged(FakeFar(answers=True))


@aio
async def test_a_peer_that_is_stopped_is_ended_whatever_it_speaks() -> None:
    far = FakeFar(pings=False)
    far.is_stopped = True
    assert await judged(far, window=60.0)
    assert "stopped by a signal" in str(far.failure)


@aio
async def test_a_peer_that_works_on_a_turn_is_ended_only_if_it_is_stopped() -> None:
    assert not await judged(FakeFar(), working=True)
    stopped = FakeFar()
    stopped.is_stopped = True
    assert await judged(stopped, working=True)


@pytest.mark.parametrize("how", ["was heard", "gone", "held", "no probe in its dialect"])
@aio
async def test_silence_alone_proves_nothing(how: str) -> None:
    far = FakeFar(pings=how != "no probe in its dialect")
    if how == "was heard":
        far.heard = 8
    elif how == "gone":
        far.failure = ConnectionEnded()
    elif how == "held":
        far.is_held = True
    assert not await judged(far)


@aio
async def test_an_answer_that_is_overdue_is_a_reason_for_one_probe() -> None:
    async with watching() as (liveness, tasks), asyncio.timeout(5):
        far: Any = FakeFar()
        liveness.expect(far, "session/new", 0.03)
        liveness.expect(far, "session/new", 0.03)
        await far.over.wait()
        await asyncio.gather(*tasks.started)
        assert (far.pings, len(tasks.started)) == (1, 1)


@aio
async def test_a_stopped_peer_is_found_long_before_its_answer_is_due() -> None:
    async with watching() as (liveness, _), asyncio.timeout(5):
        far: Any = FakeFar()
        far.is_stopped = True
        liveness.expect(far, "session/new", 3600.0)
        await far.over.wait()


@aio
async def test_what_was_answered_or_has_no_limit_is_not_doubted() -> None:
    async with watching() as (liveness, tasks), asyncio.timeout(5):
        far: Any = FakeFar()
        liveness.expect(far, "session/new", 0.002)()
        liveness.expect(far, "authenticate", None)()
        other: Any = FakeFar()
        liveness.expect(other, "session/new", 0.03)
        # Later than the first would have been.
        await other.over.wait()
        assert (far.pings, len(tasks.started)) == (0, 1)
