"""The WebSocket of the console, with a real client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection

from dragoman.paths import Paths
from tests.aio import aio
from tests.unit.console.broker_place import broker, submit
from tests.unit.console.place import TIMEOUT, console, short_paths, told


@pytest.fixture
def paths() -> Iterator[Paths]:
    with short_paths() as paths:
        yield paths


async def follow(socket: ClientConnection, key: str, after: str | None = None) -> None:
    await socket.send(json.dumps({"type": "follow", "session": key, "after": after}))


async def events(socket: ClientConnection, until: str) -> list[dict[str, Any]]:
    """The events up to the first of a type, without those about the settings of the session."""
    found: list[dict[str, Any]] = []
    async with asyncio.timeout(TIMEOUT):
        while not any(event["type"] == until for event in found):
            found += (await told(socket, "events"))["events"]
    return [event for event in found if event["type"] != "CommandsChanged"]


async def key_of(socket: ClientConnection) -> str:
    return str((await told(socket, "work"))["item"]["session"])


@aio
async def test_the_state_comes_first_and_then_what_changes(paths: Paths) -> None:
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
async def test_a_session_is_followed_from_its_beginning_and_goes_on_behind_a_cursor(
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
                # What happens from now on comes as well, behind its prompt.
                await submit(mine, session, "count 2", "j-2")
                live = await events(socket, "TurnEnded")
                assert [event["type"] for event in live] == [
                    "TurnStarted",
                    *["MessageDelta"] * 2,
                    "TurnEnded",
                ]


@aio
async def test_a_browser_that_does_not_read_does_not_slow_the_agent(paths: Paths) -> None:
    async with broker(paths) as (at, _), console(paths) as place, place.browser() as client:
        async with at.caller() as mine:
            session = await mine.new(at.folder)
            await submit(mine, session, "count 1")
            await mine.call("_dragoman/result", {"job": "j-1", "wait": True})
            async with place.socket(client) as socket:
                work = (await told(socket, "snapshot"))["work"]
                await follow(socket, work[0]["session"] if work else await key_of(socket))
                await events(socket, "TurnEnded")
                # From here on nothing is read, and far more comes than any buffer takes.
                socket.transport.pause_reading()
                await submit(mine, session, "count 3000 8000", "j-2")
                await mine.call("_dragoman/result", {"job": "j-2", "wait": True})
                socket.transport.resume_reading()
                found = await events(socket, "TurnEnded")
                assert sum(event["type"] == "MessageDelta" for event in found) == 3000


@aio
async def test_revoking_a_token_ends_its_connections_and_no_others(paths: Paths) -> None:
    async with console(paths) as place, place.browser() as one, place.browser() as two:
        async with place.socket(one) as gone, place.socket(two) as stays:
            await told(gone, "snapshot")
            await told(stays, "snapshot")
            place.access.revoke((await one.get("/api/v1/me")).json()["id"])
            async with asyncio.timeout(TIMEOUT):
                await gone.wait_closed()
            assert gone.close_code == 1008
            await follow(stays, "s-none")
            assert "no session" in (await told(stays, "error"))["message"]


@aio
@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"type":"other","session":"s"}', '{"type":"follow","session":"s","after":"x"}'],
)
async def test_what_cannot_be_understood_is_answered_with_an_error(paths: Paths, text: str) -> None:
    async with console(paths) as place, place.browser() as client:
        async with place.socket(client) as socket:
            await socket.send(text)
            assert (await told(socket, "error"))["message"]
