"""Two pipes as one stream: the common part of stdio and Unix sockets.

Owns the lifetime of the pair: what is reported when one direction ends or breaks before the other,
and a bounded close that flushes what it can and releases both. Reading and writing a descriptor is
in `pipes`; opening the descriptors in `stdio` and `sockets`. A child process has a lifetime
independent of its pipes, so `process.stream` does not use this. End of input ends the stream unless
`on_input_end` is set.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable

from dragoman.errors import (
    ConnectionBroken,
    ConnectionClosed,
    ConnectionEnded,
    ConnectionLost,
)
from dragoman.transports.base import FLUSH_TIMEOUT, OwnStream, Receiver
from dragoman.transports.pipes import open_read_pipe, open_write_pipe

BROKEN_TIMEOUT = 1.0
"""How long we keep reading after a failed write. The last output of the other side is usually in
the buffer already, followed by its end; a peer that only refuses our bytes is not worth keeping."""

LAST_WORDS_SIZE = 1024 * 1024
"""Maximum number of bytes of buffered input to deliver after `BROKEN_TIMEOUT`: the size of the
largest pipe buffer."""

_GONE = frozenset({errno.ECONNRESET, errno.EPIPE})
"""Read errors that mean end of stream: a Unix socket reports one if the other side closed with
unread bytes."""


class DuplexStream(OwnStream):
    """A stream that reads one descriptor and writes another. Owns both."""

    def __init__(
        self,
        read_fd: int,
        write_fd: int,
        *,
        threaded_read: bool | None = None,
        threaded_write: bool | None = None,
    ) -> None:
        super().__init__()
        self._reader = open_read_pipe(
            read_fd, _discard, self._reading_ended, threaded=threaded_read
        )
        self._writer = open_write_pipe(write_fd, self._writing_broke, threaded=threaded_write)
        self.on_input_end: Callable[[], None] | None = None
        """If set before `start`, called at the end of the input. The stream then ends only when it
        is closed or its output has no reader: some clients write all requests, close their output
        and then read the responses."""
        self._paused = False
        self._closing = False
        self._released: asyncio.Future[None] = self._loop.create_future()
        self._broken_timer: asyncio.TimerHandle | None = None
        self._drains: set[asyncio.Timeout] = set()

    def start(self, receiver: Receiver) -> None:
        if self._take(receiver):
            self._reader.on_data = receiver.data_received
            self._reader.start()

    def write(self, data: bytes) -> None:
        if self._closing or self._failure is not None:
            self._refuse()
        if data:
            self._writer.write(data)

    @property
    def unsent_size(self) -> int:
        return self._writer.unsent_size

    async def drain(self) -> None:
        if self._failure is None:
            # The writer wakes us when it is writable or fails. The end of the stream is neither, so
            # it is signalled by moving the deadline of this wait.
            try:
                async with asyncio.timeout(None) as scope:
                    self._drains.add(scope)
                    await self._writer.drain()
            except TimeoutError:
                pass
            finally:
                self._drains.discard(scope)
        self._refuse()

    def pause_reading(self) -> None:
        if not self._closing:
            self._paused = True
            self._reader.pause()

    def resume_reading(self) -> None:
        if self._paused:
            self._paused = False
            self._reader.resume()

    async def aclose(self) -> None:
        if self._closing:
            # The first caller closes, even if cancelled: this wait is bounded.
            await asyncio.shield(self._released)
            return
        self._closing = True
        # While the rest is sent, input is read and dropped: the other side might only read after it
        # has written everything.
        self._reader.on_data = _discard
        if self._receiver is None and self._writer.unsent_size:
            self._reader.start()
        self.resume_reading()
        try:
            await self._writer.aclose(FLUSH_TIMEOUT)
        finally:
            # No await here, so that a second cancellation has nothing to interrupt.
            try:
                self._release()
            finally:
                self._released.set_result(None)
                self._end(ConnectionClosed())

    def _refuse(self) -> None:
        if self._failure is not None:
            raise self._failure.fresh()
        if self._closing:
            raise ConnectionClosed

    def _release(self) -> None:
        """Release the descriptors. Overridden by subclasses that hold more."""
        self._reader.close()
        self._writer.close()
        if self._broken_timer is not None:
            self._broken_timer.cancel()

    def _reading_ended(self, error: OSError | None) -> None:
        if self._closing:
            return
        if error is None and self.on_input_end is not None:
            # Without a read, nothing else would report that the other side is gone.
            self._writer.watch()
            self.on_input_end()
        elif error is None or error.errno in _GONE:
            self._end(ConnectionEnded())
        else:
            self._end(ConnectionBroken(f"reading failed: {error.strerror}"))

    def _writing_broke(self, error: OSError) -> None:
        self._broken_timer = self._loop.call_later(BROKEN_TIMEOUT, self._give_up, error)

    def _give_up(self, error: OSError) -> None:
        if self._closing or self._failure is not None:
            return
        if not self._waits():
            self._reader.deliver_available(LAST_WORDS_SIZE)
        if self._waits():
            # The receiver may still want the last output.
            self._writing_broke(error)
            return
        self._reader.close()
        self._end(ConnectionBroken(f"writing failed: {error.strerror}"))

    def _waits(self) -> bool:
        """Return whether input has to wait for the receiver."""
        return self._paused or self._receiver is None

    def _end(self, failure: ConnectionLost) -> None:
        if self._failure is None:
            self._failure = failure
            for scope in self._drains:
                scope.reschedule(self._loop.time())
            if self._receiver is not None:
                self._receiver.stream_ended(failure)


def _discard(data: bytes) -> None:
    """Drop input that is no longer wanted."""
