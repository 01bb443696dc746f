"""Idle brokers stay for a while, and not too many of them."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman.broker.records import BrokerRecord
from dragoman.broker.server.idle import GREETING_TIME, IdleClock, trim
from dragoman.config.safe_files import write_whole
from dragoman.rpc import Connection, End, Router
from dragoman.transports.base import Stream
from dragoman.transports.listener import listen_unix
from dragoman.transports.process.identity import ProcessIdentity, own_identity
from tests.aio import aio

OWN = 1
"""No process of a test: whoever trims leaves out its own record."""


@aio
async def test_a_clock_runs_while_its_broker_is_idle() -> None:
    over = asyncio.Event()
    clock = IdleClock(0.01, over.set)
    assert clock.idle_for is None
    clock.start()
    since = clock._since
    clock.start()
    assert clock._since == since and clock.idle_for is not None
    clock.stop()
    assert clock.idle_for is None
    assert clock._timer is None and not over.is_set()
    clock.start()
    async with asyncio.timeout(5):
        await over.wait()


@aio
async def test_a_new_time_counts_from_when_it_became_idle_but_leaves_its_caller_some() -> None:
    clock = IdleClock(600.0, lambda: None)
    clock.start()
    assert clock._since is not None and clock._timer is not None
    clock.keep_for(60.0)
    assert clock._timer.when() == clock._since + 60.0
    clock.keep_for(0.0)
    assert clock._timer.when() >= clock._since + GREETING_TIME
    clock.stop()


@aio
async def test_a_broker_that_works_after_a_short_time_was_set_ends_at_once_when_idle_again() -> (
    None
):
    over = asyncio.Event()
    clock = IdleClock(600.0, over.set)
    clock.start()
    clock.keep_for(0.0)
    clock.stop()
    clock.start()
    async with asyncio.timeout(5):
        await over.wait()


class Fake:
    """A broker as far as its neighbours see it."""

    def __init__(
        self, folder: Path, name: str, *, idle_for: Any = None, stops: bool = True
    ) -> None:
        self.folder = folder
        self.name = name
        self.idle_for = idle_for
        self.stops = stops
        self.asked: list[str] = []

    @property
    def address(self) -> str:
        return str(self.folder / f"{self.name}.sock")

    def write(self, broker: ProcessIdentity | None = None, *, draining: bool = False) -> None:
        record = BrokerRecord(
            name=self.name,
            address=self.address,
            peer=self.name,
            workspace="/",
            version="1",
            broker=broker or own_identity(),
            owner="",
            started_at=0.0,
            draining=draining,
        )
        write_whole(self.folder / f"{self.name}.json", msgspec.json.encode(record))

    async def serve(self, stream: Stream) -> None:
        router = Router()
        router.on_request("_dragoman/status", self._status, dict)
        router.on_request("_dragoman/stop", self._stop, dict)
        async with Connection(stream, End.AGENT, router) as connection:
            await connection.wait_ended()

    def _status(self, params: dict[str, Any]) -> Any:
        self.asked.append("status")
        return {"idleFor": self.idle_for}

    def _stop(self, params: dict[str, Any]) -> Any:
        assert params == {"drain": True, "ifIdle": True}
        self.asked.append("stop")
        return {"stopping": self.stops}


async def listening(fakes: list[Fake], stack: AsyncExitStack) -> None:
    for fake in fakes:
        fake.write()
        await stack.enter_async_context(await listen_unix(fake.address, fake.serve))


@aio
async def test_those_that_were_idle_for_longest_are_asked_to_stop(tmp_path: Path) -> None:
    fakes = [
        Fake(tmp_path, "a", idle_for=30),
        Fake(tmp_path, "b", idle_for=20.5),
        Fake(tmp_path, "c", idle_for=10),
        Fake(tmp_path, "busy", idle_for=None),
        Fake(tmp_path, "odd", idle_for=True),
    ]
    async with AsyncExitStack() as stack:
        await listening(fakes, stack)
        # With the one that looks there are four idle ones, and two may stay.
        assert await trim(tmp_path, own_pid=OWN, max_idle=2) == ["b", "a"]
        asked = {fake.name: fake.asked[-1] for fake in fakes}
    assert asked == {"a": "stop", "b": "stop", "c": "status", "busy": "status", "odd": "status"}


@aio
async def test_one_that_a_caller_has_found_meanwhile_goes_on(tmp_path: Path) -> None:
    fakes = [Fake(tmp_path, "a", idle_for=3, stops=False)]
    async with AsyncExitStack() as stack:
        await listening(fakes, stack)
        assert await trim(tmp_path, own_pid=OWN, max_idle=1) == []
    assert fakes[0].asked == ["status", "stop"]


@aio
async def test_no_broker_is_asked_while_there_are_few(tmp_path: Path) -> None:
    fakes = [Fake(tmp_path, "a", idle_for=3)]
    async with AsyncExitStack() as stack:
        await listening(fakes, stack)
        assert await trim(tmp_path, own_pid=OWN, max_idle=2) == []
        # And its own record is not another broker.
        assert await trim(tmp_path, own_pid=os.getpid(), max_idle=0) == []
    assert fakes[0].asked == []


@aio
async def test_the_dead_the_draining_and_the_deaf_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = own_identity()
    dead = ProcessIdentity(pid=own.pid, started="1", boot=own.boot, namespace=own.namespace)
    Fake(tmp_path, "dead").write(dead)
    Fake(tmp_path, "draining").write(draining=True)
    Fake(tmp_path, "deaf").write()
    assert await trim(tmp_path, own_pid=OWN, max_idle=0) == []
