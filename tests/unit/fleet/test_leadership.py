"""Leader election: one leader at a time, replaced when its time to live is over."""

from __future__ import annotations

import pytest

from dragoman.errors import FleetConflict, FleetError
from dragoman.fleet.leadership import Leadership
from tests.aio import aio
from tests.unit.fleet.fakes import MemoryConnection


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


def candidate(memory: MemoryConnection, clock: Clock, ttl: float = 0.4) -> Leadership:
    return Leadership(memory.as_connection(), ttl=ttl, clock=clock)


@aio
async def test_the_first_coordinator_leads_until_its_time_to_live_is_over() -> None:
    memory, clock = MemoryConnection(), Clock()
    first, second = candidate(memory, clock), candidate(memory, clock)
    await first.acquire()
    assert first.leads
    started = clock.now
    import asyncio

    loop = asyncio.get_running_loop()
    real = Leadership(memory.as_connection(), ttl=0.1, clock=loop.time)
    await real.acquire()
    assert real.epoch > first.epoch
    with pytest.raises(FleetConflict):
        await first.keep()
    assert second.epoch == 0 and clock.now > started


@aio
async def test_a_leader_that_resigns_is_replaced_at_once() -> None:
    memory, clock = MemoryConnection(), Clock()
    first, second = candidate(memory, clock, 1000.0), candidate(memory, clock, 1000.0)
    await first.acquire()
    await first.release()
    assert not first.leads
    await second.acquire()
    assert second.leads and second.epoch > first.epoch


@aio
async def test_a_leader_that_cannot_renew_in_time_stops_leading() -> None:
    memory, clock = MemoryConnection(), Clock()
    leader = candidate(memory, clock, 10.0)
    await leader.acquire()
    leader.require()
    clock.now += 11
    assert not leader.leads
    with pytest.raises(FleetError, match="in time"):
        leader.require()
