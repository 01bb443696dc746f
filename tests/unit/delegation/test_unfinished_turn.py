"""A peer that does not stop when its turn is cancelled is stopped, or reported."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from dragoman.broker.client import brokers as client_list
from dragoman.delegation.unfinished_turn import unrest
from dragoman.errors import BrokerUnavailable, ConnectionEnded
from dragoman.paths import find_paths
from dragoman.rpc import tasks
from dragoman.runs.adapter_run import AdapterPeer
from tests.aio import aio


def session(id: str, *, quarantined: bool = False, running: str | None = None) -> dict[str, Any]:
    return {"sessionId": id, "quarantined": quarantined, "running": running, "queued": 0}


def behind_broker(
    *sessions: dict[str, Any], callers: int = 0, dead: bool = False, other: bool = False
) -> Any:
    async def call(method: str, params: dict[str, Any]) -> bytes:
        if dead:
            raise ConnectionEnded
        if other:
            return b'{"sessions": {}}'
        return msgspec.json.encode({"callers": callers, "sessions": sessions})

    connection = SimpleNamespace(call=call)
    client = SimpleNamespace(greeting=object(), endpoint="alpha-1", connection=connection)
    return SimpleNamespace(client=client)


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The brokers that were stopped."""
    names: list[str] = []

    async def stop(record: Any) -> bool:
        names.append(record.name)
        return True

    def there(paths: object) -> Sequence[Any]:
        return [SimpleNamespace(name="beta-1"), SimpleNamespace(name="alpha-1")]

    monkeypatch.setattr(client_list, "list_brokers", there)
    monkeypatch.setattr(client_list, "stop_broker", stop)
    return names


PATHS = find_paths({"HOME": str(Path("/h"))})


@pytest.mark.parametrize(("deaf", "told"), [(0, None), (5, "it did not stop when")])
@aio
async def test_an_adapter_that_does_not_end_is_reported(
    deaf: int, told: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "CLOSE_TIMEOUT", 0.05)
    released = asyncio.Event()

    async def work() -> None:
        nonlocal deaf
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                deaf -= 1
                if deaf < 0:
                    raise

    peer = AdapterPeer.__new__(AdapterPeer)
    peer.tasks = tasks.TaskOwner("the adapter")
    running = peer.tasks.start(work(), "dispatch")
    why = await unrest(peer, "s", PATHS)
    assert why is told if told is None else told in str(why)
    released.set()
    await asyncio.wait([running])


@aio
async def test_our_own_child_is_at_rest_when_it_is_gone(stopped: list[str]) -> None:
    assert await unrest(SimpleNamespace(client=object()), "s", PATHS) is None  # type: ignore[arg-type]
    assert stopped == []


@aio
async def test_a_peer_that_stopped_stays(stopped: list[str]) -> None:
    assert await unrest(behind_broker(session("s")), "s", PATHS) is None
    assert await unrest(behind_broker(session("other", quarantined=True)), "s", PATHS) is None
    assert stopped == []


@aio
async def test_a_peer_that_does_not_stop_is_ended_if_it_has_no_other_user(
    stopped: list[str],
) -> None:
    assert await unrest(behind_broker(session("s", quarantined=True)), "s", PATHS) is None
    assert stopped == ["alpha-1"]


@aio
async def test_a_peer_whose_broker_cannot_be_stopped_may_still_be_working(
    stopped: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(record: object) -> bool:
        raise BrokerUnavailable("it did not end")

    monkeypatch.setattr(client_list, "stop_broker", fail)
    why = await unrest(behind_broker(session("s", quarantined=True)), "s", PATHS)
    assert "may still be working, and its broker cannot be stopped" in str(why)


@aio
async def test_a_peer_that_others_use_is_left_and_may_still_be_working(stopped: list[str]) -> None:
    mine = session("s", quarantined=True)
    for peer in (
        behind_broker(mine, callers=1),
        behind_broker(mine, session("other", running="j-9")),
    ):
        assert "may still be working" in str(await unrest(peer, "s", PATHS))
    assert "it is unknown" in str(await unrest(behind_broker(dead=True), "s", PATHS))
    assert stopped == []


@aio
async def test_a_status_that_cannot_be_read_says_nothing_about_the_turn(
    stopped: list[str],
) -> None:
    told = await unrest(behind_broker(other=True), "s-1", PATHS)
    assert told is not None and "it is unknown whether it stopped: invalid response" in told
    assert stopped == []
