"""Lines on their way out, gathered so that many small ones leave in one system call.

Owns the moment of writing: lines put here during one turn of the event loop are handed to the
stream together, at the end of that turn or as soon as they fill a buffer. It does not know what
the lines say. A lone line waits for nothing but the callbacks that are already due.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from dragoman.errors import ConnectionLost, Overflow
from dragoman.transports.base import HIGH_WATER_SIZE, Stream

FLUSH_SIZE: Final = 64 * 1024
"""A full buffer does not wait for the end of the turn: this is what a pipe takes at once."""

MAX_UNSENT_SIZE: Final = 64 * 1024 * 1024
"""Above this the other side counts as gone: senders that can wait were held back long before, so
only answers to its own requests can have filled the buffer, and it does not read them."""


class Outbox:
    """The writing half of a connection."""

    __slots__ = ("_failed", "_lines", "_loop", "_scheduled", "_size", "_stream")

    def __init__(self, stream: Stream, failed: Callable[[ConnectionLost], None]) -> None:
        self._stream = stream
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._lines: list[bytes] = []
        self._size = 0
        self._scheduled = False

    def put(self, line: bytes) -> None:
        """Send a line soon, after those that were put before it."""
        self._lines.append(line)
        self._size += len(line)
        if self._size >= FLUSH_SIZE:
            self.flush()
        elif not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turn_ended)

    def flush(self) -> None:
        """Hand everything to the stream now."""
        lines = self._lines
        if not lines:
            return
        lines.append(b"")
        data = b"\n".join(lines)
        lines.clear()
        self._size = 0
        try:
            self._stream.write(data)
        except ConnectionLost:
            # Not the end yet: an answer may still be on its way to us, and the stream says soon
            # and once why it is over, which is the better reason to give to those who wait.
            return
        if self._stream.unsent_size > MAX_UNSENT_SIZE:
            self._failed(
                Overflow(
                    f"the other side does not read: more than {MAX_UNSENT_SIZE} bytes are waiting"
                )
            )

    @property
    def is_full(self) -> bool:
        """Whether a sender that can wait should do so (`drain`)."""
        return self._stream.unsent_size > HIGH_WATER_SIZE

    async def drain(self) -> None:
        """Wait until the other side has read enough."""
        self.flush()
        await self._stream.drain()

    def _turn_ended(self) -> None:
        self._scheduled = False
        self.flush()
