"""Questions at the door of a broker, and the stream that is handed on afterwards."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman.broker.client.hello import HelloConnection, ask_broker, knock, say_hello
from dragoman.broker.methods import HELLO
from dragoman.errors import (
    BrokerError,
    CallTimeout,
    ConnectError,
    ConnectionClosed,
    ConnectionEnded,
    ConnectionLost,
    InvalidAnswer,
    RemoteError,
    UsageError,
)
from dragoman.transports.base import Stream
from dragoman.transports.memory import memory_pair
from dragoman.transports.sockets import listen_unix
from tests.aio import aio

GREETING = {"version": "1.2", "protocol": 1, "startedAt": 3.5, "news": True}


class Listener:
    """Collects what arrives."""

    def __init__(self, reply: Callable[[bytes], None] | None = None) -> None:
        self.data = b""
        self.failure: ConnectionLost | None = None
        self.arrived = asyncio.Event()
        self._reply = reply

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.arrived.set()
        if self._reply is not None:
            self._reply(data)

    def stream_ended(self, failure: ConnectionLost) -> None:
        self.failure = failure


def answering(far: Stream, **answer: Any) -> Listener:
    """The other end answers each message so."""

    def reply(data: bytes) -> None:
        for line in data.splitlines():
            id = msgspec.json.decode(line)["id"]
            far.write(msgspec.json.encode({"jsonrpc": "2.0", "id": id, **answer}) + b"\n")

    listener = Listener(reply)
    far.start(listener)
    return listener


@aio
async def test_a_broker_says_who_it_is() -> None:
    near, far = memory_pair()
    heard = answering(far, result=GREETING)
    door = HelloConnection(near)
    greeting = await say_hello(door, version="1.3", identity="abc", ttl=7.0)
    assert (greeting.version, greeting.protocol, greeting.started_at) == ("1.2", 1, 3.5)
    asked = msgspec.json.decode(heard.data)
    assert asked["method"] == HELLO
    assert asked["params"] == {"version": "1.3", "identity": "abc", "ttl": 7.0}
    await door.aclose()
    await far.aclose()


@aio
async def test_the_stream_is_handed_on_as_if_nothing_had_been_asked() -> None:
    near, far = memory_pair()
    far_ear = answering(far, result={})
    door = HelloConnection(near)
    await door.ask("x", {})
    far_ear.arrived.clear()
    ear = Listener()
    door.start(ear)
    far.write(b"one\n")
    door.write(b'{"id":1}\n')
    await door.drain()
    assert door.unsent_size == 0
    door.pause_reading()
    door.resume_reading()
    async with asyncio.timeout(5):
        await far_ear.arrived.wait()
        await ear.arrived.wait()
    assert far_ear.data.endswith(b'{"id":1}\n')
    assert ear.data.startswith(b"one\n")
    with pytest.raises(UsageError, match="handed on"):
        await door.ask("x", {})
    with pytest.raises(UsageError, match="before"):
        door.start(ear)
    await door.aclose()
    assert isinstance(ear.failure, ConnectionClosed)
    await far.aclose()


@aio
async def test_an_end_before_the_handing_on_is_told_afterwards() -> None:
    near, far = memory_pair()
    far.start(Listener())
    door = HelloConnection(near)
    asking = asyncio.gather(door.ask("x", {}), return_exceptions=True)
    await asyncio.sleep(0)
    await far.aclose()
    [failure] = await asking
    assert isinstance(failure, ConnectionEnded)
    ear = Listener()
    door.start(ear)
    await asyncio.sleep(0)
    assert isinstance(ear.failure, ConnectionEnded)
    await door.aclose()


@aio
async def test_a_broker_that_says_nothing_is_not_waited_for() -> None:
    near, far = memory_pair()
    far.start(Listener())
    door = HelloConnection(near)
    with pytest.raises(CallTimeout, match="no answer to x within 0.01 s"):
        await door.ask("x", {}, timeout=0.01)
    # A late answer is nobody's.
    far.write(b'{"id":"knock-1","result":{}}\n')
    with pytest.raises(CallTimeout):
        await door.ask("y", {}, timeout=0.01)
    await door.aclose()
    await far.aclose()


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ({"error": {"code": -1, "message": "no", "data": 5}}, RemoteError),
        ({"error": {"message": "no"}}, RemoteError),
        ({"result": {"protocol": 1}}, InvalidAnswer),
        ({"result": 3}, InvalidAnswer),
    ],
)
@aio
async def test_what_is_no_greeting_is_told(answer: dict[str, Any], error: type[Exception]) -> None:
    near, far = memory_pair()
    answering(far, **answer)
    door = HelloConnection(near)
    with pytest.raises(error):
        await say_hello(door, version="1", identity="")
    await door.aclose()
    await far.aclose()


@pytest.mark.parametrize("noise", [b"HTTP/1.1 400 Bad Request\r\n", b"\xff\n", b"x" * 5_000_000])
@aio
async def test_whoever_does_not_speak_json_is_no_broker(noise: bytes) -> None:
    near, far = memory_pair()
    far.start(Listener())
    door = HelloConnection(near)
    far.write(noise)
    with pytest.raises(ConnectionLost, match="broker"):
        await door.ask("x", {}, timeout=5)
    await door.aclose()
    await far.aclose()


@aio
async def test_a_question_is_asked_over_a_socket_of_our_own_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "s")
    over = asyncio.Event()

    async def serve(stream: Stream) -> None:
        answering(stream, result=7)
        await over.wait()

    with pytest.raises(ConnectError):
        await knock(path)
    async with await listen_unix(path, serve):
        assert await ask_broker(path, "x", {}) == 7
        uid = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
        with pytest.raises(BrokerError, match=f"another user .uid {uid}."):
            await knock(path)
        monkeypatch.undo()
        over.set()
