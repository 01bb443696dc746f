"""Two pipes as one stream: what standard input and output and Unix sockets have in common.

It owns the life of the pair: who is told what when one direction ends or breaks before the other,
and a close that sends what it can and lets go of both in bounded time. How bytes get through a
descriptor is known to `pipes`; where the descriptors come from, to `stdio` and `sockets`.

A child process has a life of its own besides its pipes, so `process.stream` does not use this.
Their end of the input is the end of the stream, unless somebody asks to go on answering.
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
"""After a failed write: how long we go on reading. The other side's last words are usually in the
buffer already, and its end follows them; one that only refuses our bytes is not worth keeping."""

LAST_WORDS_SIZE = 1024 * 1024
"""How much of what already waits to be read is delivered then: the largest buffer of a pipe."""

_GONE = frozenset({errno.ECONNRESET, errno.EPIPE})
"""A read error that is their end: a Unix socket says so if they closed it with bytes unread."""


class DuplexStream(OwnStream):
    """A stream that reads one descriptor and writes another. It owns both."""

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
        """If set before the start, the end of the input is told to it, and the stream ends only
        when it is closed or nobody reads what we write: some write everything that they want to
        know, close their output and then read the answers."""
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
            # The writer wakes us when there is room or when writing fails. Their end is neither,
            # so it ends the wait by moving its deadline.
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
            # Whoever came first closes, and does so even if cancelled: this wait is bounded.
            await asyncio.shield(self._released)
            return
        self._closing = True
        # While the rest is sent, what arrives is taken and dropped: the other side might read
        # only after it has got rid of its own bytes.
        self._reader.on_data = _discard
        if self._receiver is None and self._writer.unsent_size:
            self._reader.start()
        self.resume_reading()
        try:
            await self._writer.aclose(FLUSH_TIMEOUT)
        finally:
            # No await here, so that a second cancellation finds nothing to interrupt.
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
        """Let go of the descriptors. For subclasses that hold more."""
        self._reader.close()
        self._writer.close()
        if self._broken_timer is not None:
            self._broken_timer.cancel()

    def _reading_ended(self, error: OSError | None) -> None:
        if self._closing:
            return
        if error is None and self.on_input_end is not None:
            # Without a read there is nothing else that would tell us that they have gone.
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
            # What they said last may still be wanted.
            self._writing_broke(error)
            return
        self._reader.close()
        self._end(ConnectionBroken(f"writing failed: {error.strerror}"))

    def _waits(self) -> bool:
        """Whether what arrives has to wait for our side."""
        return self._paused or self._receiver is None

    def _end(self, failure: ConnectionLost) -> None:
        if self._failure is None:
            self._failure = failure
            for scope in self._drains:
                scope.reschedule(self._loop.time())
            if self._receiver is not None:
                self._receiver.stream_ended(failure)


def _discard(data: bytes) -> None:
    """For what arrives while nobody wants it any more."""
