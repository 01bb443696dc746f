"""Requests to a broker before its client takes the connection over."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman.broker.client import hello
from dragoman.broker.client.hello import ask, ask_broker, open_stream, say_hello, started
from dragoman.broker.protocol import HELLO
from dragoman.client.acp.client import AcpClient
from dragoman.client.acp.options import connection_settings
from dragoman.errors import (
    BrokerError,
    CallTimeout,
    ConnectError,
    ConnectionBroken,
    ConnectionClosed,
    ConnectionLost,
    InvalidAnswer,
    RemoteError,
)
from dragoman.rpc import Connection, End, Router
from dragoman.transports.base import Stream
from dragoman.transports.listener import listen_unix
from dragoman.transports.memory import memory_pair
from tests.aio import aio
from tests.unit.rpc.other_side import until

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
    door = started(near)
    greeting = await say_hello(door, version="1.3", identity="abc", ttl=7.0)
    assert (greeting.version, greeting.protocol, greeting.started_at) == ("1.2", 1, 3.5)
    asked = msgspec.json.decode(heard.data)
    assert asked["method"] == HELLO
    assert asked["params"] == {"version": "1.3", "identity": "abc", "ttl": 7.0}
    await door.aclose()
    await far.aclose()


@aio
async def test_a_client_takes_the_connection_over_after_the_greeting() -> None:
    near, far = memory_pair()
    asked: list[str] = []

    def reply(data: bytes) -> None:
        for line in data.splitlines():
            message = msgspec.json.decode(line)
            asked.append(message["method"])
            result = GREETING if message["method"] == HELLO else {"protocolVersion": 1}
            answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
            far.write(msgspec.json.encode(answer) + b"\n")

    far.start(Listener(reply))
    connection = started(near, settings=connection_settings(None))
    await say_hello(connection, version="1", identity="")
    async with AcpClient(connection) as client:
        assert client.connection is connection
        # What would end a greeting is only noise for a client.
        far.write(b"noise\n")
        await asyncio.sleep(0)
        assert connection.failure is None
    assert asked == [HELLO, "initialize"]
    assert isinstance(connection.failure, ConnectionClosed)
    await far.aclose()


@aio
async def test_a_broker_that_says_nothing_is_not_waited_for() -> None:
    near, far = memory_pair()
    far.start(Listener())
    door = started(near)
    with pytest.raises(CallTimeout, match="no answer to x within 0.01 s"):
        await ask(door, "x", {}, timeout=0.01)
    # A late answer is nobody's.
    far.write(b'{"jsonrpc":"2.0","id":0,"result":{}}\n')
    with pytest.raises(CallTimeout):
        await ask(door, "y", {}, timeout=0.01)
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
async def test_what_is_not_a_greeting_is_reported(
    answer: dict[str, Any], error: type[Exception]
) -> None:
    near, far = memory_pair()
    answering(far, **answer)
    door = started(near)
    with pytest.raises(error):
        await say_hello(door, version="1", identity="")
    await door.aclose()
    await far.aclose()


@pytest.mark.parametrize("noise", [b"HTTP/1.1 400 Bad Request\r\n", b"\xff\n", b"x" * 5_000_000])
@aio
async def test_what_does_not_speak_json_is_not_a_broker(noise: bytes) -> None:
    near, far = memory_pair()
    far.start(Listener())
    door = started(near)
    far.write(noise)
    with pytest.raises(ConnectionLost):
        await ask(door, "x", {}, timeout=5)
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
        await open_stream(path)
    async with await listen_unix(path, serve):
        assert await ask_broker(path, "x", {}) == 7
        uid = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
        with pytest.raises(BrokerError, match=f"another user .uid {uid}."):
            await open_stream(path)
        monkeypatch.undo()
        over.set()


SHORT = 0.05


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hello, "PROBE_INTERVAL", SHORT)
    monkeypatch.setattr(hello, "PROBE_TIMEOUT", SHORT)


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
        hello.watch(connection, address, "tool-1")
        connection.begin("anything", {}, settle=lambda result, error: None)
        failure = await connection.wait_ended()
        await theirs.aclose()
    assert isinstance(failure, ConnectionBroken)
    assert "`dragoman broker stop tool-1` ends it" in str(failure)


class Looked(Connection):
    """Counts how often somebody wants to know whether a call waits."""

    looks = 0

    @property
    def is_waiting(self) -> bool:
        self.looks += 1
        return super().is_waiting


@pytest.mark.parametrize(("answers", "waits"), [(True, True), (False, False)])
@aio
async def test_a_broker_that_answers_or_owes_nothing_is_left_alone(
    tmp_path: Path, answers: bool, waits: bool
) -> None:
    # Nothing reads the other end, so that a call is never answered.
    ours, theirs = memory_pair()
    async with (
        broker(tmp_path, answers=answers) as address,
        Looked(ours, End.CLIENT) as connection,
    ):
        hello.watch(connection, address, "tool-1")
        if waits:
            connection.begin("anything", {}, settle=lambda result, error: None)
        await until(lambda: connection.looks > 3)
        assert connection.failure is None
        await theirs.aclose()


@aio
async def test_a_broker_that_is_gone_is_not_hung(tmp_path: Path) -> None:
    async with broker(tmp_path, answers=False) as address:
        assert await hello.is_hung(address)
        with pytest.raises(BrokerError, match="does not answer"):
            await hello.require_answer(address, "tool-1")
        await hello.wait_hung(address)
    await hello.require_answer(address, "tool-1")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux refuses when the queue is full")
@aio
async def test_a_broker_whose_queue_is_full_is_hung(tmp_path: Path) -> None:
    address = str(tmp_path / "b.sock")
    with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as waiting:
        listening.bind(address)
        listening.listen(0)
        waiting.connect(address)
        assert await hello.is_hung(address)
