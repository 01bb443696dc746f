"""Open a connection to a broker and send requests before the ACP client takes over the stream.

Sends hello, status, stop and other requests that need no ACP handshake, each with a timeout. A
`HelloConnection` is then handed on as an ordinary stream.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from typing import Any, Final

import msgspec
from msgspec import Struct

from dragoman.broker.methods import HELLO, STATUS, STOP
from dragoman.errors import (
    BrokerError,
    CallTimeout,
    ConnectError,
    ConnectionLost,
    InvalidAnswer,
    RemoteError,
    UsageError,
)
from dragoman.transports.base import Receiver, Stream
from dragoman.transports.sockets import connect_unix
from dragoman.wire.framing import Framer

ANSWER_TIMEOUT: Final = 10.0
"""Seconds for an answer that needs no peer. A broker answers within a millisecond; ten seconds on
a machine that swaps are possible, and a broker that is given up is killed with its turns."""

MAX_ANSWER_SIZE: Final = 4 * 1024 * 1024
"""Bytes of such an answer. The status of a broker with thousands of sessions has less."""


class BrokerHello(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a broker says of itself."""

    version: str
    """Of its dragoman."""
    protocol: int
    peer: str = ""
    workspace: str = ""
    pid: int = 0
    started_at: float = 0.0
    draining: bool = False
    state: str = ""
    ttl: float | None = None
    identity: str = ""
    """Of the peer's files, in one word; empty if it does not tell."""


class _Answer(Struct):
    id: Any = None
    result: msgspec.Raw = msgspec.Raw(b"null")
    error: Any = None


class HelloConnection(Stream):
    """A stream on which questions may be asked until it is started."""

    def __init__(self, inner: Stream) -> None:
        self._inner = inner
        self._framer = Framer(MAX_ANSWER_SIZE)
        self._receiver: Receiver | None = None
        self._failure: ConnectionLost | None = None
        self._waiting: dict[str, asyncio.Future[_Answer]] = {}
        self._numbers = itertools.count(1)
        self._loop = asyncio.get_running_loop()
        inner.start(self)

    async def ask(self, method: str, params: Any, *, timeout: float = ANSWER_TIMEOUT) -> Any:
        """Ask and wait for the answer. Raises `CallTimeout`, `ConnectionLost`, `RemoteError` or
        `InvalidAnswer`."""
        if self._receiver is not None:
            raise UsageError("the stream was handed on; nothing can be asked any more")
        id = f"knock-{next(self._numbers)}"
        future: asyncio.Future[_Answer] = self._loop.create_future()
        self._waiting[id] = future
        try:
            message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
            self.write(msgspec.json.encode(message) + b"\n")
            async with asyncio.timeout(timeout):
                answer = await future
        except TimeoutError:
            raise CallTimeout(method, timeout) from None
        finally:
            self._waiting.pop(id, None)
        if isinstance(answer.error, dict):
            code, message_ = answer.error.get("code"), answer.error.get("message")
            raise RemoteError(
                code if isinstance(code, int) else 0, str(message_), answer.error.get("data")
            )
        try:
            return msgspec.json.decode(answer.result)
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidAnswer(f"the answer to {method} is malformed: {error}") from error

    # -- told by the stream below

    def data_received(self, data: bytes) -> None:
        if self._receiver is not None:
            self._receiver.data_received(data)
            return
        for line in self._framer.feed(data):
            self._heard(bytes(line))
        if self._framer.overflowed:
            self._end(ConnectionLost("the broker sent a line that is too long to be an answer"))

    def stream_ended(self, failure: ConnectionLost) -> None:
        self._end(failure)
        if self._receiver is not None:
            self._receiver.stream_ended(failure)

    def _heard(self, line: bytes) -> None:
        try:
            answer = msgspec.json.decode(line, type=_Answer)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            # Nobody speaks before the hello is answered, so this is no broker of ours.
            self._end(ConnectionLost("whoever listens there does not speak as a broker does"))
            return
        future = self._waiting.get(answer.id) if isinstance(answer.id, str) else None
        if future is not None and not future.done():
            future.set_result(answer)

    def _end(self, failure: ConnectionLost) -> None:
        self._failure = self._failure or failure
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(failure.fresh())

    # -- the stream that is handed on

    def start(self, receiver: Receiver) -> None:
        if self._receiver is not None:
            raise UsageError("the stream was started before")
        self._receiver = receiver
        if self._failure is not None:
            self._loop.call_soon(receiver.stream_ended, self._failure)

    def write(self, data: bytes) -> None:
        self._inner.write(data)

    @property
    def unsent_size(self) -> int:
        return self._inner.unsent_size

    async def drain(self) -> None:
        await self._inner.drain()

    def pause_reading(self) -> None:
        self._inner.pause_reading()

    def resume_reading(self) -> None:
        self._inner.resume_reading()

    async def aclose(self) -> None:
        await self._inner.aclose()


async def knock(address: str, *, timeout: float = ANSWER_TIMEOUT) -> HelloConnection:
    """Connect to a broker of our own user. Raises `ConnectError` if nobody listens there."""
    stream = await connect_unix(address, timeout=timeout)
    uid = getattr(getattr(stream, "peer", None), "uid", None)
    if sys.platform != "win32" and uid is not None and uid != os.geteuid():
        await stream.aclose()
        raise BrokerError(f"whoever listens at {address} is another user (uid {uid})")
    return HelloConnection(stream)


async def say_hello(
    connection: HelloConnection,
    *,
    version: str,
    identity: str,
    ttl: float | None = None,
    timeout: float = ANSWER_TIMEOUT,
) -> BrokerHello:
    """Learn who answers. Raises `InvalidAnswer` if it is no broker."""
    params: dict[str, Any] = {"version": version, "identity": identity}
    if ttl is not None:
        params["ttl"] = ttl
    answer = await connection.ask(HELLO, params, timeout=timeout)
    try:
        return msgspec.convert(answer, BrokerHello)
    except msgspec.ValidationError as error:
        raise InvalidAnswer(f"the broker's greeting is malformed: {error}") from error


async def ask_broker(
    address: str, method: str, params: Any, *, timeout: float = ANSWER_TIMEOUT
) -> Any:
    """Send one request on a connection of its own.

    Raises `ConnectError`, or what `HelloConnection.ask` raises.
    """
    connection = await knock(address, timeout=timeout)
    try:
        return await connection.ask(method, params, timeout=timeout)
    finally:
        await connection.aclose()


__all__ = [
    "ANSWER_TIMEOUT",
    "HELLO",
    "STATUS",
    "STOP",
    "ConnectError",
    "BrokerHello",
    "HelloConnection",
    "ask_broker",
    "knock",
    "say_hello",
]
