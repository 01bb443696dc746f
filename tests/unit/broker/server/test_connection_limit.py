"""Who may stay when too many connect to a broker."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dragoman.broker.error_codec import BUSY
from dragoman.broker.server import connection_limit
from dragoman.errors import RemoteError
from tests.aio import aio
from tests.unit.broker.near import NearAgent, standing


def guest(*, greeted: bool = False) -> Any:
    """A caller, as far as it matters here."""
    return SimpleNamespace(greeted=greeted)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such limit")
@pytest.mark.parametrize(
    ("allowed", "room"), [(20, 32), (256, 96), (1024, 480), (10**6, 1000), (-1, 1000)]
)
def test_the_room_follows_from_the_descriptors(
    monkeypatch: pytest.MonkeyPatch, allowed: int, room: int
) -> None:
    import resource

    monkeypatch.setattr(resource, "getrlimit", lambda which: (allowed, allowed))
    assert connection_limit.most_connections() == room


def test_the_first_that_has_not_greeted_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limit, "most_connections", lambda: 40)
    guests = [guest(greeted=number != 3) for number in range(39)]
    guests.append(guest())
    assert connection_limit.one_too_many(guests) is None
    guests.append(guest())
    assert connection_limit.one_too_many(guests) is guests[3]
    assert connection_limit.one_too_many([guest(greeted=True)] * 50) is None


def test_places_are_kept_for_those_who_have_just_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limit, "most_connections", lambda: 40)
    greeted = 40 - connection_limit.SPARE
    assert not connection_limit.is_full([guest(greeted=True)] * (greeted - 1) + [guest()] * 99)
    assert connection_limit.is_full([guest(greeted=True)] * greeted)


@aio
async def test_silent_connections_make_room_for_callers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_limit, "most_connections", lambda: connection_limit.MIN_CALLERS)
    async with standing(tmp_path, NearAgent()) as at, AsyncExitStack() as stack:
        caller = await stack.enter_async_context(at.caller())
        silent = [
            await stack.enter_async_context(at.caller(greet=False))
            for _ in range(connection_limit.MIN_CALLERS + 2)
        ]
        async with asyncio.timeout(5):
            for each in silent[:3]:
                await each.connection.wait_ended()
        assert silent[3].connection.failure is None
        assert await caller.call("_dragoman/ping") == {}


@aio
async def test_a_caller_over_the_limit_learns_that_the_broker_is_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_limit, "most_connections", lambda: connection_limit.SPARE + 1)
    async with standing(tmp_path, NearAgent()) as at, at.caller(), at.caller(greet=False) as late:
        assert await late.call("_dragoman/ping") == {}
        with pytest.raises(RemoteError) as refused:
            await late.greet()
        assert refused.value.code == BUSY
        assert await late.call("_dragoman/ping") == {}
