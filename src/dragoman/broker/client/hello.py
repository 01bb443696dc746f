"""Open a connection to a broker and send requests before the ACP client takes it over.

Sends hello, status, stop and other requests that need no ACP handshake, each with a timeout.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Final

import msgspec
from msgspec import Struct

from dragoman.broker.methods import HELLO, STATUS, STOP
from dragoman.errors import (
    BrokerError,
    ConnectError,
    ConnectionLost,
    InvalidAnswer,
)
from dragoman.rpc import Connection, ConnectionSettings, End
from dragoman.rpc.responder import Ignore
from dragoman.transports.base import Stream
from dragoman.transports.sockets import connect_unix
from dragoman.wire.messages import UNDECODABLE
from dragoman.wire.peer import Noise, Stray

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


class _Greeting(Ignore):
    """Before its answer a broker says nothing: what comes then is not from a broker of ours."""

    def attach(self, connection: Connection) -> None:
        self._connection = connection

    def noise(self, noise: Noise | Stray) -> None:
        if isinstance(noise, Noise):
            self._connection.fail(
                ConnectionLost("the program that listens there does not speak as a broker does")
            )


async def open_stream(address: str, *, timeout: float = ANSWER_TIMEOUT) -> Stream:
    """Connect to a broker of our own user. Raises `ConnectError` if nothing listens there."""
    stream = await connect_unix(address, timeout=timeout)
    uid = getattr(getattr(stream, "peer", None), "uid", None)
    if sys.platform != "win32" and uid is not None and uid != os.geteuid():
        await stream.aclose()
        raise BrokerError(f"another user (uid {uid}) listens at {address}")
    return stream


def started(
    stream: Stream, *, settings: ConnectionSettings | None = None, traced: bool = False
) -> Connection:
    """A connection on which requests can be sent at once, and that a client can take over."""
    connection = Connection(
        stream,
        End.CLIENT,
        _Greeting(),
        settings=settings or ConnectionSettings(max_line_size=MAX_ANSWER_SIZE),
        trace=None if traced else False,
    )
    connection.start()
    return connection


async def ask(
    connection: Connection, method: str, params: Any, *, timeout: float = ANSWER_TIMEOUT
) -> Any:
    """Send a request and wait for the answer. Raises `CallTimeout`, `ConnectionLost`, `RemoteError`
    or `InvalidAnswer`."""
    raw = await connection.call(method, params, timeout=timeout)
    try:
        return msgspec.json.decode(raw)
    except UNDECODABLE as error:
        raise InvalidAnswer(f"the answer to {method} is malformed: {error}") from error


async def say_hello(
    connection: Connection,
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
    answer = await ask(connection, HELLO, params, timeout=timeout)
    try:
        return msgspec.convert(answer, BrokerHello)
    except msgspec.ValidationError as error:
        raise InvalidAnswer(f"the broker's greeting is malformed: {error}") from error


async def ask_broker(
    address: str, method: str, params: Any, *, timeout: float = ANSWER_TIMEOUT
) -> Any:
    """Send one request on a connection of its own.

    Raises `ConnectError`, or what `ask` raises.
    """
    connection = started(await open_stream(address, timeout=timeout))
    try:
        return await ask(connection, method, params, timeout=timeout)
    finally:
        await connection.aclose()


__all__ = [
    "ANSWER_TIMEOUT",
    "HELLO",
    "STATUS",
    "STOP",
    "ConnectError",
    "BrokerHello",
    "ask",
    "ask_broker",
    "open_stream",
    "say_hello",
    "started",
]
