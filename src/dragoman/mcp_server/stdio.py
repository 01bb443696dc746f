"""The server on standard input and output, for a host that starts it.

Owns the way between our stream of bytes and the message streams of the SDK. Standard output carries
nothing but the protocol (`dragoman.transports.stdio` sees to that). It ends when the input does and
what was asked is answered (`owed`), or when it is told to; unlike the SDK's own, it has no thread
that waits for a line.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

import anyio
import mcp_types as types
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from dragoman.errors import ConnectionLost
from dragoman.mcp_server.owed import Owed
from dragoman.mcp_server.tools import MAX_WAIT
from dragoman.rpc.tasks import TaskOwner, finish
from dragoman.transports.duplex import DuplexStream
from dragoman.transports.stdio import open_stdio
from dragoman.wire.framing import Framer

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

    from dragoman.mcp_server.front import Front
    from dragoman.transports.base import Stream

_log = logging.getLogger(__name__)

MAX_LINE_SIZE: Final = 4 * 1024 * 1024
"""Bytes of one message. A prompt is far shorter; the HTTP door takes as much."""

HIGH_WATER: Final = 16
"""Messages that wait to be taken before reading stops."""

LAST_ANSWERS_TIMEOUT: Final = MAX_WAIT
"""Seconds for the last answers when the input has ended. Somebody still reads there, and a peer may
work for minutes; a host that wants an end sends a signal some seconds after it closed our input."""


async def serve_stdio(front: Front, *, stop: asyncio.Event) -> None:
    """Serve the host on our standard input and output until it closes them or `stop` is set."""
    await serve_stream(front, await open_stdio(), stop=stop)


async def serve_stream(front: Front, stream: Stream, *, stop: asyncio.Event) -> None:
    """Serve one client on any stream of lines."""
    tasks = TaskOwner("the MCP client on a stream")
    reading, read = anyio.create_memory_object_stream[SessionMessage | Exception](HIGH_WATER)
    write, writing = anyio.create_memory_object_stream[SessionMessage](0)
    owed = Owed()
    lines = _Lines(stream, owed)
    if isinstance(stream, DuplexStream):
        stream.on_input_end = lines.input_ended
    stream.start(lines)
    feeding = tasks.start(_feed(lines, reading, owed), "read")
    sending = tasks.start(_send(stream, writing, owed), "write")
    serving = tasks.start(_serve(front, read, write), "serve")
    stopping = tasks.start(_wait(stop), "wait for the signal to stop")
    try:
        await asyncio.wait({serving, stopping, sending}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await finish(_end(front, tasks, stream))
    del feeding


async def _serve(
    front: Front,
    read: MemoryObjectReceiveStream[SessionMessage | Exception],
    write: MemoryObjectSendStream[SessionMessage],
) -> None:
    server = front.server
    try:
        await server.run(read, write, server.create_initialization_options())
    except* (anyio.BrokenResourceError, anyio.ClosedResourceError):
        # The client left with messages of its own still to be read: nobody is left to answer.
        pass


async def _end(front: Front, tasks: TaskOwner, stream: Stream) -> None:
    # The turns first: they end in order while the client may still be told.
    await front.aclose()
    await tasks.aclose()
    await stream.aclose()


class _Lines:
    """Collects what arrives as lines, held back where nobody takes them."""

    def __init__(self, stream: Stream, owed: Owed) -> None:
        self._stream = stream
        self._owed = owed
        self._framer = Framer(MAX_LINE_SIZE)
        self._ready: list[bytes] = []
        self._over = False
        self._changed = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self._ready += self._framer.feed(data)
        if self._framer.overflowed:
            if not self._over:
                _log.warning("a message has more than %d bytes: the connection ends", MAX_LINE_SIZE)
            self._over = True
            self._owed.forget()
        if len(self._ready) > HIGH_WATER:
            self._stream.pause_reading()
        self._changed.set()

    def input_ended(self) -> None:
        """Nothing will arrive any more, and the client may still read."""
        # Whoever writes the last line by hand may leave out its end.
        self._ready += self._framer.feed(b"\n")
        self._over = True
        self._changed.set()

    def stream_ended(self, failure: ConnectionLost) -> None:
        self._owed.forget()
        self._over = True
        self._changed.set()

    async def next(self) -> list[bytes] | None:
        """The lines that have arrived; None when there will be no more."""
        while not self._ready and not self._over:
            self._changed.clear()
            await self._changed.wait()
        taken, self._ready = self._ready, []
        if self._over and not taken:
            return None
        self._stream.resume_reading()
        return taken


async def _feed(
    lines: _Lines, reading: MemoryObjectSendStream[SessionMessage | Exception], owed: Owed
) -> None:
    with reading:
        try:
            while (taken := await lines.next()) is not None:
                for line in taken:
                    if line.strip():
                        message = _message(line)
                        owed.received(message)
                        await reading.send(message)
            # The SDK gives up what it does as soon as its input ends.
            async with asyncio.timeout(LAST_ANSWERS_TIMEOUT):
                while owed:
                    owed.changed.clear()
                    for answer in owed.unanswerable():
                        await reading.send(answer)
                    await owed.changed.wait()
        except TimeoutError:
            _log.warning("the input has ended, and answers that took too long are not given: %d", len(owed))
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            return


def _message(line: bytes) -> SessionMessage | Exception:
    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValidationError as error:
        return error


async def _send(
    stream: Stream, writing: MemoryObjectReceiveStream[SessionMessage], owed: Owed
) -> None:
    with writing:
        async for message in writing:
            text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            try:
                stream.write(text.encode() + b"\n")
                await stream.drain()
            except ConnectionLost:
                return
            owed.sent(message)


async def _wait(event: asyncio.Event) -> None:
    await event.wait()
