"""The WebSocket of the console, with a real client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection

from dragoman.console import access, event_socket, retry
from dragoman.console.event_socket import MAX_FEEDS
from dragoman.console.live_state import LiveState
from dragoman.console.session_feed import SessionFeed
from dragoman.errors import StoreBusy, UsageError
from dragoman.paths import Paths
from dragoman.store import Redactor, Store
from dragoman.store.store import store_path
from tests.aio import aio
from tests.unit.console.broker_place import broker, submit
from tests.unit.console.place import TIMEOUT, console, short_paths, told
from tests.unit.store.stores import session


@pytest.fixture
def paths() -> Iterator[Paths]:
    with short_paths() as paths:
        yield paths


async def follow(socket: ClientConnection, key: str, after: str | None = None) -> None:
    await socket.send(json.dumps({"type": "follow", "session": key, "after": after}))


async def events(socket: ClientConnection, until: str) -> list[dict[str, Any]]:
    """The events up to the first one of a type, without `CommandsChanged`."""
    found: list[dict[str, Any]] = []
    async with asyncio.timeout(TIMEOUT):
        while not any(event["type"] == until for event in found):
            found += (await told(socket, "events"))["events"]
    return [event for event in found if event["type"] != "CommandsChanged"]


async def key_of(socket: ClientConnection) -> str:
    return str((await told(socket, "work"))["item"]["session"])


@aio
async def test_the_snapshot_comes_first_and_changes_follow(paths: Paths) -> None:
    async with broker(paths) as (at, _), console(paths) as place, place.browser() as client:
        async with place.socket(client) as socket, at.caller() as mine:
            first = await told(socket, "snapshot")
            assert first["questions"] == [] and first["work"] == [] and first["rights"] == "act"
            await submit(mine, await mine.new(at.folder), "ask edit")
            question = (await told(socket, "question"))["question"]
            assert question["type"] == "permission" and question["title"] == "edit"
            answer = await client.post(
                f"/api/v1/questions/{question['id']}/answer",
                json={"digest": question["digest"], "option": "yes"},
            )
            assert answer.json() == {"answered": True}
            assert (await told(socket, "settled"))["id"] == question["id"]
            again = await client.post(
                f"/api/v1/questions/{question['id']}/answer",
                json={"digest": question["digest"], "option": "no"},
            )
            assert again.status_code == 409


@aio
async def test_a_session_is_followed_from_its_beginning_or_after_a_cursor(
    paths: Paths,
) -> None:
    async with broker(paths) as (at, _), console(paths) as place, place.browser() as client:
        async with at.caller() as mine:
            session = await mine.new(at.folder)
            await submit(mine, session, "count 3")
            await mine.call("_dragoman/result", {"job": "j-1", "wait": True})
            async with place.socket(client) as socket:
                work = (await told(socket, "snapshot"))["work"]
                key = work[0]["session"] if work else await key_of(socket)
                await follow(socket, key)
                found = await events(socket, "TurnEnded")
            assert [event["type"] for event in found] == [
                "TurnStarted",
                *["MessageDelta"] * 3,
                "TurnEnded",
            ]
            assert found[0]["mark"] == "j-1:TurnStarted"
            assert found[0]["prompt"] == [{"type": "text", "text": "count 3"}]
            async with place.socket(client) as socket:
                await follow(socket, key, found[2]["cursor"])
                rest = await events(socket, "TurnEnded")
                assert [event.get("cursor") for event in rest] == [found[3]["cursor"], None]
                # New events follow, after their prompt.
                await submit(mine, session, "count 2", "j-2")
                live = await events(socket, "TurnEnded")
                assert [event["type"] for event in live] == [
                    "TurnStarted",
                    *["MessageDelta"] * 2,
                    "TurnEnded",
                ]


@aio
async def test_events_name_the_request_that_they_are_for(paths: Paths) -> None:
    with Store.open(store_path(paths.state), Redactor(())) as store:
        store.create_session(one := session())
    async with console(paths) as place, place.browser() as client:
        async with place.socket(client) as socket:
            for feed in (1, 2):
                command = {"type": "follow", "session": one.key, "feed": feed}
                await socket.send(json.dumps(command))
                assert (await told(socket, "events"))["feed"] == feed
            await follow(socket, one.key)
            assert "feed" not in await told(socket, "events")


@aio
async def test_a_browser_that_stops_reading_does_not_slow_down_the_agent(paths: Paths) -> None:
    async with broker(paths) as (at, _), console(paths) as place, place.browser() as client:
        async with at.caller() as mine:
            session = await mine.new(at.folder)
            await submit(mine, session, "count 1")
            await mine.call("_dragoman/result", {"job": "j-1", "wait": True})
            async with place.socket(client) as socket:
                work = (await told(socket, "snapshot"))["work"]
                await follow(socket, work[0]["session"] if work else await key_of(socket))
                await events(socket, "TurnEnded")
                # From here on nothing is read, and far more is sent than any buffer can hold.
                socket.transport.pause_reading()
                await submit(mine, session, "count 3000 8000", "j-2")
                await mine.call("_dragoman/result", {"job": "j-2", "wait": True})
                socket.transport.resume_reading()
                found = await events(socket, "TurnEnded")
                assert sum(event["type"] == "MessageDelta" for event in found) == 3000


@aio
async def test_a_quiet_connection_is_said_to_be_alive(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_socket, "ALIVE_INTERVAL", 0.01)
    async with console(paths) as place, place.browser() as client:
        async with place.socket(client) as socket:
            for _ in range(3):
                await told(socket, "alive")


@aio
async def test_revoking_a_token_closes_its_connections_and_no_others(paths: Paths) -> None:
    async with console(paths) as place, place.browser() as one, place.browser() as two:
        async with place.socket(one) as gone, place.socket(two) as stays:
            await told(gone, "snapshot")
            await told(stays, "snapshot")
            place.access.revoke((await one.get("/api/v1/me")).json()["id"])
            async with asyncio.timeout(TIMEOUT):
                await gone.wait_closed()
            assert gone.close_code == 1008
            # A session that does not exist does not count as followed.
            for number in range(MAX_FEEDS + 1):
                await follow(stays, f"s-none-{number}")
                assert "no session" in (await told(stays, "error"))["message"]


@aio
async def test_a_connection_ends_when_its_token_expires(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "TOKEN_TIMEOUT", 1.0)
    async with console(paths) as place, place.browser() as client:
        async with place.socket(client) as socket:
            await told(socket, "snapshot")
            async with asyncio.timeout(TIMEOUT):
                await socket.wait_closed()
            assert socket.close_code == 1008
        assert (await client.get("/api/v1/me")).status_code == 401


@aio
@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"type":"other","session":"s"}', '{"type":"follow","session":"s","after":"x"}'],
)
async def test_an_invalid_message_is_answered_with_an_error(paths: Paths, text: str) -> None:
    async with console(paths) as place, place.browser() as client:
        async with place.socket(client) as socket:
            await socket.send(text)
            assert (await told(socket, "error"))["message"]


@aio
async def test_a_feed_that_fails_by_a_mistake_ends_the_connection_and_the_browser_comes_again(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_: SessionFeed) -> None:
        raise LookupError("a mistake of ours")

    monkeypatch.setattr(SessionFeed, "run", fail)
    with Store.open(store_path(paths.state), Redactor(())) as store:
        store.create_session(one := session())
    async with console(paths) as place, place.browser() as client:
        async with place.socket(client) as socket:
            await follow(socket, one.key)
            async with asyncio.timeout(TIMEOUT):
                await socket.wait_closed()
            assert socket.close_code == 1011


@pytest.mark.parametrize("read", ["find_session", "stored_jobs"])
@aio
async def test_a_session_that_cannot_be_read_is_followed_when_it_can(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    monkeypatch.setattr(retry, "backoff", lambda failed, rng: 0.0)
    real, failures = getattr(LiveState, read), [StoreBusy("sessions.db", "locked")] * 2

    async def busy(state: LiveState, key: str) -> Any:
        if failures:
            raise failures.pop()
        return await real(state, key)

    monkeypatch.setattr(LiveState, read, busy)
    with Store.open(store_path(paths.state), Redactor(())) as store:
        record = session()
        store.create_session(record)
    async with console(paths) as place, place.browser() as client, place.socket(client) as socket:
        await follow(socket, record.key)
        assert (await told(socket, "error"))["message"].endswith("; trying again")
        assert (await told(socket, "events"))["caughtUp"]
    assert not failures


@aio
async def test_the_error_of_a_feed_is_sent_to_its_browser(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_: SessionFeed) -> None:
        raise UsageError("it cannot be read")

    monkeypatch.setattr(SessionFeed, "run", fail)
    with Store.open(store_path(paths.state), Redactor(())) as store:
        store.create_session(one := session())
    async with console(paths) as place, place.browser() as client:
        async with place.socket(client) as socket:
            await follow(socket, one.key)
            assert (await told(socket, "error"))["message"] == "it cannot be read"
