"""Frames and lines, closing, pings and pauses, against the library's own client and server."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Callable

import pytest
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as library_connect
from websockets.asyncio.server import ServerConnection
from websockets.asyncio.server import serve as library_serve

from dragoman.errors import (
    ConnectionBroken,
    ConnectionClosed,
    ConnectionEnded,
    ConnectionLost,
    LineTooLong,
    UsageError,
)
from dragoman.transports import websocket_stream
from dragoman.transports.base import HIGH_WATER_SIZE, Stream
from dragoman.transports.websocket import connect_websocket, listen_websocket
from dragoman.transports.websocket_stream import WebSocketStream
from tests.aio import aio


class Recorder:
    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.ends: list[ConnectionLost] = []
        self.arrived = asyncio.Event()
        self.ended = asyncio.Event()
        self.on_data: Callable[[], None] = lambda: None

    @property
    def data(self) -> bytes:
        return b"".join(self.chunks)

    def data_received(self, data: bytes) -> None:
        assert data
        assert not self.ends
        self.chunks.append(data)
        self.arrived.set()
        self.on_data()

    def stream_ended(self, failure: ConnectionLost) -> None:
        self.ends.append(failure)
        self.ended.set()
        self.arrived.set()

    async def until(self, size: int) -> bytes:
        async with asyncio.timeout(10):
            while len(self.data) < size:
                assert not self.ends
                self.arrived.clear()
                await self.arrived.wait()
        return self.data

    async def end(self) -> ConnectionLost:
        async with asyncio.timeout(10):
            await self.ended.wait()
        [failure] = self.ends
        return failure


@contextlib.asynccontextmanager
async def server_of_the_library(
    *, max_message_size: int = 1024 * 1024, ping_interval: float | None = None
) -> AsyncIterator[tuple[WebSocketStream, ServerConnection, Recorder]]:
    """Our stream as the client, and the library's connection as the server."""
    accepted: asyncio.Future[ServerConnection] = asyncio.get_running_loop().create_future()

    async def handler(connection: ServerConnection) -> None:
        accepted.set_result(connection)
        await connection.wait_closed()

    async with library_serve(handler, "127.0.0.1", 0, close_timeout=1) as server:
        port = server.sockets[0].getsockname()[1]
        ours = await connect_websocket(
            f"ws://127.0.0.1:{port}/",
            max_message_size=max_message_size,
            ping_interval=ping_interval,
        )
        heard = Recorder()
        ours.start(heard)
        yield ours, await accepted, heard
        await ours.aclose()
    assert len(heard.ends) == 1


@contextlib.asynccontextmanager
async def client_of_the_library(
    *, max_message_size: int = 1024 * 1024
) -> AsyncIterator[tuple[WebSocketStream, ClientConnection, Recorder]]:
    """Our stream as the server, and the library's connection as the client."""
    accepted: asyncio.Future[WebSocketStream] = asyncio.get_running_loop().create_future()
    heard = Recorder()

    async def handler(stream: Stream) -> None:
        assert isinstance(stream, WebSocketStream)
        stream.start(heard)
        accepted.set_result(stream)
        await heard.ended.wait()

    async with (
        await listen_websocket(
            "127.0.0.1", 0, handler, max_message_size=max_message_size
        ) as listener,
        library_connect(listener.address, close_timeout=1) as theirs,
    ):
        ours = await accepted
        yield ours, theirs, heard
        await ours.aclose()
    assert len(heard.ends) == 1


@aio
async def test_each_line_is_one_text_frame_and_each_frame_one_line() -> None:
    async with server_of_the_library() as (ours, theirs, heard):
        ours.write(b'{"a":1}\n{"b":2}\n')
        ours.write(b'{"c":3}\n')
        assert [await theirs.recv() for _ in range(3)] == ['{"a":1}', '{"b":2}', '{"c":3}']
        await theirs.send('{"d":4}')
        await theirs.send('{"e":5}')
        assert await heard.until(16) == b'{"d":4}\n{"e":5}\n'


@aio
async def test_newlines_inside_a_frame_become_spaces() -> None:
    async with client_of_the_library() as (_ours, theirs, heard):
        await theirs.send('{\r\n "a":\n1}')
        await theirs.send("plain")
        assert await heard.until(18) == b'{   "a": 1}\nplain\n'


@aio
async def test_a_message_in_fragments_is_one_line() -> None:
    async with client_of_the_library() as (_ours, theirs, heard):
        await theirs.send(["one ", "", "two\n", "three"])
        assert await heard.until(14) == b"one two three\n"


@aio
async def test_binary_messages_are_counted_and_not_delivered() -> None:
    async with client_of_the_library() as (ours, theirs, heard):
        await theirs.send(b"binary")
        await theirs.send([b"in ", b"fragments"])
        await theirs.send("text")
        assert await heard.until(5) == b"text\n"
        assert ours.ignored_frames == 2


@pytest.mark.parametrize("fragments", [1, 4])
@aio
async def test_a_message_over_the_limit_ends_the_stream_as_too_long(fragments: int) -> None:
    async with client_of_the_library(max_message_size=1000) as (ours, theirs, heard):
        await theirs.send("x" * 1000)
        await theirs.send(["y" * (1004 // fragments)] * fragments)
        failure = await heard.end()
        assert isinstance(failure, LineTooLong)
        assert failure.limit == 1000
        assert heard.data == b"x" * 1000 + b"\n"
        with pytest.raises(LineTooLong):
            ours.write(b"more\n")


@pytest.mark.parametrize(
    ("code", "reason", "message"),
    [
        (1000, "", "ended the stream"),
        (1001, "", "ended the stream"),
        (1011, "out of memory", "1011.*out of memory"),
        (3999, "because", "3999.*because"),
    ],
)
@aio
async def test_a_close_frame_is_an_end_by_them_with_its_reason(
    code: int, reason: str, message: str
) -> None:
    async with server_of_the_library() as (ours, theirs, heard):
        await theirs.send("last")
        await theirs.close(code, reason)
        failure = await heard.end()
        assert type(failure) is ConnectionEnded
        assert heard.data == b"last\n"
        with pytest.raises(ConnectionEnded, match=message):
            ours.write(b"more\n")
        with pytest.raises(ConnectionEnded):
            await ours.drain()


@aio
async def test_a_connection_cut_without_a_close_frame_is_broken() -> None:
    async with server_of_the_library() as (ours, theirs, heard):
        await theirs.send("last")
        await heard.until(5)
        theirs.transport.abort()
        assert type(await heard.end()) is ConnectionBroken
        with pytest.raises(ConnectionBroken):
            ours.write(b"more\n")
        assert ours.unsent_size == 0


@aio
async def test_frames_that_break_the_protocol_break_the_stream() -> None:
    async with client_of_the_library() as (_ours, theirs, heard):
        # The reserved opcode 3, with a mask and no payload.
        theirs.transport.write(b"\x83\x80\x00\x00\x00\x00")
        failure = await heard.end()
        assert type(failure) is ConnectionBroken
        assert "protocol" in str(failure)


@aio
async def test_closing_sends_what_was_written_and_a_normal_close_frame() -> None:
    async with server_of_the_library() as (ours, theirs, heard):
        size = 2 * 1024 * 1024
        theirs.protocol.max_message_size = None
        ours.write(b"x" * size + b"\n")
        closing = asyncio.gather(ours.aclose(), ours.aclose())
        await asyncio.sleep(0)
        with pytest.raises(ConnectionClosed):
            ours.write(b"more\n")
        assert len(await theirs.recv()) == size
        async with asyncio.timeout(10):
            await closing
            await theirs.wait_closed()
        assert theirs.close_code == 1000
        assert type(await heard.end()) is ConnectionClosed


@pytest.mark.parametrize("cancelled", [False, True])
@aio
async def test_closing_does_not_wait_long_for_a_silent_peer(
    cancelled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket_stream, "CLOSE_TIMEOUT", 0.01)
    async with server_of_the_library() as (ours, theirs, heard):
        theirs.transport.pause_reading()
        async with asyncio.TaskGroup() as group:
            closing = group.create_task(ours.aclose())
            await asyncio.sleep(0)
            if cancelled:
                closing.cancel()
        assert type(await heard.end()) is ConnectionClosed
        theirs.transport.abort()


@aio
async def test_a_peer_that_says_goodbye_and_stays_is_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(websocket_stream, "CLOSE_TIMEOUT", 0.01)
    gone = asyncio.Event()

    async def stays(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await shake_hands(reader, writer)
        writer.write(b"\x88\x02" + struct.pack("!H", 1000))
        # Everything after the handshake, until the other side lets go.
        await reader.read()
        gone.set()
        writer.close()

    async with await asyncio.start_server(stays, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        ours = await connect_websocket(f"ws://127.0.0.1:{port}/")
        heard = Recorder()
        ours.start(heard)
        assert type(await heard.end()) is ConnectionEnded
        async with asyncio.timeout(10):
            await gone.wait()
        await ours.aclose()
        server.close()


@aio
async def test_a_peer_that_hangs_up_without_a_close_frame_and_does_not_read_is_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(websocket_stream, "CLOSE_TIMEOUT", 0.01)
    over, gone = asyncio.Event(), asyncio.Event()

    async def hangs_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await shake_hands(reader, writer)
        await reader.readexactly(1)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write_eof()
        await over.wait()
        writer.transport.abort()
        gone.set()

    async with await asyncio.start_server(hangs_up, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        ours = await connect_websocket(f"ws://127.0.0.1:{port}/", ping_interval=None)
        heard = Recorder()
        ours.start(heard)
        # More than the buffers of the connection take, so that some of it stays unsent.
        ours.write(b"x" * 32 * 1024 * 1024 + b"\n")
        failure = await heard.end()
        assert type(failure) is ConnectionBroken
        with pytest.raises(ConnectionBroken):
            ours.write(b"{}\n")
        await ours.aclose()
        over.set()
        await gone.wait()
        await asyncio.sleep(0)
        server.close()


async def shake_hands(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """The server's half of the handshake, and nothing else of the protocol."""
    from websockets.utils import accept_key

    request = await reader.readuntil(b"\r\n\r\n")
    [key] = [
        line.split(b":", 1)[1].strip()
        for line in request.split(b"\r\n")
        if line.lower().startswith(b"sec-websocket-key:")
    ]
    writer.write(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: " + accept_key(key.decode()).encode() + b"\r\n\r\n"
    )


@contextlib.asynccontextmanager
async def mute_server() -> AsyncIterator[tuple[str, asyncio.Event]]:
    """Shakes hands, then reads everything and says nothing, not even to pings."""
    pinged = asyncio.Event()
    over = asyncio.Event()

    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await shake_hands(reader, writer)
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                if data[0] == 0x89:
                    pinged.set()
        writer.close()
        over.set()

    async with await asyncio.start_server(mute, "127.0.0.1", 0) as server:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/", pinged
        async with asyncio.timeout(10):
            await over.wait()
        server.close()


@aio
async def test_pings_without_any_sign_of_life_break_the_stream() -> None:
    async with mute_server() as (url, pinged):
        ours = await connect_websocket(url, ping_interval=0.01)
        heard = Recorder()
        ours.start(heard)
        failure = await heard.end()
        assert type(failure) is ConnectionBroken
        assert "sent nothing for 0.02 s" in str(failure)
        assert pinged.is_set()
        await ours.aclose()


@aio
async def test_answered_pings_keep_a_quiet_stream_open() -> None:
    async with server_of_the_library(ping_interval=0.002) as (ours, theirs, heard):
        pings = 0
        all_seen = asyncio.Event()
        original = theirs.protocol.recv_frame

        def counted(frame: object) -> None:
            nonlocal pings
            pings += 1
            if pings == 5 * websocket_stream.PINGS_UNANSWERED:
                all_seen.set()
            original(frame)  # type: ignore[arg-type]

        theirs.protocol.recv_frame = counted  # type: ignore[method-assign]
        async with asyncio.timeout(10):
            await all_seen.wait()
        assert heard.ends == []
        await theirs.send("still here")
        await heard.until(11)
        assert ours.unsent_size == 0


@aio
async def test_a_pause_of_ours_is_not_taken_for_the_death_of_the_peer() -> None:
    async with server_of_the_library() as (ours, theirs, heard):
        ours.pause_reading()
        total = await fill(ours, theirs)
        for _ in range(10 * websocket_stream.PINGS_UNANSWERED):
            ours._ping()
        assert heard.ends == []
        ours.resume_reading()
        assert len(await heard.until(total)) == total


async def fill(ours: WebSocketStream, theirs: ServerConnection) -> int:
    """Send until our paused side takes no more. Returns the size of the lines that makes."""
    total = 0
    while not (ours._stopped and theirs.transport.get_write_buffer_size() > HIGH_WATER_SIZE):
        theirs.protocol.send_text(b"x" * 65536)
        theirs.send_data()
        total += 65537
        await asyncio.sleep(0)
    return total


@aio
async def test_a_pause_holds_the_data_and_the_sender_and_resuming_loses_nothing() -> None:
    async with server_of_the_library() as (ours, theirs, heard):
        heard.on_data = ours.pause_reading
        await theirs.send("first")
        await heard.until(6)
        heard.chunks.clear()
        total = await fill(ours, theirs)
        assert heard.chunks == []
        heard.on_data = lambda: None
        ours.resume_reading()
        assert len(await heard.until(total)) == total


@aio
async def test_a_paused_stream_still_answers_pings() -> None:
    async with server_of_the_library() as (ours, theirs, heard):
        ours.pause_reading()
        await theirs.send("held")
        async with asyncio.timeout(10):
            await (await theirs.ping())
        assert heard.data == b""
        ours.resume_reading()
        await heard.until(5)


@aio
async def test_the_end_waits_behind_a_pause_but_writes_fail_at_once() -> None:
    async with server_of_the_library() as (ours, theirs, heard):
        ours.pause_reading()
        await theirs.send("last")
        await theirs.close()
        with pytest.raises(ConnectionEnded):
            while True:
                ours.write(b"x\n")
                await asyncio.sleep(0)
        assert (heard.data, heard.ends) == (b"", [])
        ours.resume_reading()
        assert type(await heard.end()) is ConnectionEnded
        assert heard.data == b"last\n"


@aio
async def test_the_end_waits_for_a_receiver_that_pauses_in_its_last_delivery() -> None:
    async with server_of_the_library() as (ours, theirs, heard):
        heard.on_data = ours.pause_reading
        theirs.protocol.send_text(b"last")
        theirs.protocol.send_close(1000)
        theirs.send_data()
        await heard.until(5)
        async with asyncio.timeout(10):
            await theirs.wait_closed()
            await ours._connection.wait_closed()
        assert heard.ends == []
        ours.resume_reading()
        assert type(await heard.end()) is ConnectionEnded


@aio
async def test_closing_a_paused_stream_that_is_full_still_shakes_hands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # So that only the handshake can bring the end.
    monkeypatch.setattr(websocket_stream, "CLOSE_TIMEOUT", 60)
    async with server_of_the_library() as (ours, theirs, heard):
        ours.pause_reading()
        await fill(ours, theirs)
        async with asyncio.timeout(10):
            await ours.aclose()
            await theirs.wait_closed()
        assert theirs.close_code == 1000
        assert type(await heard.end()) is ConnectionClosed
        assert heard.data == b""


@aio
async def test_drain_waits_for_a_slow_reader_and_raises_when_the_peer_is_gone() -> None:
    async with server_of_the_library() as (ours, theirs, heard):
        theirs.transport.pause_reading()
        while ours.unsent_size <= HIGH_WATER_SIZE:
            ours.write(b"x" * 65536 + b"\n")

        async def drain() -> None:
            with pytest.raises(ConnectionLost):
                await ours.drain()

        async with asyncio.timeout(10), asyncio.TaskGroup() as group:
            waiting = group.create_task(drain())
            await asyncio.sleep(0)
            assert not waiting.done()
            theirs.transport.abort()
        assert type(await heard.end()) is ConnectionBroken


@aio
async def test_a_second_start_is_refused_and_a_late_one_hears_the_end() -> None:
    async with server_of_the_library() as (ours, _theirs, heard):
        with pytest.raises(UsageError):
            ours.start(heard)
    async with mute_server() as (url, _):
        late = await connect_websocket(url)
        late._connection.transport.abort()
        await late.aclose()
        heard = Recorder()
        late.start(heard)
        assert type(await heard.end()) is ConnectionClosed
