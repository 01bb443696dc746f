"""The stream of named pipes, over a transport that this system has; and the way to it.

The pipes themselves exist on Windows only; the contract suite counts that as skipped here.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from dragoman.errors import (
    AddressInUse,
    ConnectError,
    ConnectionBroken,
    ConnectionClosed,
    ConnectionEnded,
    ConnectionLost,
    UsageError,
)
from dragoman.transports import named_pipes
from dragoman.transports.base import HIGH_WATER_SIZE, Stream
from dragoman.transports.named_pipes import (
    StreamProtocol,
    TransportStream,
    connect_named_pipe,
    listen_named_pipe,
)
from tests.aio import aio

NAME = "\\\\.\\pipe\\dragoman-test"


class Recorder:
    def __init__(self) -> None:
        self.data = b""
        self.ends: list[ConnectionLost] = []
        self.arrived = asyncio.Event()
        self.ended = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        assert not self.ends
        self.data += data
        self.arrived.set()

    def stream_ended(self, failure: ConnectionLost) -> None:
        self.ends.append(failure)
        self.ended.set()


async def pair() -> tuple[TransportStream, socket.socket]:
    """A stream over a transport of asyncio, and the bare socket at its other end."""
    ours, theirs = socket.socketpair()
    loop = asyncio.get_running_loop()
    _, protocol = await loop.create_connection(StreamProtocol, sock=ours)
    return protocol.stream, theirs


@aio
async def test_data_arrives_after_the_start_and_the_end_after_the_data() -> None:
    stream, theirs = await pair()
    theirs.sendall(b"hello\n")
    theirs.close()
    for _ in range(10):
        await asyncio.sleep(0)
    heard = Recorder()
    stream.start(heard)
    async with asyncio.timeout(5):
        await heard.ended.wait()
    assert heard.data == b"hello\n"
    assert [type(end) for end in heard.ends] == [ConnectionEnded]
    with pytest.raises(ConnectionEnded):
        stream.write(b"x\n")
    await stream.aclose()
    with pytest.raises(UsageError):
        stream.start(heard)


@aio
async def test_nothing_is_taken_from_the_other_side_before_the_start() -> None:
    stream, theirs = await pair()
    theirs.setblocking(False)
    sent = 0
    with pytest.raises(BlockingIOError):
        while sent < 64 * 1024 * 1024:
            sent += theirs.send(b"x" * 65536)
            await asyncio.sleep(0)
    heard = Recorder()
    stream.start(heard)
    async with asyncio.timeout(10):
        while len(heard.data) < sent:
            heard.arrived.clear()
            await heard.arrived.wait()
    theirs.close()
    await stream.aclose()


@aio
async def test_a_pause_holds_what_was_read_already_and_the_end() -> None:
    stream, _theirs = await pair()
    heard = Recorder()
    stream.start(heard)
    stream.pause_reading()
    stream._arrived(b"read ahead\n")
    _theirs.close()
    stream.resume_reading()
    stream.pause_reading()
    for _ in range(10):
        await asyncio.sleep(0)
    assert (heard.data, heard.ends) == (b"", [])
    stream.resume_reading()
    async with asyncio.timeout(5):
        await heard.ended.wait()
    assert heard.data == b"read ahead\n"
    await stream.aclose()


@aio
async def test_drain_waits_for_room_and_closing_sends_the_rest() -> None:
    stream, theirs = await pair()
    heard = Recorder()
    stream.start(heard)
    size = 4 * HIGH_WATER_SIZE
    stream.write(b"x" * size)
    assert stream.unsent_size > HIGH_WATER_SIZE

    def read_all() -> int:
        got = 0
        while data := theirs.recv(65536):
            got += len(data)
        return got

    async with asyncio.timeout(10):
        reading = asyncio.get_running_loop().run_in_executor(None, read_all)
        await stream.drain()
        assert stream.unsent_size <= HIGH_WATER_SIZE
        await asyncio.gather(stream.aclose(), stream.aclose())
        assert await reading == size
    theirs.close()
    assert [type(end) for end in heard.ends] == [ConnectionClosed]
    with pytest.raises(ConnectionClosed):
        await stream.drain()


@aio
async def test_closing_gives_up_on_a_reader_that_does_not_read_even_if_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(named_pipes, "FLUSH_TIMEOUT", 0.01)
    stream, theirs = await pair()
    heard = Recorder()
    stream.start(heard)
    stream.write(b"x" * (4 * HIGH_WATER_SIZE))
    async with asyncio.TaskGroup() as group:
        closing = group.create_task(stream.aclose())
        await asyncio.sleep(0)
        with pytest.raises(ConnectionClosed):
            stream.write(b"no\n")
        closing.cancel()
    async with asyncio.timeout(5):
        await heard.ended.wait()
    assert [type(end) for end in heard.ends] == [ConnectionClosed]
    assert stream.unsent_size == 0
    theirs.close()


@aio
async def test_an_error_of_the_transport_breaks_the_stream() -> None:
    stream = TransportStream()
    heard = Recorder()
    stream.start(heard)
    stream._lost(OSError(5, "input/output error"))
    assert [type(end) for end in heard.ends] == [ConnectionBroken]


@aio
async def test_a_stream_that_never_got_a_transport_closes() -> None:
    stream = TransportStream()
    await stream.aclose()
    heard = Recorder()
    stream.start(heard)
    async with asyncio.timeout(5):
        await heard.ended.wait()
    assert [type(end) for end in heard.ends] == [ConnectionClosed]
    assert stream.unsent_size == 0


class FakeServer:
    closed = False

    def close(self) -> None:
        self.closed = True


class FakePipes:
    """The two methods that Windows' event loop has for pipes."""

    def __init__(self, error: OSError | None = None) -> None:
        self.error = error
        self.server = FakeServer()
        self.factory: Any = None

    async def create_pipe_connection(self, factory: Any, name: str) -> tuple[None, Any]:
        if self.error is not None:
            raise self.error
        assert name == NAME
        return None, factory()

    async def start_serving_pipe(self, factory: Any, name: str) -> list[FakeServer]:
        if self.error is not None:
            raise self.error
        self.factory = factory
        return [self.server]


def use(monkeypatch: pytest.MonkeyPatch, pipes: FakePipes) -> None:
    loop = asyncio.get_running_loop()
    for name in ("create_pipe_connection", "start_serving_pipe"):
        monkeypatch.setattr(loop, name, getattr(pipes, name), raising=False)


@aio
async def test_a_name_outside_the_pipe_folder_is_refused() -> None:
    with pytest.raises(UsageError, match="not a pipe name"):
        await connect_named_pipe("C:\\file", timeout=1)


@aio
async def test_a_loop_without_named_pipes_is_refused() -> None:
    with pytest.raises(UsageError, match="does not support named pipes"):
        await connect_named_pipe(NAME, timeout=1)


@aio
async def test_connecting_gives_the_stream_or_a_connect_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use(monkeypatch, FakePipes())
    stream = await connect_named_pipe(NAME, timeout=1)
    await stream.aclose()
    use(monkeypatch, FakePipes(FileNotFoundError(2, "no such pipe")))
    with pytest.raises(ConnectError, match="no such pipe"):
        await connect_named_pipe(NAME, timeout=1)
    use(monkeypatch, FakePipes(TimeoutError()))
    with pytest.raises(ConnectError, match="within 1 s"):
        await connect_named_pipe(NAME, timeout=1)


@aio
async def test_served_connections_get_a_handler_and_closing_stops_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pipes = FakePipes()
    use(monkeypatch, pipes)
    handled = asyncio.Event()

    async def handler(stream: Stream) -> None:
        handled.set()

    listener = await listen_named_pipe(NAME, handler)
    assert listener.address == NAME
    ours, theirs = socket.socketpair()
    await asyncio.get_running_loop().create_connection(pipes.factory, sock=ours)
    async with asyncio.timeout(5):
        await handled.wait()
    await listener.aclose()
    assert pipes.server.closed
    theirs.close()


@aio
async def test_a_pipe_with_a_server_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    async def handler(stream: Stream) -> None:
        raise AssertionError

    denied = PermissionError(13, "access denied")
    denied.winerror = 5  # type: ignore[attr-defined]
    use(monkeypatch, FakePipes(denied))
    with pytest.raises(AddressInUse):
        await listen_named_pipe(NAME, handler)
    use(monkeypatch, FakePipes(OSError(22, "bad name")))
    with pytest.raises(UsageError, match="bad name"):
        await listen_named_pipe(NAME, handler)
