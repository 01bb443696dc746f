"""Check whether a cancelled turn of a delegation still runs, in a broker or in a Python adapter.

A peer that ignores a cancel is stopped together with its broker if no other client uses that
broker. Otherwise `unrest` returns the reason, and `execution` tries no other peer, because the
changes are known only when no turn is running. `runs.run_values` has the handle that cancels the
turn.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from dragoman.client.conversation import Peer
from dragoman.errors import DragomanError
from dragoman.runs.adapter_run import AdapterPeer
from dragoman.runs.sessions import broker_of

if TYPE_CHECKING:
    from dragoman.paths import Paths

_STILL_WORKING: Final = "it did not stop when cancelled, and may still be working"

STATUS_TIMEOUT: Final = 3.0
"""Timeout in seconds for a request for the status of a broker, which answers it without its
peer."""


async def unrest(peer: Peer, session_id: str, paths: Paths) -> str | None:
    """Return why a cancelled or timed-out turn may still be running in the peer, or None if it is
    not.

    A peer that ignored the cancel is stopped with its broker, if no other client uses the broker.
    An adapter is cancelled again.
    """
    if isinstance(peer, AdapterPeer):
        return None if await peer.stop() else _STILL_WORKING
    endpoint = broker_of(peer)
    if endpoint is None:
        # The peer is our own child process and ends with the connection.
        return None
    from dragoman.broker.client.brokers import list_brokers, stop_broker
    from dragoman.broker.protocol import STATUS, decode_as

    try:
        async with asyncio.timeout(STATUS_TIMEOUT):
            raw = await peer.client.connection.call(STATUS, {})
        status = decode_as(raw, _Status, f"response to {STATUS}")
    except (DragomanError, TimeoutError) as error:
        return f"it is unknown whether it stopped: {error}"
    if not _is_set_aside(status, session_id):
        return None
    others = status.callers or any(
        session.running or session.queued
        for session in status.sessions
        if session.session_id != session_id
    )
    if not others:
        for record in list_brokers(paths):
            if record.name != endpoint:
                continue
            try:
                if await stop_broker(record):
                    return None
            except DragomanError as error:
                return f"{_STILL_WORKING}, and its broker cannot be stopped: {error}"
    return _STILL_WORKING


class _SessionStatus(Struct, rename="camel"):
    """The fields of a session in a broker's status that are needed here."""

    session_id: str
    running: str | None
    queued: int
    quarantined: bool


class _Status(Struct):
    """The fields of a broker's status that are needed here."""

    callers: int
    sessions: list[_SessionStatus]


def _is_set_aside(status: _Status, session_id: str) -> bool:
    return any(
        session.quarantined for session in status.sessions if session.session_id == session_id
    )
