"""The stream over one WebSocket connection, on either side.

Turns lines into text frames and back, and handles the bounded closing handshake and the pings.
Takes frames from a connection of the `websockets` library as they are parsed, without a task or
queue in between. Opening connections and authorization are in `websocket`.

One text frame is one message. A newline inside a frame can only be JSON white space, so it becomes
a space, and the frame becomes a line. Binary frames are counted and ignored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from websockets.exceptions import PayloadTooBig, ProtocolError
from websockets.frames import Frame, Opcode
from websockets.protocol import State

from dragoman.errors import (
    ConnectionBroken,
    ConnectionClosed,
    ConnectionEnded,
    ConnectionLost,
    LineTooLong,
)
from dragoman.transports.base import EventedStream, Receiver

if TYPE_CHECKING:
    from websockets.http11 import Response

CLOSE_TIMEOUT = 2.0
"""Timeout in seconds for flushing pending writes and the closing handshake. A live peer answers
within a round trip; a dead one must not hold up our exit."""

PINGS_UNANSWERED = 2
"""Number of ping intervals without any traffic after which the connection is given up."""

READ_AHEAD_SIZE = 256 * 1024
"""Number of bytes that are still read while reading is paused. Pings of the other side are answered
only while bytes are read, so a short pause must not stop that."""

_SPACES = bytes.maketrans(b"\r\n", b"  ")


class WebSocketStream(EventedStream):
    """A stream over a connection of the library. Owns the connection."""

    def __init__(
        self, connection: FrameTap, *, max_message_size: int, ping_interval: float | None
    ) -> None:
        super().__init__()
        self._connection = connection
        self._max_message_size = max_message_size
        self._ping_interval = ping_interval
        self._ping_timer: asyncio.TimerHandle | None = None
        self._close_timer: asyncio.TimerHandle | None = None
        self._unanswered = 0
        self._last_unsent_size = 0
        self._heard = False
        self._partial: bytearray | None = None
        self._partial_is_text = False
        self._held: list[bytes] = []
        self._held_size = 0
        # The stream counts as paused until it is started.
        self._paused = True
        self._stopped = False
        self.ignored_frames = 0
        """Number of binary messages that arrived and were dropped."""

    @property
    def subprotocol(self) -> str | None:
        """The subprotocol negotiated in the handshake, or None."""
        return self._connection.subprotocol

    @property
    def response_headers(self) -> Mapping[str, str]:
        """The headers of the server's response in the handshake; empty if there is none."""
        response = self._connection.response
        return {} if response is None else response.headers

    def start(self, receiver: Receiver) -> None:
        if self._take(receiver):
            self.resume_reading()

    def write(self, data: bytes) -> None:
        self._refuse()
        protocol = self._connection.protocol
        for line in data.split(b"\n"):
            if line:
                protocol.send_text(line)
        # One write for all of them: one system call.
        frames = protocol.data_to_send()
        self._connection.transport.write(frames[0] if len(frames) == 1 else b"".join(frames))

    @property
    def unsent_size(self) -> int:
        if self._connection.state is State.CLOSED:
            return 0
        return self._connection.transport.get_write_buffer_size()

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        if self._paused and self._receiver is not None and self._failure is None:
            self._paused = False
            self._loop.call_soon(self._deliver)

    async def aclose(self) -> None:
        if not self._closing:
            self._closing = True
            self._room.set()
            self._forget_held()
            # All of this continues by itself if the caller is cancelled.
            connection = self._connection
            if connection.state is State.OPEN:
                connection.protocol.send_close(1000)
                connection.send_data()
            if connection.state is not State.CLOSED:
                self._limit_closing()
        await self._connection.wait_closed()
        self._finish(ConnectionClosed())

    def _opened(self) -> None:
        """Called when the handshake is done."""
        self._schedule_ping()

    def _frame(self, frame: Frame) -> None:
        """Handle one data frame. The library has checked its size and order."""
        if self._closing:
            return
        if self._partial is None:
            is_text = frame.opcode is Opcode.TEXT
            if not frame.fin:
                self._partial, self._partial_is_text = bytearray(frame.data), is_text
                return
            data = frame.data
        else:
            self._partial += frame.data
            if not frame.fin:
                return
            data, is_text = self._partial, self._partial_is_text
            self._partial = None
        if not is_text:
            self.ignored_frames += 1
            return
        line = b"".join((data, b"\n"))
        if line.find(b"\n") != len(line) - 1 or b"\r" in line:
            line = line[:-1].translate(_SPACES) + b"\n"
        self._held.append(line)
        self._held_size += len(line)

    def _data_taken(self) -> None:
        """Called when all frames of one read were handled."""
        self._heard = True
        if self._connection.state is not State.OPEN and self._end is None:
            self._end = self._verdict()
            self._room.set()
            self._limit_closing()
        if self._paused and self._held_size > READ_AHEAD_SIZE and not self._stopped:
            self._stopped = True
            self._connection.transport.pause_reading()
        self._deliver()

    def _lost(self) -> None:
        """Called when the underlying connection is gone."""
        self._room.set()
        for timer in (self._ping_timer, self._close_timer):
            if timer is not None:
                timer.cancel()
        if self._end is None:
            self._end = self._verdict()
        if self._closing:
            self._finish(ConnectionClosed())
        else:
            self._deliver()

    def _deliver(self) -> None:
        if self._paused or self._receiver is None or self._failure is not None:
            return
        if self._stopped and not self._closing:
            self._stopped = False
            self._connection.transport.resume_reading()
        if self._held:
            data = self._held[0] if len(self._held) == 1 else b"".join(self._held)
            self._forget_held()
            self._receiver.data_received(data)
        self._finish_if_done()

    def _finish_if_done(self) -> None:
        if self._end is not None and not self._held and not self._paused and not self._closing:
            self._finish(self._end)

    def _forget_held(self) -> None:
        self._held.clear()
        self._held_size = 0
        if self._closing and self._stopped:
            # The answer to our close frame has to be read.
            self._stopped = False
            self._connection.transport.resume_reading()

    def _finish(self, failure: ConnectionLost) -> None:
        if self._failure is None:
            self._failure = failure
            if self._receiver is not None:
                self._receiver.stream_ended(failure)

    def _verdict(self) -> ConnectionLost:
        """Return the failure that describes how the connection ended."""
        protocol = self._connection.protocol
        cause = protocol.parser_exc
        if isinstance(cause, PayloadTooBig):
            return LineTooLong(self._max_message_size)
        if isinstance(cause, ProtocolError):
            return ConnectionBroken(f"the other side broke the WebSocket protocol: {cause}")
        closed = protocol.close_rcvd
        if closed is None:
            error = self._connection.connection_exc
            return ConnectionBroken(f"the WebSocket was cut off{f': {error}' if error else ''}")
        if closed.code in (1000, 1001, 1005):
            return ConnectionEnded()
        return ConnectionEnded(f"the other side closed the WebSocket: {closed}")

    def _limit_closing(self) -> None:
        if self._close_timer is None:
            abort = self._connection.transport.abort
            self._close_timer = self._loop.call_later(CLOSE_TIMEOUT, abort)

    def _schedule_ping(self) -> None:
        if self._ping_interval is not None:
            self._ping_timer = self._loop.call_later(self._ping_interval, self._ping)

    def _ping(self) -> None:
        if self._connection.state is not State.OPEN:
            return
        unsent_size = self.unsent_size
        # Traffic in either direction is a sign of life. While we read nothing, we cannot see an
        # answer.
        if self._heard or self._stopped or unsent_size < self._last_unsent_size:
            self._unanswered = 0
        elif self._unanswered == PINGS_UNANSWERED:
            assert self._ping_interval is not None
            silence = self._ping_interval * PINGS_UNANSWERED
            self._end = ConnectionBroken(
                f"the other side sent nothing for {silence:g} s, not even a pong"
            )
            self._connection.transport.abort()
            return
        self._unanswered += 1
        self._heard = False
        self._last_unsent_size = unsent_size
        self._connection.protocol.send_ping(b"")
        self._connection.send_data()
        self._schedule_ping()


class FrameTap:
    """Mixed into the library's connections: passes frames to a stream as they are parsed."""

    if TYPE_CHECKING:
        protocol: Any
        transport: asyncio.Transport
        connection_exc: BaseException | None
        response: Response | None

        @property
        def state(self) -> State: ...
        @property
        def subprotocol(self) -> str | None: ...
        def send_data(self) -> None: ...
        async def wait_closed(self) -> None: ...

    stream: WebSocketStream

    def process_event(self, event: Any) -> None:
        if isinstance(event, Frame) and event.opcode <= Opcode.BINARY:
            self.stream._frame(event)
        else:
            super().process_event(event)  # type: ignore[misc]

    def data_received(self, data: bytes) -> None:
        super().data_received(data)  # type: ignore[misc]
        if self.state is not State.CONNECTING:
            self.stream._data_taken()

    def eof_received(self) -> None:
        # Without a close frame before it, nothing else would end the stream while data is unsent.
        super().eof_received()  # type: ignore[misc]
        if self.state is not State.CONNECTING:
            self.stream._data_taken()

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)  # type: ignore[misc]
        self.stream._lost()

    def pause_writing(self) -> None:
        super().pause_writing()  # type: ignore[misc]
        self.stream._room.clear()

    def resume_writing(self) -> None:
        super().resume_writing()  # type: ignore[misc]
        self.stream._room.set()
