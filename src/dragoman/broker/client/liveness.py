"""Detect a broker that hangs, for example one stopped by a signal, and end the wait for it.

A turn or a job may take hours, so a call for it has no timeout. What is bounded instead is the
time in which a silent broker must answer a ping, sent on a connection of its own: on the caller's
connection the answer could wait behind events that the caller is slow to read.
`broker.server.liveness` does the same for the peer behind a broker.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from dragoman.broker.client.hello import ANSWER_TIMEOUT, ask_broker
from dragoman.broker.methods import PING
from dragoman.errors import (
    BrokerError,
    CallError,
    CallTimeout,
    ConnectError,
    ConnectionBroken,
    ConnectionLost,
)

if TYPE_CHECKING:
    from dragoman.rpc import Connection

PROBE_INTERVAL: Final = 10.0
"""Seconds without a message from a broker before it is probed. A working agent is rarely silent for
longer, so that most turns are never probed."""

PROBE_TIMEOUT: Final = ANSWER_TIMEOUT
"""Seconds for the answer to a probe. A ping needs no peer, so it is answered like a hello."""


def watch(connection: Connection, address: str, name: str, *, always: bool = False) -> None:
    """Fail a connection to the broker `name` when the broker does not answer a probe any more.

    It is probed while a call waits for it, or `always`, for a connection that only listens.
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
    """Wait until a broker does not answer any more. For a caller that only passes bytes on, and
    does not know whether one of them is a call that waits."""
    while not await is_hung(address):  # noqa: ASYNC110 - it is another process
        await asyncio.sleep(PROBE_INTERVAL)


async def is_hung(address: str) -> bool:
    """Whether a broker takes connections and does not answer. One that is gone is not hung."""
    try:
        await ask_broker(address, PING, {}, timeout=PROBE_TIMEOUT)
    except CallTimeout:
        return True
    except (ConnectError, ConnectionLost, CallError, BrokerError):
        pass
    return False


async def require_answer(address: str, name: str) -> None:
    """Raise `BrokerError` if the broker is hung."""
    if await is_hung(address):
        raise BrokerError(unanswered(name, PROBE_TIMEOUT))


def unanswered(name: str, timeout: float) -> str:
    """What to say of a broker that does not answer, and what to do about it."""
    return (
        f"the broker {name} does not answer within {timeout:g} s; "
        f"`dragoman broker stop {name}` ends it, `dragoman broker logs {name}` shows what it did"
    )


__all__ = [
    "PROBE_INTERVAL",
    "PROBE_TIMEOUT",
    "is_hung",
    "require_answer",
    "unanswered",
    "wait_hung",
    "watch",
]
