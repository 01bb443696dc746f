"""Two connections in one process: as over a stream, but notifications are not decoded again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from dragoman.errors import (
    ConnectionClosed,
    ConnectionEnded,
    InvalidAnswer,
    MessageTooLong,
    RemoteError,
    UsageError,
)
from dragoman.rpc import ConnectionSettings
from dragoman.rpc.link import LinkEnd, linked
from dragoman.rpc.tasks import TaskOwner
from dragoman.transports.base import HIGH_WATER_SIZE
from dragoman.transports.memory import BUFFER_SIZE
from dragoman.wire import codes, messages
from dragoman.wire.messages import NO_PARAMS, Notification, Request
from dragoman.wire.peer import Noise, Stray
from tests.aio import aio
from tests.unit.rpc.other_side import soon, turns, until

SETTINGS = ConnectionSettings(
    max_line_size=1024 * 1024, cancel_notice=lambda id: ("$/cancel", {"id": id})
)


class Notes:
    """Handlers that answer with what they were asked, and note everything."""

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.strays: list[Noise | Stray] = []
        self.hold = asyncio.Event()
        self.hold.set()

    def attach(self, connection: Any) -> None:
        self.connection = connection

    def notification(self, notification: Notification) -> None:
        self.heard.append((notification.method, notification.params, notification.line))
        if notification.method == "$/cancel":
            self.connection.cancel_inbound(json.loads(bytes(notification.params))["id"])

    def noise(self, noise: Noise | Stray) -> None:
        self.strays.append(noise)

    def request(self, request: Request) -> Any:
        if request.method == "refuse":
            raise RemoteError(codes.NOT_FOUND, "not here", {"why": ["x"]})
        return self._answer(request)

    async def _answer(self, request: Request) -> Any:
        self.connection.post("before", {"id": request.id})
        await self.hold.wait()
        return {"params": request.params} if request.params is not NO_PARAMS else None


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[LinkEnd, Notes, LinkEnd, Notes]]:
    client, agent = linked(SETTINGS, SETTINGS)
    asked, asks = Notes(), Notes()
    client.hand_to(asks)
    agent.hand_to(asked)
    async with client, agent:
        yield client, asks, agent, asked


@aio
async def test_a_notification_is_not_decoded_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(line: bytes) -> Any:
        raise AssertionError(line)

    long = "x" * 4096
    async with pair() as (_, asks, agent, _):
        monkeypatch.setattr(messages, "decode_envelope", refuse)
        agent.post('"params":', Raw(b'{"n":\n1}'))
        agent.tell("long", [long])
        await agent.notify("bare")
        await until(lambda: len(asks.heard) == 3)
        monkeypatch.undo()
    short, view, bare = asks.heard
    line = b'{"jsonrpc":"2.0","method":"\\"params\\":","params":{"n": 1}}'
    assert (short[0], bytes(short[1]), short[2]) == ('"params":', b'{"n": 1}', line)
    assert json.loads(bytes(view[1])) == msgspec.json.decode(view[1]) == [long]
    assert json.loads(view[2])["params"] == [long]
    assert bare == ("bare", NO_PARAMS, b'{"jsonrpc":"2.0","method":"bare"}')


@aio
async def test_requests_are_answered_with_and_without_params() -> None:
    async with pair() as (client, asks, _, asked):
        assert bytes(await soon(client.call("ask", [1]))) == b'{"params":[1]}'
        assert bytes(await soon(client.call("ask"))) == b"null"
        assert asked.strays == asks.strays == []


@aio
async def test_nothing_is_reported_after_the_end() -> None:
    async with pair() as (client, _, agent, _):
        await client.aclose()
        with pytest.raises(ConnectionClosed):
            client.tell("late", {})
        with pytest.raises(ConnectionClosed):
            client.post("late")


@aio
async def test_an_answer_comes_after_what_was_sent_before_it() -> None:
    async with pair() as (client, asks, _, _):
        order: list[Any] = []
        for number in range(50):
            client.begin(
                "ask",
                {"n": number},
                settle=lambda *_, number=number: order.append((number, len(asks.heard))),
            )
        await until(lambda: len(order) == 50)
        assert [number for number, _ in order] == list(range(50))
        assert all(heard > number for number, heard in order)


@aio
async def test_both_directions_have_ids_of_their_own() -> None:
    async with pair() as (client, _, agent, _):
        answers = await soon(
            asyncio.gather(client.call("ask", {"n": 1}), agent.call("ask", {"n": 2}))
        )
        assert [bytes(each) for each in answers] == [b'{"params":{"n":1}}', b'{"params":{"n":2}}']


@aio
async def test_an_error_arrives_as_over_a_stream() -> None:
    async with pair() as (client, _, _, _):
        with pytest.raises(RemoteError) as caught:
            await soon(client.call("refuse"))
        assert (caught.value.code, caught.value.message) == (codes.NOT_FOUND, "not here")
        assert caught.value.data == {"why": ["x"]}
        with pytest.raises(InvalidAnswer):
            await soon(client.ask("ask", {}, lambda raw: msgspec.json.decode(raw, type=int)))


@aio
async def test_a_call_that_is_given_up_is_called_off_and_its_answer_is_late() -> None:
    async with pair() as (client, asks, agent, asked):
        asked.hold.clear()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await client.call("ask", {})
        await until(lambda: bool(asks.strays))
        (stray,) = asks.strays
        assert isinstance(stray, Stray)
        assert (stray.why, stray.error and stray.error.code) == ("late", codes.REQUEST_CANCELLED)
        await soon(agent.wait_answered())


@aio
async def test_an_end_that_does_not_read_holds_the_other_back() -> None:
    async with pair() as (client, asks, agent, _):
        client.stream.pause_reading()
        size = BUFFER_SIZE + HIGH_WATER_SIZE
        agent.post("long", "x" * size)
        await turns()
        assert agent.is_full
        waiting = agent.tell("next", {})
        assert waiting is not None
        sending = agent.tasks.start(waiting, "notify")
        await turns()
        assert (sending.done(), asks.heard) == (False, [])
        client.stream.resume_reading()
        await soon(sending)
        await until(lambda: len(asks.heard) == 2)
        assert [method for method, _, _ in asks.heard] == ["long", "next"]


@aio
async def test_what_is_too_long_or_cannot_be_written_is_not_sent() -> None:
    async with pair() as (client, _, _, asked):
        with pytest.raises(MessageTooLong):
            client.post("long", "x" * SETTINGS.max_line_size)
        with pytest.raises(UsageError):
            client.post("odd", object())
        client.pass_on(b'{"method":"plain","params":[1]}')
        client.pass_on(b"no message")
        await until(lambda: bool(asked.strays))
        assert [(method, bytes(params)) for method, params, _ in asked.heard] == [("plain", b"[1]")]


@aio
async def test_half_a_surrogate_pair_is_replaced_as_in_any_line() -> None:
    async with pair() as (client, _, _, asked):
        client.post("half", Raw(b'["\\ud83d"]'))
        await until(lambda: bool(asked.heard))
        assert bytes(asked.heard[0][1]) == b'["\\ufffd"]'


@aio
async def test_closing_sends_what_was_posted_and_fails_calls() -> None:
    async with pair() as (client, _, agent, asked):
        asked.hold.clear()
        tasks = TaskOwner("test")
        calling = tasks.start(client.call("ask", {}), "call")
        await turns()
        client.post("last")
        await soon(client.aclose())
        with pytest.raises(ConnectionClosed):
            await soon(calling)
        assert isinstance(await soon(agent.wait_ended()), ConnectionEnded)
        assert [method for method, _, _ in asked.heard] == ["last"]
        client._outbox.put(b"too late")
        client._outbox.flush()
    await soon(client.aclose())


@aio
async def test_a_trace_has_both_directions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trace.jsonl"
    monkeypatch.setenv("DRAGOMAN_TRACE", str(path))
    async with pair() as (client, _, _, _):
        client.tell("first", {})
        await soon(client.call("ask", {"n": 1}))
    records = [json.loads(line) for line in path.read_text().splitlines()]
    ours = [(each["dir"], each["msg"]) for each in records if each["conn"] == client.name]
    assert ours[0] == ("send", {"jsonrpc": "2.0", "method": "first", "params": {}})
    assert ours[1] == ("send", {"jsonrpc": "2.0", "id": 0, "method": "ask", "params": {"n": 1}})
    assert ours[-1] == ("recv", {"jsonrpc": "2.0", "id": 0, "result": {"params": {"n": 1}}})
