"""Collect outgoing lines, so that many small ones are sent in one system call.

Decides when to write. Lines put here during one iteration of the event loop are passed to the
stream together, at the end of that iteration or as soon as they fill a buffer; those put while
inbound data is handled, as soon as that is done. If both ends take turns, the next line is all
there is to send, so the first one after a lone inbound message is sent at once. The content of
lines is not known here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from dragoman.errors import ConnectionLost, Overflow
from dragoman.transports.base import HIGH_WATER_SIZE, Stream

FLUSH_SIZE: Final = 64 * 1024
"""Number of buffered bytes at which the buffer is flushed before the end of the iteration: as many
as a pipe takes at once."""

MAX_UNSENT_SIZE: Final = 64 * 1024 * 1024
"""Maximum number of unsent bytes when something is written. Above this the peer counts as gone:
senders that can wait were held back long before, so only what is sent without waiting (`post`,
`begin` and responses to the peer's own requests) can have filled the buffer, and the peer does not
read. The size of one message does not matter: it has a limit of its own."""


class Outbox:
    """The writing half of a connection."""

    __slots__ = (
        "_at_once",
        "_failed",
        "_lines",
        "_loop",
        "_maybe_unsent_size",
        "_size",
        "_stream",
        "crowded",
        "held",
    )

    def __init__(self, stream: Stream, failed: Callable[[ConnectionLost], None]) -> None:
        self._stream = stream
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._lines: list[bytes] = []
        self._size = 0
        self._at_once = False
        # An upper bound for what the stream has yet to send: its value when last asked, plus
        # everything written since; asking after every line would cost more than the line.
        self._maybe_unsent_size = 0
        self.held = False
        """Whether lines are only collected: until the end of the iteration, or until `release`.
        Also set by the code that begins to handle inbound data."""
        self.crowded = False
        """Whether `is_full` may be true: an attribute, because every sender checks it."""

    def put(self, line: bytes) -> None:
        """Send a line soon, after the lines before it."""
        self._lines.append(line)
        self._size = size = self._size + len(line)
        if self.held:
            if size >= FLUSH_SIZE:
                self.flush()
        elif self._at_once:
            # `_leave` written out: most requests come this way, and it saves a call.
            self._at_once = False
            self.flush()
        else:
            self._leave(size)

    def _leave(self, size: int) -> None:
        """Flush the collected lines, or schedule that for the end of the iteration."""
        if size >= FLUSH_SIZE:
            self.flush()
        elif self._at_once:
            self._at_once = False
            self.flush()
        else:
            self.held = True
            self._loop.call_soon(self._turn_ended)

    def put_all(self, lines: Sequence[bytes]) -> None:
        """Like `put`, for many lines at once."""
        if lines:
            self._lines += lines[:-1]
            self._size += sum(map(len, lines)) - len(lines[-1])
            self.put(lines[-1])

    def release(self, *, lone: bool) -> None:
        """Called when inbound data was handled: send what was collected. `lone`: whether the data
        was a single message, so that the next line is sent at once."""
        self.held = False
        self._at_once = lone
        if self._lines:
            self.flush()

    def flush(self) -> None:
        """Write everything to the stream now."""
        lines = self._lines
        if len(lines) == 1:
            data = lines.pop() + b"\n"
        elif lines:
            lines.append(b"")
            data = b"\n".join(lines)
            lines.clear()
        else:
            return
        self._size = 0
        try:
            self._stream.write(data)
        except ConnectionLost:
            # Not the end yet: a response may still be on its way to us, and the stream reports
            # soon, and once, why it ended, which is the better reason for pending calls.
            return
        self._maybe_unsent_size = size = self._maybe_unsent_size + len(data)
        if size > HIGH_WATER_SIZE:
            self._look(len(data))

    def _look(self, written_size: int) -> None:
        self._maybe_unsent_size = unsent_size = self._stream.unsent_size
        self.crowded = unsent_size > HIGH_WATER_SIZE
        if unsent_size - written_size > MAX_UNSENT_SIZE:
            self._failed(
                Overflow(
                    f"the peer does not read: more than {MAX_UNSENT_SIZE} bytes are waiting",
                    blame="peer",
                )
            )

    @property
    def is_full(self) -> bool:
        """Whether a sender that can wait should do so (`drain`)."""
        # The unsent size grows only by writing, so there is nothing to check before.
        if self.crowded:
            self._maybe_unsent_size = unsent_size = self._stream.unsent_size
            self.crowded = unsent_size > HIGH_WATER_SIZE
        return self.crowded

    async def drain(self) -> None:
        """Flush, and wait until at most `HIGH_WATER_SIZE` bytes are unsent."""
        self.flush()
        await self._stream.drain()

    def _turn_ended(self) -> None:
        self.held = False
        self.flush()
