"""The server on a stream of lines, with a client that writes them by hand."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from dragoman.errors import ConnectionLost
from dragoman.mcp_server import stdio
from dragoman.mcp_server.front import Front
from dragoman.mcp_server.stdio import serve_stream
from dragoman.rpc.tasks import TaskOwner
from dragoman.transports.base import Stream
from dragoman.transports.memory import memory_pair
from tests.aio import aio

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "by hand", "version": "1"},
    },
}


class Hand:
    """A client that sends bytes and takes lines."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.lines: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.ended = asyncio.Event()
        self._rest = b""
        stream.start(self)

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self.lines.put_nowait(json.loads(line))

    def stream_ended(self, failure: ConnectionLost) -> None:
        self.ended.set()

    async def ask(self, message: Any) -> dict[str, Any]:
        self.stream.write(json.dumps(message).encode() + b"\n")
        async with asyncio.timeout(10):
            return await self.lines.get()


@aio
async def test_lines_are_understood_in_any_cut_and_answered_as_lines(work: Path) -> None:
    near, far = memory_pair()
    tasks = TaskOwner("test")
    serving = tasks.start(serve_stream(Front(cwd=work), far, stop=asyncio.Event()), "serve")
    hand = Hand(near)
    text = json.dumps(HELLO).encode()
    near.write(b"\n  \r\n")
    near.write(text[:20])
    near.write(text[20:] + b"\r\n")
    async with asyncio.timeout(10):
        answer = await hand.lines.get()
    assert answer["result"]["serverInfo"]["name"] == "dragoman"
    pong = await hand.ask({"jsonrpc": "2.0", "id": 2, "method": "ping"})
    assert (pong["id"], pong["result"]) == (2, {})
    await near.aclose()
    async with asyncio.timeout(10):
        await serving


@aio
async def test_the_signal_to_stop_ends_it_and_gives_the_stream_back(work: Path) -> None:
    near, far = memory_pair()
    stop = asyncio.Event()
    tasks = TaskOwner("test")
    serving = tasks.start(serve_stream(Front(cwd=work), far, stop=stop), "serve")
    hand = Hand(near)
    await hand.ask(HELLO)
    stop.set()
    async with asyncio.timeout(10):
        await serving
        await hand.ended.wait()
    await near.aclose()


@aio
async def test_what_is_no_message_does_not_end_the_connection(work: Path) -> None:
    near, far = memory_pair()
    tasks = TaskOwner("test")
    serving = tasks.start(serve_stream(Front(cwd=work), far, stop=asyncio.Event()), "serve")
    hand = Hand(near)
    await hand.ask(HELLO)
    near.write(b"this is no JSON\n")
    while (answer := await hand.ask({"jsonrpc": "2.0", "id": 3, "method": "ping"})).get("id") != 3:
        assert "error" in answer
    assert answer["result"] == {}
    await near.aclose()
    async with asyncio.timeout(10):
        await serving


@aio
async def test_a_client_that_asks_and_leaves_at_once_is_no_failure(
    work: Path, caplog: pytest.LogCaptureFixture
) -> None:
    near, far = memory_pair()
    Hand(near)
    for message in (HELLO, *({**HELLO, "id": number, "method": "ping"} for number in range(2, 9))):
        near.write(json.dumps(message).encode() + b"\n")
    await near.aclose()
    async with asyncio.timeout(10):
        await serve_stream(Front(cwd=work), far, stop=asyncio.Event())
    assert caplog.records == []


@aio
async def test_a_line_without_an_end_ends_the_connection(
    work: Path, monkeypatch: Any, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(stdio, "MAX_LINE_SIZE", 1000)
    near, far = memory_pair()
    tasks = TaskOwner("test")
    serving = tasks.start(serve_stream(Front(cwd=work), far, stop=asyncio.Event()), "serve")
    hand = Hand(near)
    near.write(b"x" * 2000)
    async with asyncio.timeout(10):
        await hand.ended.wait()
        await serving
    assert caplog.messages == ["a message has more than 1000 bytes: the connection ends"]
    await near.aclose()


@aio
async def test_a_host_that_sends_much_is_held_back(work: Path) -> None:
    near, far = memory_pair()
    tasks = TaskOwner("test")
    serving = tasks.start(serve_stream(Front(cwd=work), far, stop=asyncio.Event()), "serve")
    hand = Hand(near)
    await hand.ask(HELLO)
    for number in range(10, 210):
        near.write(json.dumps({"jsonrpc": "2.0", "id": number, "method": "ping"}).encode() + b"\n")
    async with asyncio.timeout(20):
        seen = {(await hand.lines.get())["id"] for _ in range(200)}
    assert seen == set(range(10, 210))
    await near.aclose()
    async with asyncio.timeout(10):
        await serving
