"""Send the events of a session to one caller, in order, without gaps or repeats.

A caller that keeps up gets each update at once. A slow one catches up from the log or the store
without delaying the others. Answers and permission requests wait behind earlier events.
`event_log` holds the lines, `live_session` the list of readers.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
from msgspec import Raw

from dragoman.broker.protocol import POSITION, Position
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1.codec import session_of
from dragoman.errors import ConnectionLost, DragomanError, MessageTooLong
from dragoman.events import model
from dragoman.events.model import EventEnvelope
from dragoman.gateway.acp_filter import Unannounced
from dragoman.gateway.relay import UPDATE
from dragoman.rpc import Connection
from dragoman.wire.messages import Notification

if TYPE_CHECKING:
    from dragoman.broker.server.live_session import LiveSession

T = TypeVar("T")

log: Final = logging.getLogger("dragoman.broker")

BATCH_SIZE: Final = 128 * 1024
"""How many bytes to send to a caller that catches up before checking that it keeps up."""


class EventReader:
    """Sends the events of a session to one caller. `session_id` is the id that the caller uses."""

    __slots__ = (
        "_behind",
        "_catching_up",
        "_instead",
        "_session",
        "_scopes",
        "attached",
        "connection",
        "opened",
        "session_id",
        "takes_all",
    )

    def __init__(
        self,
        session: LiveSession,
        connection: Connection,
        session_id: str,
        capabilities: acp.ClientCapabilities | None = None,
    ) -> None:
        self._session = session
        self._instead: Callable[[Raw], Sequence[acp.SessionUpdate] | None] | None = None
        """Returns what to send in place of an update of a kind that the caller did not announce,
        and None for any other update. None if the caller announced every kind."""
        if capabilities is not None:
            envelope = EventEnvelope(model.Source("acp", "broker"), itertools.count(1), session_id)
            unannounced = Unannounced(capabilities, envelope)
            self._instead = unannounced.instead if unannounced.strange else None
        self.takes_all = self._instead is None
        """Whether the caller announced every kind of update, as our own clients do. Then nothing is
        inspected."""
        self.connection = connection
        self.session_id = session_id
        self.opened = False
        """Whether the caller has the session open, so that it gets updates outside of turns."""
        self.attached = False
        """Whether the caller follows all events."""
        self._scopes: deque[list[int | None]] = deque()
        """Ranges of event numbers still to be sent; the last may be open-ended. Empty while the
        caller keeps up."""
        self._behind: deque[tuple[int, Callable[[], None]]] = deque()
        self._catching_up: asyncio.Task[None] | None = None

    @property
    def lags(self) -> bool:
        """Whether past events still have to be sent."""
        return bool(self._scopes)

    # -- what the caller follows

    def want(self) -> None:
        """Send new events from now on."""
        if not self._scopes:
            if self not in self._session.live:
                self._session.live.append(self)
        elif self._scopes[-1][1] is not None:
            self._scopes.append([self._session.log.next, None])

    def unwant(self) -> None:
        """Stop sending new events; pending ones are still sent."""
        if not self._scopes:
            if self in self._session.live:
                self._session.live.remove(self)
        elif self._scopes[-1][1] is None:
            self._scopes[-1][1] = self._session.log.next
            if self._scopes[-1][0] == self._scopes[-1][1]:
                self._scopes.pop()

    def go_back(self, start: int) -> None:
        """Send all events from `start` on, past and future, beginning with the next iteration of
        the event loop."""
        log = self._session.log
        if start >= log.next and not self._scopes:
            self.want()
            return
        if self in self._session.live:
            self._session.live.remove(self)
        self._scopes.clear()
        self._scopes.append([start, None])
        self._catch_up()

    # -- sending

    def tell(self, event: Notification) -> None:
        """Send an update, or what replaces it, under the session id that the caller uses."""
        if self._instead is not None and self._said_instead(event.params):
            return
        if self._session.renamed and session_of(event.params) != self.session_id:
            self.connection.post(UPDATE, renamed(event.params, self.session_id))
        else:
            self.connection.pass_on(event.line)

    def _tell_stored(self, line: bytes) -> None:
        params = Raw(line)
        if self._instead is not None and self._said_instead(params):
            return
        if self._session.renamed and session_of(params) != self.session_id:
            params = renamed(params, self.session_id)
        self.connection.post(UPDATE, params)

    def _said_instead(self, params: Raw) -> bool:
        assert self._instead is not None
        said = self._instead(params)
        for update in said or ():
            told = acp.SessionNotification(session_id=self.session_id, update=update)
            self.connection.post(UPDATE, told)
        return said is not None

    def fall_behind(self, number: int) -> None:
        """Record that the caller does not keep up: the update with this number is the first pending
        one."""
        self._session.live.remove(self)
        self._scopes.append([number, None])
        self._catch_up()

    def behind(self, action: Callable[[], None]) -> None:
        """Call the callback `action` once all events so far were sent, at once if none is
        pending."""
        if self._scopes:
            self._behind.append((self._session.log.next, action))
        else:
            action()

    def leave(self) -> None:
        """Called when the caller has disconnected or closed the session: send no more events.

        A caller that is still connected gets what waited behind them, such as the answer to its
        prompt.
        """
        if self in self._session.live:
            self._session.live.remove(self)
        self._scopes.clear()
        if self.connection.failure is not None:
            self._behind.clear()
        while self._behind:
            self._behind.popleft()[1]()

    # -- catching up

    def _catch_up(self) -> None:
        if self._catching_up is None:
            # The connection owns the task: both end together.
            self._catching_up = self.connection.tasks.start(self._follow(), "catch up")

    async def _follow(self) -> None:
        try:
            while self._scopes:
                # Takes as long as the caller needs; cancelled when its connection ends.
                await self.connection.drain()
                # The caller may have left in the meantime.
                if self._scopes and not await self._send_some():
                    return
        except ConnectionLost:
            return
        finally:
            self._catching_up = None

    async def _send_some(self) -> bool:
        """Send the next batch. Returns False if the rest can never be sent."""
        log = self._session.log
        start, stop = self._scopes[0]
        assert start is not None
        if start < log.first:
            until = log.first if stop is None else min(stop, log.first)
            first, stored = await self._session.fetch(start, until)
            if not self._scopes or self._scopes[0][0] != start:
                # The requested range has changed in the meantime.
                return True
            if first != start:
                if start >= log.began:
                    await self._cut_off()
                    return False
                # Between two processes that had the session, numbers are skipped.
                if first > log.began:
                    first, stored = log.began, ()
                if self.attached:
                    self.connection.post(POSITION, Position(self.session_id, first))
            for line in stored:
                _send(self._tell_stored, line)
            self._advance(first + len(stored))
            return True
        events = log.lines(start, stop, max_size=BATCH_SIZE)
        try:
            together = self.takes_all and not self._session.renamed
            if together:
                self.connection.pass_all_on([event.line for event in events])
        except MessageTooLong:
            # Skip an update that is too long, but not the others.
            together = False
        if not together:
            for event in events:
                _send(self.tell, event)
        self._advance(start + len(events))
        return True

    def _advance(self, position: int) -> None:
        scope = self._scopes[0]
        scope[0] = position
        if scope[1] is None:
            if position == self._session.log.next:
                self._scopes.popleft()
                self._session.live.append(self)
        elif position >= scope[1]:
            self._scopes.popleft()
        while self._behind and (
            not self._scopes or (self._scopes[0][0] or 0) >= self._behind[0][0]
        ):
            self._behind.popleft()[1]()

    async def _cut_off(self) -> None:
        """Close the connection because pending events no longer exist anywhere. That is better than
        leaving a gap."""
        self._scopes.clear()
        self._behind.clear()
        await self.connection.aclose()


def renamed(params: Raw, session_id: str) -> Raw:
    """Return a message's params, with the session id in them replaced by this one."""
    members = msgspec.json.decode(params, type=dict[str, Raw])
    members["sessionId"] = Raw(msgspec.json.encode(session_id))
    return Raw(msgspec.json.encode(members))


def _send(tell: Callable[[T], None], event: T) -> None:
    """Send one event, or skip it if it cannot be sent, for example because it is too long."""
    try:
        tell(event)
    except ConnectionLost:
        raise
    except DragomanError as error:
        log_untold(error)


def log_untold(error: DragomanError) -> None:
    """Log that an update could not be sent: as a warning, unless the caller has disconnected."""
    level = logging.DEBUG if isinstance(error, ConnectionLost) else logging.WARNING
    log.log(level, "could not send an update to a caller: %s", error)
