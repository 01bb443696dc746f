"""Read lines from a client's byte stream, with a size limit and back-pressure.

Distinguishes the end of the input from the loss of the client. `stdio_entry` and
`mcp_server.stdio` interpret the lines.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from dragoman.transports.duplex import DuplexStream
from dragoman.wire.framing import Framer

if TYPE_CHECKING:
    from dragoman.errors import ConnectionLost
    from dragoman.transports.base import Stream

_log = logging.getLogger(__name__)

MAX_LINE_SIZE: Final = 4 * 1024 * 1024
"""Maximum size of one message, in bytes. A prompt is far shorter; the limit over HTTP is the
same."""

HIGH_WATER: Final = 16
"""Number of queued lines above which reading pauses."""


class Lines:
    """Starts a stream, and queues the lines that arrive on it."""

    def __init__(self, stream: Stream, on_line: Callable[[bytes], None] | None = None) -> None:
        self.stream = stream
        self.on_line = on_line
        """Called immediately with every line; `next` returns the line as well."""
        self.on_gone: Callable[[], None] | None = None
        self.on_over: Callable[[], None] | None = None
        """Called when no more lines will arrive."""
        self.gone = False
        """Whether the client has disconnected, or has sent a line above the size limit."""
        self._framer = Framer(MAX_LINE_SIZE)
        self._ready: list[bytes] = []
        self._over = False
        self._changed = asyncio.Event()
        if isinstance(stream, DuplexStream):
            stream.on_input_end = self._input_ended
        stream.start(self)

    def data_received(self, data: bytes) -> None:
        self._arrived(self._framer.feed(data))
        if self._framer.overflowed:
            if not self._over:
                _log.warning(
                    "a message is larger than %d bytes: closing the connection", MAX_LINE_SIZE
                )
            self._end()
        if len(self._ready) > HIGH_WATER:
            self.stream.pause_reading()

    def _arrived(self, lines: list[bytes]) -> None:
        if self.on_line is not None:
            for line in lines:
                self.on_line(line)
        self._ready += lines
        self._changed.set()

    def _input_ended(self) -> None:
        """Callback of the stream: nothing more will arrive, but the client may still read."""
        # A last line typed by hand may have no newline.
        self._arrived(self._framer.feed(b"\n"))
        self._over = True
        if self.on_over is not None:
            self.on_over()

    def stream_ended(self, failure: ConnectionLost) -> None:
        self._end()

    def _end(self) -> None:
        self._over = self.gone = True
        self._changed.set()
        if self.on_over is not None:
            self.on_over()
        if self.on_gone is not None:
            self.on_gone()

    @property
    def over(self) -> bool:
        """Whether no more lines will arrive."""
        return self._over

    async def next(self) -> list[bytes] | None:
        """Wait until lines have arrived, and return them. Returns None when there will be no
        more."""
        while not self._ready and not self._over:
            self._changed.clear()
            await self._changed.wait()
        taken, self._ready = self._ready, []
        if self._over and not taken:
            return None
        self.stream.resume_reading()
        return taken
