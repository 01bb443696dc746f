r"""Windows named pipes, the counterpart of Unix sockets: `\\.\pipe\name`.

Defines the stream over an asyncio transport, the form in which the Windows event loop provides
pipes, and the listener that serves them. Use them through `sockets` and `listener`, whose functions
have the same names on every system. The stream works over any asyncio transport, which is how it is
tested on systems without named pipes.

A named pipe has no file: its name is free when the last server has closed it. Windows lets only
the user who created a pipe, administrators and the system write to it; clients are not identified.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any, cast

from dragoman.errors import (
    AddressInUse,
    ConnectError,
    ConnectionBroken,
    ConnectionClosed,
    ConnectionEnded,
    ConnectionLost,
    UsageError,
)
from dragoman.transports.base import (
    FLUSH_TIMEOUT,
    HIGH_WATER_SIZE,
    LASTING_ERRORS,
    EventedStream,
    Receiver,
    Stream,
)
from dragoman.transports.listener import Listener, OnStream

PREFIX = "\\\\.\\pipe\\"

_IN_USE = frozenset({5, 231})
"""Windows errors that mean that another process already serves the pipe: ERROR_ACCESS_DENIED and
ERROR_PIPE_BUSY."""


class TransportStream(EventedStream):
    """A stream over an asyncio transport. Owns the transport."""

    def __init__(self) -> None:
        super().__init__()
        self._transport: asyncio.Transport | None = None
        self._held: list[bytes] = []
        self._paused = True
        self._gone: asyncio.Future[None] = self._loop.create_future()

    def start(self, receiver: Receiver) -> None:
        self._take(receiver)
        self.resume_reading()

    def write(self, data: bytes) -> None:
        self._refuse()
        if self._transport is not None:
            self._transport.write(data)

    @property
    def unsent_size(self) -> int:
        if self._transport is None or self._gone.done():
            return 0
        return self._transport.get_write_buffer_size()

    def pause_reading(self) -> None:
        if not self._closing and not self._paused:
            self._paused = True
            if self._transport is not None and not self._gone.done():
                self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._paused and self._receiver is not None:
            self._paused = False
            if self._transport is not None and not self._gone.done():
                self._transport.resume_reading()
            self._loop.call_soon(self._release_held)

    async def aclose(self) -> None:
        if not self._closing:
            self._closing = True
            self._held.clear()
            if self._transport is not None:
                # Flushes and then closes. If that takes too long it is aborted, which needs no
                # wait.
                self._transport.close()
                timer = self._loop.call_later(FLUSH_TIMEOUT, self._transport.abort)
                self._gone.add_done_callback(lambda _: timer.cancel())
            else:
                self._gone.set_result(None)
        await asyncio.shield(self._gone)
        self._finish(ConnectionClosed())

    def _made(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        transport.set_write_buffer_limits(high=HIGH_WATER_SIZE, low=HIGH_WATER_SIZE)
        # Open but idle: nothing is read before `start`.
        transport.pause_reading()

    def _lost(self, error: Exception | None) -> None:
        self._room.set()
        if error is None or isinstance(error, ConnectionResetError | BrokenPipeError):
            self._end = ConnectionEnded()
        else:
            self._end = ConnectionBroken(f"the connection failed: {error}")
        self._gone.set_result(None)
        if self._closing:
            self._finish(ConnectionClosed())
        else:
            self._release_held()

    def _arrived(self, data: bytes) -> None:
        if not self._closing:
            self._held.append(data)
            self._release_held()

    def _release_held(self) -> None:
        # The stream counts as paused until it is started.
        while self._held and not self._paused and self._receiver is not None:
            self._receiver.data_received(self._held.pop(0))
        if self._end is not None and not self._held and not self._paused:
            self._finish(self._end)

    def _finish(self, failure: ConnectionLost) -> None:
        if self._failure is None:
            self._failure = failure
            if self._receiver is not None:
                self._receiver.stream_ended(failure)


class StreamProtocol(asyncio.Protocol):
    """The asyncio protocol of a `TransportStream`: creates it, and forwards the callbacks of the
    transport to it."""

    def __init__(self, listener: NamedPipeListener | None = None) -> None:
        self.stream = TransportStream()
        self._listener = listener

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.stream._made(cast(asyncio.Transport, transport))
        if self._listener is not None:
            self._listener._accepted(self.stream)

    def data_received(self, data: bytes) -> None:
        self.stream._arrived(data)

    def connection_lost(self, error: Exception | None) -> None:
        self.stream._lost(error)

    def pause_writing(self) -> None:
        self.stream._room.clear()

    def resume_writing(self) -> None:
        self.stream._room.set()


async def connect_named_pipe(name: str, *, timeout: float) -> Stream:
    """Connect to a pipe by its full name. asyncio itself retries while the pipe is busy. Raises
    `ConnectError` if nothing serves the pipe, or it accepts no connection within `timeout` seconds,
    and `UsageError` if the name is invalid."""
    loop = _pipe_loop(name)
    try:
        async with asyncio.timeout(timeout):
            _, protocol = await loop.create_pipe_connection(StreamProtocol, name)
    except TimeoutError as error:
        raise ConnectError(f"{name} accepted no connection within {timeout:g} s") from error
    except OSError as error:
        raise ConnectError(
            f"cannot connect to {name}: {error.strerror}",
            passing=error.errno not in LASTING_ERRORS,
        ) from error
    stream: Stream = protocol.stream
    return stream


async def listen_named_pipe(name: str, on_stream: OnStream) -> Listener:
    """Serve a pipe. Raises `AddressInUse` if another process serves it, and `UsageError` if it
    cannot be served for another reason."""
    loop = _pipe_loop(name)
    listener = NamedPipeListener(name, on_stream)
    try:
        [listener.server] = await loop.start_serving_pipe(lambda: StreamProtocol(listener), name)
    except OSError as error:
        if getattr(error, "winerror", None) in _IN_USE:
            raise AddressInUse(f"{name} is already in use") from error
        raise UsageError(f"cannot listen on {name}: {error.strerror}") from error
    return listener


class NamedPipeListener(Listener):
    """Holds asyncio's pipe server, which accepts connections itself."""

    server: Any = None

    def __init__(self, name: str, on_stream: OnStream) -> None:
        super().__init__(on_stream)
        self._name = name

    @property
    def address(self) -> str:
        return self._name

    def _stop_accepting(self) -> None:
        if self.server is not None:
            self.server.close()


def _pipe_loop(name: str) -> Any:
    """Return the running loop. Raises `UsageError` if it does not support pipes (on Windows the
    default one does) or if the pipe name is invalid."""
    if not name.startswith(PREFIX):
        raise UsageError(f"{name!r} is not a pipe name: it must begin with {PREFIX}")
    loop = asyncio.get_running_loop()
    if not hasattr(loop, "create_pipe_connection"):
        raise UsageError(f"this event loop does not support named pipes (on {sys.platform})")
    return loop
