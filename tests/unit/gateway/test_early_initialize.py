"""The first line of a client: read early, and not lost."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from dragoman.dialects.acp import v1 as acp
from dragoman.errors import ConnectionLost
from dragoman.gateway.early_initialize import EarlyInitialize, offered
from dragoman.transports.memory import memory_pair
from tests.aio import aio
from tests.unit.rpc.other_side import WAIT_TIMEOUT, soon


class Inbox:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.data = b""
        self.ends: list[ConnectionLost] = []
        self.news = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        assert data and not self.ends
        self.data += data
        self.news.set()

    def stream_ended(self, failure: ConnectionLost) -> None:
        self.ends.append(failure)
        self.news.set()

    async def until(self, data: bytes, ends: int = 0) -> None:
        async with asyncio.timeout(WAIT_TIMEOUT):
            while self.data != data or len(self.ends) != ends:
                self.news.clear()
                await self.news.wait()


@aio
async def test_what_was_overheard_is_delivered_once_and_the_rest_behind_it() -> None:
    ours, theirs = memory_pair()
    theirs.start(Inbox())
    stream = EarlyInitialize(ours)
    theirs.write(b"one\ntwo\nthr")
    assert await soon(stream.greeting()) == b"one"
    theirs.write(b"ee\n")
    inbox = Inbox()
    stream.start(inbox)
    await inbox.until(b"one\ntwo\nthree\n")
    theirs.write(b"four\n")
    await inbox.until(b"one\ntwo\nthree\nfour\n")
    await theirs.aclose()
    await inbox.until(b"one\ntwo\nthree\nfour\n", ends=1)
    await stream.aclose()
    assert len(inbox.ends) == 1


@aio
async def test_a_client_that_says_nothing_is_not_waited_for() -> None:
    ours, theirs = memory_pair()
    theirs.start(Inbox())
    stream = EarlyInitialize(ours)
    theirs.write(b"half a li")
    assert await soon(stream.greeting(0.01)) == b"half a li"
    inbox = Inbox()
    stream.start(inbox)
    theirs.write(b"ne\n")
    await inbox.until(b"half a line\n")
    await theirs.aclose()
    await stream.aclose()


@aio
async def test_a_client_that_has_gone_is_said_to_be_gone() -> None:
    ours, theirs = memory_pair()
    theirs.start(Inbox())
    stream = EarlyInitialize(ours)
    theirs.write(b"one\n")
    await theirs.aclose()
    assert await soon(stream.greeting()) == b"one"
    inbox = Inbox()
    stream.start(inbox)
    await inbox.until(b"one\n", ends=1)
    await stream.aclose()


@aio
async def test_what_is_written_goes_through() -> None:
    ours, theirs = memory_pair()
    heard = Inbox()
    theirs.start(heard)
    stream = EarlyInitialize(ours)
    theirs.write(b"one\n")
    await soon(stream.greeting())
    stream.start(Inbox())
    stream.pause_reading()
    stream.resume_reading()
    stream.write(b"x\n")
    await soon(stream.drain())
    await heard.until(b"x\n")
    assert stream.unsent_size == 0
    await stream.aclose()
    await theirs.aclose()


def hello(**params: Any) -> bytes:
    message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    return json.dumps(message).encode()


def test_what_a_client_offers_is_in_its_handshake() -> None:
    able = {"terminal": True, "elicitation": {"form": {}}}
    found = offered(hello(protocolVersion=1, clientCapabilities=able))
    assert found.terminal and found.elicitation is not None
    assert found.elicitation.form is not None and found.elicitation.url is None


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"hello",
        hello(protocolVersion="2025-06-18"),
        hello(service_name="x"),
        b'{"jsonrpc":"2.0","method":"initialize"}',
        b'{"jsonrpc":"2.0","id":1,"method":"prompt","params":{"text":"x"}}',
    ],
)
def test_a_line_that_is_not_a_handshake_offers_nothing(line: bytes) -> None:
    assert offered(line) == acp.ClientCapabilities()
