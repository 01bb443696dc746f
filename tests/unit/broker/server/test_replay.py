"""Replayed history on its way to a caller that may not read it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dragoman.broker.server import replay as replays
from dragoman.broker.server.replay import Replay
from dragoman.errors import ConnectionBroken, Overflow
from dragoman.rpc import Connection
from dragoman.rpc.lanes import Flow, Limits
from dragoman.transports.base import HIGH_WATER_SIZE
from tests.aio import aio
from tests.unit.broker.near import Client, called, notice

TEXT = "x" * (HIGH_WATER_SIZE // 4)


@asynccontextmanager
async def replaying() -> AsyncIterator[tuple[Replay, Flow, Client, Connection]]:
    """A replay to a caller, the flow of the peer, and both ends of the caller's connection."""
    async with called() as (caller, client, other):
        flow = Flow(lambda: None, lambda: None, Limits())
        yield Replay(caller, flow), flow, client, other


def fill(replay: Replay, flow: Flow) -> int:
    """Send updates until the peer is no longer read; return their number."""
    caller: Any = replay.caller
    for number in range(1, 1000):
        replay.send(caller.connection, notice("s1", f"{number} {TEXT}").params)
        if flow.paused:
            return number
    raise AssertionError("the peer is read in any case")


async def until_read(flow: Flow) -> None:
    async with asyncio.timeout(5):
        while flow.paused:  # noqa: ASYNC110 - nothing reports it
            await asyncio.sleep(0)


@aio
async def test_the_peer_is_not_read_until_the_caller_has_caught_up() -> None:
    async with replaying() as (replay, flow, client, other):
        other.stream.pause_reading()
        count = fill(replay, flow)
        assert count * len(TEXT) > replays.MAX_UNREAD_SIZE
        heard_at, replay.loaded_at = replay.heard_at, 0.0
        other.stream.resume_reading()
        await until_read(flow)
        await client.until(lambda: len(client.heard) == count)
        assert [int(text.split()[0]) for text in client.heard] == list(range(1, count + 1))
        assert replay.unread is None and replay.caller is not None
        assert replay.heard_at > heard_at and replay.loaded_at > 0.0, "that time does not count"
        other.stream.pause_reading()
        fill(replay, flow)
        replay.end()
        assert not flow.paused and replay.caller is None


@pytest.mark.parametrize("answered", [False, True])
@aio
async def test_a_caller_that_does_not_read_gets_an_error_and_not_the_rest(
    answered: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(replays, "UNREAD_TIMEOUT", 0.01)
    async with replaying() as (replay, flow, _, other):
        caller: Any = replay.caller
        if answered:
            replay.loaded()
        other.stream.pause_reading()
        fill(replay, flow)
        await until_read(flow)
        assert replay.caller is None
        assert "was not read for 0.01 s" in caplog.text
        if answered:
            assert isinstance(caller.connection.failure, ConnectionBroken)
        else:
            assert caller.connection.failure is None
            assert isinstance(replay.unread, Overflow) and "not read" in str(replay.unread)


@aio
async def test_the_peer_is_read_again_when_the_caller_is_gone() -> None:
    async with replaying() as (replay, flow, _, other):
        other.stream.pause_reading()
        fill(replay, flow)
        await other.aclose()
        await until_read(flow)
        assert replay.unread is None


@aio
async def test_silence_counts_only_after_the_load_and_while_the_peer_is_read() -> None:
    async with replaying() as (replay, flow, _, other):
        waiting = other.tasks.start(replay.wait_loaded(), "wait")
        other.stream.pause_reading()
        fill(replay, flow)
        replay.loaded()
        assert replay.loaded_at < math.inf
        await asyncio.sleep(0)
        assert not waiting.done()
        other.stream.resume_reading()
        async with asyncio.timeout(5):
            await waiting
        assert not flow.paused
