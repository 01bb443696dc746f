"""The history that the peer replays while it loads a session, on its way to the caller.

Replayed history is not stored, so a slow caller cannot catch up from the log. Instead the peer is
not read until the caller has caught up, for a limited time. `live_session` passes the updates on,
`peer_sessions` decides when a replay is over.
"""

from __future__ import annotations

import asyncio
import logging
import math
from typing import TYPE_CHECKING, Final

from msgspec import Raw

from dragoman.errors import ConnectionBroken, ConnectionLost, Overflow
from dragoman.gateway.relay import UPDATE

if TYPE_CHECKING:
    from dragoman.broker.server.caller import Caller
    from dragoman.rpc import Connection
    from dragoman.rpc.lanes import Flow

log: Final = logging.getLogger("dragoman.broker")

MAX_UNREAD_SIZE: Final = 16 * 1024 * 1024
"""Number of bytes that a caller may leave unread before the peer is no longer read. Meanwhile all
sessions of the peer wait, so a history of the usual size must not cause it."""

UNREAD_TIMEOUT: Final = 30.0
"""Seconds for which one caller may keep the peer from being read: half of the default timeout of a
request, so that the requests of other callers do not time out."""


class Replay:
    """One replay of a session's history. It is sent to `caller`, or dropped if that is None. `flow`
    controls reading from the peer."""

    def __init__(self, caller: Caller | None, flow: Flow) -> None:
        self.caller = caller
        self._flow = flow
        self._loop = asyncio.get_running_loop()
        self.heard_at = self._loop.time()
        """When the last update arrived, by the loop's clock."""
        self.loaded_at = math.inf
        """When the response to the load arrived, by the loop's clock."""
        self.unread: Overflow | None = None
        """Why the caller did not get everything that was replayed before the response to the load;
        None if it did."""
        self._held_at: float | None = None
        self._is_read = asyncio.Event()
        self._is_read.set()
        self._is_loaded = asyncio.Event()

    def send(self, connection: Connection, params: Raw) -> None:
        """Send an update to the caller. If too much of the replay is unread, the peer is not read
        until the caller has caught up."""
        connection.post(UPDATE, params)
        if (
            self._held_at is None
            and connection.is_full
            and connection.stream.unsent_size > MAX_UNREAD_SIZE
        ):
            self._held_at = self._loop.time()
            self._is_read.clear()
            self._flow.hold()
            connection.tasks.start(self._wait_for_caller(connection), "wait for a slow caller")

    def loaded(self) -> None:
        """Called when the response to the load has arrived."""
        self.loaded_at = self._loop.time()
        self._is_loaded.set()

    def end(self) -> None:
        """Called when the replay is over, or the load has failed."""
        self.caller = None
        self._is_loaded.set()
        self._read_on()

    async def wait_loaded(self) -> None:
        """Wait until the load has ended and the peer is being read: only after that does silence
        mean that the replay is over. The load has a timeout, and reading is held for
        `UNREAD_TIMEOUT` at most."""
        await self._is_loaded.wait()
        await self._is_read.wait()

    async def _wait_for_caller(self, connection: Connection) -> None:
        try:
            async with asyncio.timeout(UNREAD_TIMEOUT):
                await connection.drain()
        except TimeoutError:
            if self._held_at is not None:
                self._give_up(connection)
        except ConnectionLost:
            pass
        finally:
            self._read_on()

    def _give_up(self, connection: Connection) -> None:
        why = f"the history of the session was not read for {UNREAD_TIMEOUT:g} s"
        log.warning("%s; the caller does not get the rest", why)
        self.caller = None
        if self.loaded_at == math.inf:
            self.unread = Overflow(why)
        else:
            # It has the response already, and would not know that something is missing.
            connection.fail(ConnectionBroken(why))

    def _read_on(self) -> None:
        if self._held_at is None:
            return
        now = self._loop.time()
        # The time in which the peer was not read does not count.
        self.heard_at = now
        self.loaded_at += now - self._held_at
        self._held_at = None
        self._flow.release()
        self._is_read.set()
