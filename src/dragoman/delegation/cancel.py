"""Cancel a running delegation, and check whether a cancelled turn still runs in a broker.

A peer that ignores a cancel is stopped together with its broker if no other client uses that
broker. Otherwise `unrest` returns the reason, and `execution` tries no other peer: what was changed
is known only when no turn is running.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from dragoman.client.conversation import ConversationTurn, Peer
from dragoman.errors import DragomanError
from dragoman.runs.sessions import broker_of

if TYPE_CHECKING:
    from dragoman.paths import Paths

STATUS_TIMEOUT: Final = 3.0
"""Seconds for a broker to answer a status request; it does not ask its peer for that."""


class CancelHandle:
    """Cancels a running delegation."""

    def __init__(self) -> None:
        self.pulled = False
        """Whether it was cancelled: then no other peer is tried."""
        self._turn: ConversationTurn | None = None
        self._stop: Callable[[], None] | None = None

    @property
    def in_turn(self) -> bool:
        """Whether a turn is running that can be cancelled."""
        return self._turn is not None

    def hold(self, turn: ConversationTurn | None) -> None:
        """Set the running turn; None when it is over."""
        self._turn = turn
        if turn is not None and self.pulled:
            turn.cancel()

    def between_turns(self, stop: Callable[[], None] | None) -> None:
        """Set the callback that ends the delegation between turns; None when it is over."""
        self._stop = stop
        if stop is not None and self.pulled:
            stop()

    def pull(self) -> bool:
        """Cancel: the running turn is cancelled in its agent, and no other is started. False if
        there is nothing to cancel yet."""
        self.pulled = True
        if self._turn is not None:
            self._turn.cancel()
        elif self._stop is not None:
            self._stop()
        return self.in_turn or self._stop is not None


async def unrest(peer: Peer, session_id: str, paths: Paths) -> str | None:
    """Why a cancelled or timed-out turn may still be running in the peer; None if it is not.

    A peer that ignored the cancel is stopped with its broker, if no other client uses the broker.
    """
    endpoint = broker_of(peer)
    if endpoint is None:
        # The peer is our own child process and ends with the connection.
        return None
    from dragoman.broker.client.brokers import list_brokers, stop_broker
    from dragoman.broker.methods import STATUS

    try:
        async with asyncio.timeout(STATUS_TIMEOUT):
            status = msgspec.json.decode(await peer.client.connection.call(STATUS, {}))
    except (DragomanError, TimeoutError) as error:
        return f"nobody knows whether it stopped: {error}"
    if not _is_set_aside(status, session_id):
        return None
    others = status["callers"] or any(
        session["running"] or session["queued"]
        for session in status["sessions"]
        if session["sessionId"] != session_id
    )
    if not others:
        for record in list_brokers(paths):
            if record.name == endpoint and await stop_broker(record):
                return None
    return "it did not stop when it was told to, and may still be working"


def _is_set_aside(status: dict[str, Any], session_id: str) -> bool:
    return any(
        session["quarantined"]
        for session in status["sessions"]
        if session["sessionId"] == session_id
    )
