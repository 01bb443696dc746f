"""A broker that hangs is found out by a ping on a connection of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dragoman.broker.client import liveness
from dragoman.errors import BrokerError, ConnectionBroken
from dragoman.rpc import Connection, End, Router
from dragoman.transports import listen_unix, memory_pair
from dragoman.transports.base import Stream
from tests.aio import aio

SHORT = 0.05


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness, "PROBE_INTERVAL", SHORT)
    monkeypatch.setattr(liveness, "PROBE_TIMEOUT", SHORT)


@asynccontextmanager
async def broker(tmp_path: Path, *, answers: bool) -> AsyncIterator[str]:
    """Something that takes connections, and answers a ping or does not."""

    async def ping(params: Any) -> dict[str, Any]:
        if not answers:
            await asyncio.Event().wait()
        return {}

    async def serve(stream: Stream) -> None:
        router = Router()
        router.on_request("_dragoman/ping", ping)
        async with Connection(stream, End.AGENT, router) as connection:
            await connection.wait_ended()

    address = str(tmp_path / "b.sock")
    listener = await listen_unix(address, serve)
    try:
        yield address
    finally:
        await listener.aclose()


@aio
async def test_a_connection_to_a_hung_broker_fails_while_a_call_waits(tmp_path: Path) -> None:
    # Nothing reads the other end, so that a call is never answered.
    ours, theirs = memory_pair()
    async with (
        broker(tmp_path, answers=False) as address,
        Connection(ours, End.CLIENT) as connection,
    ):
        liveness.watch(connection, address, "tool-1")
        connection.begin("anything", {}, settle=lambda result, error: None)
        failure = await connection.wait_ended()
        await theirs.aclose()
    assert isinstance(failure, ConnectionBroken)
    assert "`dragoman broker stop tool-1` ends it" in str(failure)


@pytest.mark.parametrize(("answers", "waits"), [(True, True), (False, False)])
@aio
async def test_a_broker_that_answers_or_owes_nothing_is_left_alone(
    tmp_path: Path, answers: bool, waits: bool
) -> None:
    # Nothing reads the other end, so that a call is never answered.
    ours, theirs = memory_pair()
    async with (
        broker(tmp_path, answers=answers) as address,
        Connection(ours, End.CLIENT) as connection,
    ):
        liveness.watch(connection, address, "tool-1")
        if waits:
            connection.begin("anything", {}, settle=lambda result, error: None)
        await asyncio.sleep(4 * SHORT)
        assert connection.failure is None
        await theirs.aclose()


@aio
async def test_a_broker_that_is_gone_is_not_hung(tmp_path: Path) -> None:
    async with broker(tmp_path, answers=False) as address:
        assert await liveness.is_hung(address)
        with pytest.raises(BrokerError, match="does not answer"):
            await liveness.require_answer(address, "tool-1")
        await liveness.wait_hung(address)
    await liveness.require_answer(address, "tool-1")
