"""A pair of connected in-memory streams in one event loop.

Behaves like a real transport: delivery in a later iteration of the loop, order, back-pressure with
a fixed buffer, and the three failures. It is public: programs use it to embed an agent, and tests
need no process. It opens nothing and reads no clock. `dragoman.testing.faults` adds faults from
outside.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any

from dragoman.errors import (
    ConnectionBroken,
    ConnectionClosed,
    ConnectionEnded,
    ConnectionLost,
)
from dragoman.transports.base import HIGH_WATER_SIZE, READ_SIZE, OwnStream, Receiver

BUFFER_SIZE = 64 * 1024
"""Number of bytes buffered in each direction before bytes count as unsent: the size of a pipe."""


def memory_pair(*, buffer_size: int = BUFFER_SIZE) -> tuple[MemoryStream, MemoryStream]:
    """Return two connected streams: what is written to one arrives at the other. Up to
    `buffer_size` bytes in each direction count as sent although they are not yet read."""
    one, two = MemoryStream(buffer_size), MemoryStream(buffer_size)
    one._twin, two._twin = two, one
    return one, two


def line_pair() -> tuple[LineStream, LineStream]:
    """Return two connected streams that deliver lists of lines instead of bytes, so that lines need
    not be joined and split again; see `LineStream`."""
    one, two = LineStream(BUFFER_SIZE), LineStream(BUFFER_SIZE)
    one._twin, two._twin = two, one
    return one, two


class MemoryStream(OwnStream):
    """One end of an in-memory pair of streams. Created only by `memory_pair`."""

    _twin: MemoryStream

    def __init__(self, buffer_size: int) -> None:
        super().__init__()
        self._buffer_size = buffer_size
        self._arriving: deque[Any] = deque()
        self._arriving_size = 0
        self._paused = False
        self._scheduled = False
        # The end queues behind data that arrived before it, and becomes the failure once reported.
        self._end: ConnectionLost | None = None
        self._waiters: list[asyncio.Future[None]] = []

    def start(self, receiver: Receiver) -> None:
        self._take(receiver)
        self._schedule()

    def write(self, data: bytes) -> None:
        self._send(data, len(data))

    def _send(self, data: Any, size: int) -> None:
        refusal = self._refusal()
        if refusal is not None:
            raise refusal
        twin = self._twin
        # A closed twin accepts nothing, but this side learns of it by end of stream, as with a
        # socket: the operating system accepts what the other side will never read.
        if size and twin._failure is None and twin._end is None:
            twin._arriving.append(data)
            twin._arriving_size += size
            twin._schedule()

    @property
    def unsent_size(self) -> int:
        return max(0, self._twin._arriving_size - self._buffer_size)

    async def drain(self) -> None:
        while (refusal := self._refusal()) is None and self.unsent_size > HIGH_WATER_SIZE:
            waiter = self._loop.create_future()
            self._waiters.append(waiter)
            await waiter
        if refusal is not None:
            raise refusal

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        self._schedule()

    async def aclose(self) -> None:
        self.close()

    def close(self) -> None:
        """Do what `aclose` does, synchronously: in memory there is nothing to wait for."""
        if self._failure is None:
            self._twin._expect(ConnectionEnded())
            self._finish(ConnectionClosed())

    def break_link(self, message: str = "the link was broken") -> None:
        """Simulate a broken connection: at both ends writing fails at once, and `ConnectionBroken`
        with this message is reported after the data that had already arrived."""
        self._twin._expect(ConnectionBroken(message))
        self._expect(ConnectionBroken(message))

    def _refusal(self) -> ConnectionLost | None:
        if self._failure is not None:
            return self._failure.fresh()
        # A broken link refuses at once; the end of the other side is reported in order.
        return self._end.fresh() if isinstance(self._end, ConnectionBroken) else None

    def _expect(self, end: ConnectionLost) -> None:
        if self._end is None and self._failure is None:
            self._end = end
            self._wake_writers()
            self._schedule()

    def _schedule(self) -> None:
        if (
            (self._arriving or self._end is not None)
            and not self._scheduled
            and not self._paused
            and self._receiver is not None
            and self._failure is None
        ):
            self._scheduled = True
            self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        self._scheduled = False
        if self._paused or self._failure is not None or self._receiver is None:
            return
        if not self._arriving:
            if self._end is not None:
                self._finish(self._end)
            return
        data, size = self._next()
        self._arriving_size -= size
        if self._twin._waiters:
            self._twin._wake_writers()
        self._schedule()
        self._receiver.data_received(data)

    def _next(self) -> tuple[Any, int]:
        # Small writes arrive together, as from a pipe, but one iteration never delivers much more
        # than one read would.
        data = self._arriving.popleft()
        if self._arriving and len(data) < READ_SIZE:
            parts, size = [data], len(data)
            while self._arriving and size + len(self._arriving[0]) <= READ_SIZE:
                parts.append(self._arriving.popleft())
                size += len(parts[-1])
            data = b"".join(parts)
        return data, len(data)

    def _finish(self, failure: ConnectionLost) -> None:
        self._failure = failure
        self._arriving.clear()
        self._arriving_size = 0
        self._wake_writers()
        self._twin._wake_writers()
        if self._receiver is not None:
            self._receiver.stream_ended(failure)

    def _wake_writers(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


class LineStream(MemoryStream):
    """One end of a `line_pair`. The receiver gets the very objects that were written (a list of
    lines, or of objects that represent lines) and must be able to handle them."""

    def write_lines(self, lines: Sequence[Any], size: int) -> None:
        """Like `write`, for lines that were already split; `size` is their total size in bytes."""
        self._send((lines, size), size)

    def write(self, data: bytes) -> None:
        self.write_lines(data.split(b"\n")[:-1], len(data))

    def _next(self) -> tuple[Any, int]:
        lines, size = self._arriving.popleft()
        return lines, size
