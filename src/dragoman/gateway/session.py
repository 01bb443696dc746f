"""The state of one session that is served to a client, and the order of its messages.

Sends one event at a time, in wire order: the events outside of turns that came before a turn, its
own events, and, after the response to its prompt, those that came after it. A question waits for
the events before it.
`gateway.client_session` and `acp_server.updates` define how an event is sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Final, TypeAlias

from dragoman.agent import Turn
from dragoman.agent.client_side import ClientSide
from dragoman.client.conversation import Conversation, ConversationTurn
from dragoman.client.turns import TurnEndMark as Ended
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import ConnectionLost, MessageTooLong
from dragoman.events import model
from dragoman.events.view import View
from dragoman.gateway.events_to_acp import AcpTranslator
from dragoman.rpc import Connection

Send: TypeAlias = Callable[[acp.SessionUpdate], Awaitable[None] | None]
"""Sends an update to the client. If it is interrupted, the update must not have been sent."""

log: Final = logging.getLogger("dragoman.gateway")

TOLD_TIMEOUT: Final = 10.0
"""Seconds that a question waits until the events before it are sent. They are already being sent,
so this only limits the delay that a client causes by not reading."""

MAX_OUTSIDE: Final = 4096
"""Maximum number of queued events outside of turns. If a client reads too slowly, further ones are
dropped, and the log says so."""

_UPDATE: Final = acp.SESSION_UPDATE.name

_GATED: Final = {
    "session.notices": (f"{_UPDATE}:notice",),
    "session.compaction": (f"{_UPDATE}:compaction_update", f"{_UPDATE}:compaction_summary_chunk"),
    # The options may include boolean ones.
    "session.configOptions.boolean": (f"{_UPDATE}:config_option_update",),
}
"""The kinds of updates that require a capability of the client, by that capability."""


class GatewaySession:
    """One session of a client, and the conversation behind it."""

    def __init__(
        self, conversation: Conversation, speaker: AcpTranslator, side: ClientSide, send: Send
    ) -> None:
        self.conversation = conversation
        self.speaker = speaker
        self.side = side
        self._send = send
        self.view = View()
        self.unanswered = 0
        """Number of prompts whose response is not sent yet. It is above one if a handler outlives
        the response to its cancelled prompt."""
        self.replaying = False
        """Whether the history of the session is still being sent to the client."""
        self._sending = asyncio.Lock()
        """Held while an event is sent. The turn, the replay and the task for events outside of
        turns may all wait for a client that reads slowly."""
        self._outside: deque[model.Event] = deque()
        """Events outside of a turn that are not sent yet."""
        self._before: deque[model.Event] = deque()
        """Events that came before the running turn and are not sent yet. They count as its own."""
        self._dropped = 0
        """Number of events outside of a turn for which there was no room."""
        self._telling = False
        self.asked: dict[str, asyncio.Event] = {}
        """By request id: an event that is set when every event before the permission request was
        sent."""
        self.told: set[str] = set()
        """Ids of permission requests that were sent before their events were taken, because no
        earlier event had to be sent first."""
        self.running: ConversationTurn | None = None
        self.taken = 0
        """Number of turn events that were sent or are being sent."""
        self.known = 0
        """Number of turn events that were sent."""
        self.behind: list[tuple[int, asyncio.Event]] = []
        """Waiters, each with the number of sent events it waits for."""
        self.last_raw: bytes | None = None
        self._unsent: dict[int, tuple[model.Event, deque[acp.SessionUpdate]]] = {}
        """For each event whose sending was interrupted, by its `id()`: the event and the updates
        that are not sent yet."""
        self._strange = frozenset(
            native
            for capability, natives in _GATED.items()
            if not side.can(capability)
            for native in natives
        )

    def takes(self, event: model.Event) -> bool:
        """Return whether the client supports this kind of update. The peer may send kinds that the
        client does not support, because dragoman tells every peer that all are supported."""
        return event.native not in self._strange

    def knows(self) -> None:
        """Count one more event of a turn as sent."""
        self.known += 1
        if self.behind:
            for number, caught_up in self.behind:
                if number <= self.known:
                    caught_up.set()
            self.behind = [each for each in self.behind if each[0] > self.known]

    @contextlib.contextmanager
    def prompted(
        self,
        turn: Turn,
        connection: Connection,
        tell: Callable[[model.Event], Awaitable[None]],
    ) -> Iterator[None]:
        """Context manager for the handler of a prompt: events outside of turns wait until the
        response to the prompt is sent."""
        self.unanswered += 1
        try:
            yield
        finally:
            if connection.failure is None:
                answered = self._answered(turn, connection, tell)
                connection.tasks.start(answered, "wait for the response to a prompt")

    async def _answered(
        self,
        turn: Turn,
        connection: Connection,
        tell: Callable[[model.Event], Awaitable[None]],
    ) -> None:
        # The step of the loop that sets this event also sends the response.
        await turn.ended.wait()
        self.unanswered -= 1
        self.tell_outside(connection, tell)

    async def follow(
        self,
        running: ConversationTurn,
        tell: Callable[[model.Event], Awaitable[None]],
        *,
        taken: Callable[[model.Event], None] | None = None,
        first: Callable[[], Awaitable[None]] | None = None,
    ) -> model.TurnEnded | None:
        """Send the events of a turn until it ends, even after the client cancelled. Returns the
        turn's `TurnEnded`, if any. The queued events that came before the turn are sent first.

        `taken` is called once for each event of the turn, before it is sent. `first` sends our own
        updates before the events of the turn; if a cancellation interrupts it, it is called again
        for the rest.
        """
        self.running = running
        self._take_before(running)
        if first is not None:
            self.taken += 1
        try:
            return await self._follow(running, tell, taken, first)
        finally:
            if self.running is running:
                self.running = None
            # Only a failure leaves anything. A later turn must not wait for these events.
            self._outside.extendleft(reversed(self._before))
            self._before.clear()
            while self.known < self.taken:
                self.knows()

    def _take_before(self, running: ConversationTurn) -> None:
        """Move the queued events that came before the turn to `_before`."""
        # If the client made us wait, the turn may be over, and later events are queued, too.
        first = next((each.seq for each in running.untaken if not isinstance(each, Ended)), None)
        while self._outside and (first is None or self._outside[0].seq < first):
            self._before.append(self._outside.popleft())
            self.taken += 1

    async def _follow(
        self,
        running: ConversationTurn,
        tell: Callable[[model.Event], Awaitable[None]],
        taken: Callable[[model.Event], None] | None,
        first: Callable[[], Awaitable[None]] | None,
    ) -> model.TurnEnded | None:
        cancelled: asyncio.CancelledError | None = None
        ended: model.TurnEnded | None = None
        untold: model.Event | None = None
        while True:
            try:
                while self._before:
                    async with self._sending:
                        # The task for events outside of turns may have sent the last one.
                        if self._before:
                            await self._tell_queued(self._before[0], tell)
                if first is not None:
                    async with self._sending:
                        await first()
                    self.knows()
                    first = None
                if untold is not None:
                    await self.tell_next(untold, tell)
                    self.knows()
                    untold = None
                async for event in running:
                    untold = event
                    self.taken += 1
                    if taken is not None:
                        taken(event)
                    if isinstance(event, model.TurnEnded):
                        ended = event
                    await self.tell_next(event, tell)
                    self.knows()
                    untold = None
            except asyncio.CancelledError as error:
                if cancelled is not None:
                    # Nothing sends this event again.
                    self._unsent.pop(id(untold), None)
                    raise
                # The client cancelled the turn; later messages from the peer are still part of it.
                cancelled = error
                running.cancel()
                continue
            if cancelled is not None:
                raise cancelled
            return ended

    async def tell_next(
        self, event: model.Event, tell: Callable[[model.Event], Awaitable[None]]
    ) -> None:
        """Send an event after the one that is being sent."""
        async with self._sending:
            await tell(event)

    async def tell_ours(self, tell: Callable[[], Awaitable[None]]) -> None:
        """Call a function that sends our own updates, after the event that is being sent."""
        async with self._sending:
            await tell()

    async def tell_all(
        self,
        event: model.Event,
        translate: Callable[[model.Event], Iterable[acp.SessionUpdate]],
    ) -> None:
        """Send the updates for an event. If a cancellation interrupts this, the next call with the
        same event sends the rest: translating twice would give other updates."""
        # The dictionary keeps the event alive, so that no other event has the same `id()`.
        rest = self._unsent.pop(id(event), None)
        unsent = deque(translate(event)) if rest is None else rest[1]
        try:
            while unsent:
                try:
                    waiting = self._send(unsent[0])
                    if waiting is not None:
                        await waiting
                except MessageTooLong as error:
                    await self.leave_out(error)
                unsent.popleft()
        except asyncio.CancelledError:
            self._unsent[id(event)] = (event, unsent)
            raise

    async def leave_out(self, error: MessageTooLong) -> None:
        """Log that an update was too long for the client, and tell the client so. Does not raise
        if even that is too long: later updates and the prompt's response must still arrive."""
        log.warning("an update of session %s was left out: %s", self.conversation.id, error)
        # The limit may be too low even for this.
        with contextlib.suppress(MessageTooLong):
            for update in self.speaker.left_out(error):
                waiting = self._send(update)
                if waiting is not None:
                    await waiting

    async def caught_up(self) -> None:
        """Wait until all events of the turn so far were sent, for at most `TOLD_TIMEOUT`."""
        if self.running is None:
            return
        left = sum(not isinstance(event, Ended) for event in self.running.untaken)
        number = self.taken + left
        if number > self.known:
            told = asyncio.Event()
            self.behind.append((number, told))
            await until_told(told)

    def question(self, request_id: str) -> asyncio.Event:
        return self.asked.setdefault(request_id, asyncio.Event())

    # -- outside of turns

    def put_outside(self, event: model.Event) -> None:
        """Queue an event outside of turns, for `tell_outside`. It is dropped if too many are
        queued."""
        if len(self._outside) + len(self._before) < MAX_OUTSIDE:
            self._outside.append(event)
            return
        if not self._dropped:
            log.warning(
                "a client reads too slowly: session %s has %d unsent events outside of turns; "
                "dropping further ones",
                self.conversation.id,
                MAX_OUTSIDE,
            )
        self._dropped += 1

    def forget_outside(self) -> None:
        """Drop the queued events: the session is replaced, or its client has disconnected."""
        self._outside.clear()

    def tell_outside(
        self, connection: Connection, tell: Callable[[model.Event], Awaitable[None]]
    ) -> None:
        """Start to send the queued events, in a task of the connection, unless such a task is
        running. It stops while a prompt is unanswered or a replay is running."""
        if self._outside and not self._telling and connection.failure is None:
            self._telling = True
            connection.tasks.start(self._tell_outside(tell), "send events outside of turns")

    async def _tell_outside(self, tell: Callable[[model.Event], Awaitable[None]]) -> None:
        try:
            while self._may_tell_outside():
                async with self._sending:
                    # A turn may have begun during the wait, and sends the events before it.
                    if self._may_tell_outside():
                        await self._tell_queued(self._outside[0], tell)
            if self._dropped and not self._outside:
                log.warning(
                    "session %s: %d events outside of turns were dropped",
                    self.conversation.id,
                    self._dropped,
                )
                self._dropped = 0
        except ConnectionLost:
            self.forget_outside()
        finally:
            self._telling = False

    def _may_tell_outside(self) -> bool:
        return bool(self._outside) and not self.unanswered and not self.replaying

    async def _tell_queued(
        self, event: model.Event, tell: Callable[[model.Event], Awaitable[None]]
    ) -> None:
        """Send the first event of a queue. It is still queued if a cancellation interrupts this."""
        try:
            await tell(event)
        except asyncio.CancelledError:
            raise
        except BaseException:
            self._unqueue(event)
            raise
        self._unqueue(event)

    def _unqueue(self, event: model.Event) -> None:
        # While it was sent, a turn may have begun, or the queue may have been dropped.
        if self._before and self._before[0] is event:
            self._before.popleft()
            self.knows()
        elif self._outside and self._outside[0] is event:
            self._outside.popleft()


async def until_told(told: asyncio.Event) -> None:
    """Wait until `told` is set: the events before a question were sent to the client. After
    `TOLD_TIMEOUT`, log a warning and return, so that the question is sent anyway."""
    try:
        async with asyncio.timeout(TOLD_TIMEOUT):
            await told.wait()
    except TimeoutError:
        log.warning(
            "a client did not read the events before a question within %g s; sending the question "
            "anyway",
            TOLD_TIMEOUT,
        )
