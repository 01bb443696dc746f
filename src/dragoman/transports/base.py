"""The interface of every byte stream, and its guarantees.

A stream carries bytes; it does not know what a message is. It only relies on writes being whole
lines, each ended by a newline, because one transport (WebSocket) has to turn lines into frames.
Messages are decoded in `dragoman.rpc`.

A stream fails in three ways and reports the failure once, after the last byte it delivered: closed
by us (`ConnectionClosed`), ended by the other side (`ConnectionEnded`, or `ProcessExited` if the
process died), or broken (`ConnectionBroken`; `LineTooLong` for a WebSocket message that is too
long).
"""

from __future__ import annotations

import abc
import asyncio
import errno
from typing import Protocol

from dragoman.errors import ConnectionClosed, ConnectionLost, UsageError

READ_SIZE = 64 * 1024
"""Size of one read. Above malloc's mmap threshold (128 KiB) every small read maps and unmaps its
buffer, which doubles the latency of sequential calls."""

HIGH_WATER_SIZE = 256 * 1024
"""Number of bytes written but not yet accepted by the operating system above which `drain`
waits."""

FLUSH_TIMEOUT = 2.0
"""How long `aclose` may take to flush pending writes. A live reader drains a full buffer in
milliseconds; a stuck one must not hold up our exit."""

LASTING_ERRORS = frozenset(
    {errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EPROTOTYPE}
)
"""Error numbers of a failed connect that make a retry pointless: the address is forbidden, invalid
or unsuitable. A missing socket file is not among them: its server may be about to start."""


class Receiver(Protocol):
    """Callbacks of a stream. Both are called by the event loop and must not block."""

    def data_received(self, data: bytes) -> None:
        """Called with received bytes, split at any point and never empty."""

    def stream_ended(self, failure: ConnectionLost) -> None:
        """Called when nothing more will arrive, with the reason: exactly once, after the last
        `data_received`."""


class Stream(abc.ABC):
    """One open bidirectional byte stream.

    A new stream is open but delivers nothing until `start`. Call all methods from the event loop's
    thread.
    """

    @property
    def carrier(self) -> Stream:
        """The stream that carries the bytes. A wrapper that only transforms them returns the stream
        that it wraps."""
        return self

    @abc.abstractmethod
    def start(self, receiver: Receiver) -> None:
        """Start to deliver what arrives to `receiver`. Call once."""

    @abc.abstractmethod
    def write(self, data: bytes) -> None:
        """Queue whole lines for sending. Never blocks, and never drops part of a line.

        Raises the stream's failure (a `ConnectionLost`) if the stream is over.
        """

    @property
    @abc.abstractmethod
    def unsent_size(self) -> int:
        """Number of bytes passed to `write` that the operating system has not accepted yet."""

    @abc.abstractmethod
    async def drain(self) -> None:
        """Wait until `unsent_size` is at most `HIGH_WATER_SIZE`. Raises the stream's failure.

        The condition holds when this returns, for each of several waiters: if the first one writes
        again, the next one keeps waiting.
        """

    @abc.abstractmethod
    def pause_reading(self) -> None:
        """Pause delivery (back-pressure). Data already read may still be delivered once.
        Idempotent; no effect on an ended stream."""

    @abc.abstractmethod
    def resume_reading(self) -> None:
        """Undo `pause_reading`. Idempotent; no effect on an ended stream."""

    def hurry(self) -> None:  # noqa: B027
        """Shorten the time that `aclose` gives the other side to end, because it no longer
        responds. No effect unless the other side is a child process: only that gets any time."""

    @abc.abstractmethod
    async def aclose(self) -> None:
        """Release all resources in bounded time, even if cancelled.

        Idempotent, and safe to call from several tasks at once. Pending writes are flushed if that
        is possible within the bound. `stream_ended` has been called when this returns.
        """


class OwnStream(Stream):
    """Base class of the streams in this package: one receiver, and one failure reported to it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._receiver: Receiver | None = None
        self._failure: ConnectionLost | None = None

    def _take(self, receiver: Receiver) -> bool:
        """Set the receiver. Raises `UsageError` if there already is one. Returns False if the
        stream is already over; the receiver is notified of that soon."""
        if self._receiver is not None:
            raise UsageError("the stream has already been started")
        self._receiver = receiver
        if self._failure is not None:
            self._loop.call_soon(receiver.stream_ended, self._failure)
        return self._failure is None


class EventedStream(OwnStream):
    """A stream over a transport that reports when it is writable and when it is over."""

    def __init__(self) -> None:
        super().__init__()
        self._end: ConnectionLost | None = None
        """Why nothing more arrives. It becomes the failure once the receiver has all data before
        it."""
        self._closing = False
        self._room = asyncio.Event()
        self._room.set()

    def _refuse(self) -> None:
        failure = self._failure or self._end
        if failure is not None:
            raise failure.fresh()
        if self._closing:
            raise ConnectionClosed

    async def drain(self) -> None:
        self._refuse()
        # Check again after each wait: other waiters may have written in between.
        while not self._room.is_set():
            await self._room.wait()
            self._refuse()
