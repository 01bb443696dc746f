"""Read a client's capabilities from its `initialize` request before the peer is connected.

The peer's own handshake needs them. The bytes read early are delivered again to the connection that
then serves the client.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

import msgspec

from dragoman.dialects.acp import v1 as acp
from dragoman.errors import ConnectionLost
from dragoman.transports.base import Receiver, Stream
from dragoman.wire import messages
from dragoman.wire.framing import Framer

GREETING_TIMEOUT: Final = 2.0
"""Seconds to wait for the first line. Editors send it at once; a person who tries the program
by hand should not have to wait for its output."""


class EarlyInitialize(Stream):
    """A stream whose first bytes were read early and are delivered again."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._receiver: Receiver | None = None
        self._early: list[bytes] = []
        self._framer = Framer()
        self._first: bytes | None = None
        self._ended: ConnectionLost | None = None
        self._line = asyncio.Event()

    async def greeting(self, timeout: float = GREETING_TIMEOUT) -> bytes:
        """Read the first line, pause reading, and return the line. If it is not complete within
        `timeout`, or the stream ends before, return the part of it that has arrived."""
        self._stream.start(self)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._line.wait()
        self._stream.pause_reading()
        return self._framer.end() or b"" if self._first is None else self._first

    # -- called by the stream

    def data_received(self, data: bytes) -> None:
        if self._receiver is not None:
            self._receiver.data_received(data)
            return
        self._early.append(data)
        lines = self._framer.feed(data) if self._first is None else []
        if lines:
            self._first = lines[0]
        if lines or self._framer.overflowed:
            self._line.set()

    def stream_ended(self, failure: ConnectionLost) -> None:
        self._line.set()
        if self._receiver is not None:
            self._receiver.stream_ended(failure)
        else:
            self._ended = failure

    # -- a stream

    def start(self, receiver: Receiver) -> None:
        asyncio.get_running_loop().call_soon(self._begin, receiver)

    def _begin(self, receiver: Receiver) -> None:
        self._receiver = receiver
        early, self._early = b"".join(self._early), []
        if early:
            receiver.data_received(early)
        if self._ended is not None:
            receiver.stream_ended(self._ended)
        else:
            self._stream.resume_reading()

    def write(self, data: bytes) -> None:
        self._stream.write(data)

    @property
    def unsent_size(self) -> int:
        return self._stream.unsent_size

    async def drain(self) -> None:
        await self._stream.drain()

    def pause_reading(self) -> None:
        self._stream.pause_reading()

    def resume_reading(self) -> None:
        self._stream.resume_reading()

    async def aclose(self) -> None:
        await self._stream.aclose()


def offered(greeting: bytes) -> acp.ClientCapabilities:
    """Return the capabilities in a client's first line; empty if it is not an ACP handshake."""
    message = messages.decode(greeting)
    if isinstance(message, messages.Request) and message.method == acp.INITIALIZE.name:
        with contextlib.suppress(msgspec.ValidationError):
            return acp.INITIALIZE.decode_params(message.params).client_capabilities
    return acp.ClientCapabilities()
