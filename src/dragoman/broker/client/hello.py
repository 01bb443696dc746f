"""Open a connection to a broker and send requests before the ACP client takes it over.

Sends hello, status, stop and other requests that need no ACP handshake, each with a timeout.

Ends the wait for a broker that hangs, for example one stopped by a signal. A turn or a job may take
hours, so a call for it has no timeout. Instead, a silent broker must answer a ping within a limit.
The ping uses its own connection: on the caller's connection the answer could wait behind events
that the caller is slow to read. `broker.server.liveness` does the same for the peer behind a
broker.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any, Final

import msgspec
from msgspec import Struct

from dragoman.broker.protocol import HELLO, PING, decode_as
from dragoman.decoders import convert_typed
from dragoman.errors import (
    BrokerError,
    CallError,
    CallTimeout,
    ConnectError,
    ConnectionBroken,
    ConnectionLost,
    InvalidAnswer,
)
from dragoman.rpc import Connection, ConnectionSettings, End
from dragoman.rpc.responder import Ignore
from dragoman.transports.base import Stream
from dragoman.transports.sockets import connect_unix
from dragoman.wire.peer import Noise, Stray

ANSWER_TIMEOUT: Final = 10.0
"""Timeout in seconds for a response that needs no peer. A broker answers within a millisecond;
ten seconds are possible on a machine that swaps, and a broker that times out is killed with its
turns."""

MAX_ANSWER_SIZE: Final = 4 * 1024 * 1024
"""Maximum size of such a response, in bytes. The status of a broker with thousands of sessions is
smaller."""

PROBE_INTERVAL: Final = 10.0
"""Seconds without a message from a broker before it is probed. A working agent is rarely silent for
that long, so most turns are never probed."""

PROBE_TIMEOUT: Final = ANSWER_TIMEOUT
"""Timeout in seconds for the response to a probe. A ping needs no peer, so it is answered like
a hello."""


class BrokerHello(Struct, frozen=True, kw_only=True, rename="camel"):
    """A broker's response to hello."""

    version: str
    """Version of its dragoman."""
    protocol: int
    peer: str = ""
    workspace: str = ""
    pid: int = 0
    started_at: float = 0.0
    draining: bool = False
    state: str = ""
    ttl: float | None = None
    identity: str = ""
    """Digest of the peer's files; empty if not reported."""


class _Greeting(Ignore):
    """Fails the connection when a line is not a message: the other side is not a broker."""

    def attach(self, connection: Connection) -> None:
        self._connection = connection

    def noise(self, noise: Noise | Stray) -> None:
        if isinstance(noise, Noise):
            self._connection.fail(
                ConnectionLost("the program at the broker's address does not speak its protocol")
            )


async def open_stream(address: str, *, timeout: float = ANSWER_TIMEOUT) -> Stream:
    """Connect to a broker of our own user. Raises `ConnectError` if nothing listens there, and
    `BrokerError` if another user does."""
    stream = await connect_unix(address, timeout=timeout)
    uid = getattr(getattr(stream, "peer", None), "uid", None)
    if sys.platform != "win32" and uid is not None and uid != os.geteuid():
        await stream.aclose()
        raise BrokerError(f"another user (uid {uid}) listens at {address}")
    return stream


def started(stream: Stream, *, settings: ConnectionSettings | None = None) -> Connection:
    """Start a connection over `stream` and return it. It can send requests at once, and a client
    can take it over."""
    connection = Connection(
        stream,
        End.CLIENT,
        _Greeting(),
        settings=settings or ConnectionSettings(max_line_size=MAX_ANSWER_SIZE),
        # A trace shows the peer's traffic; see `connect.WarmClient`.
        trace=False,
    )
    connection.start()
    return connection


async def ask(
    connection: Connection, method: str, params: Any, *, timeout: float = ANSWER_TIMEOUT
) -> Any:
    """Send a request and wait for the response. Raises `CallTimeout`, `ConnectionLost`,
    `RemoteError` or `InvalidAnswer`."""
    raw = await connection.call(method, params, timeout=timeout)
    return decode_as(raw, object, f"response to {method}")


async def say_hello(
    connection: Connection,
    *,
    version: str,
    identity: str,
    ttl: float | None = None,
    timeout: float = ANSWER_TIMEOUT,
) -> BrokerHello:
    """Send hello and return the response. A `ttl` replaces the broker's idle timeout. Raises what
    `ask` does, and `InvalidAnswer` if the response is not that of a broker."""
    params: dict[str, Any] = {"version": version, "identity": identity}
    if ttl is not None:
        params["ttl"] = ttl
    answer = await ask(connection, HELLO, params, timeout=timeout)
    try:
        return convert_typed(answer, BrokerHello)
    except msgspec.ValidationError as error:
        raise InvalidAnswer(f"invalid greeting from the broker: {error}") from error


async def ask_broker(
    address: str, method: str, params: Any, *, timeout: float = ANSWER_TIMEOUT
) -> Any:
    """Send one request on a separate connection, and return the response.

    Raises what `open_stream` and `ask` raise.
    """
    connection = started(await open_stream(address, timeout=timeout))
    try:
        return await ask(connection, method, params, timeout=timeout)
    finally:
        await connection.aclose()


# -- hung brokers


def watch(connection: Connection, address: str, name: str, *, always: bool = False) -> None:
    """Fail a connection to the broker `name` when the broker no longer answers a probe.

    It is probed while a call is pending; with `always`, all the time, for a connection that only
    listens.
    """
    connection.tasks.start(_watch(connection, address, name, always), "watch the broker")


async def _watch(connection: Connection, address: str, name: str, always: bool) -> None:
    received = connection.received
    while connection.failure is None:
        await asyncio.sleep(PROBE_INTERVAL)
        before, received = received, connection.received
        if received != before or not (always or connection.is_waiting):
            continue
        if await is_hung(address):
            connection.fail(ConnectionBroken(unanswered(name, PROBE_TIMEOUT)))


async def wait_hung(address: str) -> None:
    """Wait until a broker hangs; never returns if it ends instead. For a caller that only copies
    bytes and does not know whether a call is pending."""
    while not await is_hung(address):  # noqa: ASYNC110 - polls another process
        await asyncio.sleep(PROBE_INTERVAL)


async def is_hung(address: str) -> bool:
    """Return whether a broker listens but does not answer, or accepts no connection in time.

    A broker that has ended is not hung.
    """
    try:
        await ask_broker(address, PING, {}, timeout=PROBE_TIMEOUT)
    except CallTimeout:
        return True
    except ConnectError as error:
        # The queue of a broker that hangs may be full.
        return isinstance(error.__cause__, TimeoutError)
    except (ConnectionLost, CallError, BrokerError):
        pass
    return False


async def require_answer(address: str, name: str) -> None:
    """Raise `BrokerError` if the broker is hung."""
    if await is_hung(address):
        raise BrokerError(unanswered(name, PROBE_TIMEOUT))


def unanswered(name: str, timeout: float) -> str:
    """Return the error text for a broker that does not answer, with the remedy."""
    return (
        f"the broker {name} does not answer within {timeout:g} s; "
        f"`dragoman broker stop {name}` ends it, `dragoman broker logs {name}` shows what it did"
    )
