"""Follow one session for one browser: its stored events, then each new one as it happens.

Lines come from the broker that has the session open, or from the store. The beginnings and ends of
turns are not lines: they come from the jobs, and are put where they belong. A browser that does
not read holds up its own feed and nothing else.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from dragoman.errors import DragomanError
from dragoman.events import model
from dragoman.events.model import EventEnvelope, Source
from dragoman.rpc.tasks import TaskOwner
from dragoman.runs.job_events import EventCursor, follow_session
from dragoman.store.history import TurnMarks, events_of

if TYPE_CHECKING:
    from dragoman.console.live_state import LiveState
    from dragoman.store.records import SessionRecord

log: Final = logging.getLogger("dragoman.console")

BATCH: Final = 250
BATCH_SIZE: Final = 256 * 1024
"""Events in one message to a browser, and bytes of the lines that they come from."""

MAX_LINES: Final = 500
"""Lines that wait for the browser before no more are read."""

TURN_TIMEOUT: Final = 1.0
"""Seconds that the first words of a turn wait for the job that they belong to. A broker tells the
words at once and stores the job a moment later."""

_OUTSIDE: Final = (
    model.SettingsChanged,
    model.CommandsChanged,
    model.SessionChanged,
    model.UsageReported,
)
"""Events that may come when no turn runs."""

Send = Callable[[list[dict[str, Any]], bool], Awaitable[None]]


class SessionFeed:
    """Sends the events of one session. `send` gets some, and whether these are all there are now;
    it waits for the browser."""

    def __init__(
        self, record: SessionRecord, state: LiveState, send: Send, after: EventCursor | None = None
    ) -> None:
        self._record = record
        self._state = state
        self._send = send
        self._after = after
        self._next = 0 if after is None else after.next_line
        source = Source("acp", "console")
        self._envelope = EventEnvelope(source, itertools.count(1), record.peer_session_id)
        self._turns = TurnMarks(self._envelope)
        self._in_turn = False
        self._lines: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue(MAX_LINES)
        self._wake = asyncio.Event()
        self._stored = asyncio.Event()
        self._pending: list[dict[str, Any]] = []
        self._pending_size = 0

    async def run(self) -> None:
        """Send events until it is cancelled."""
        tasks = TaskOwner("session feed")
        forget = self._state.on_store(self._store_changed)
        try:
            self._take_jobs()
            if self._after is not None:
                # These were sent for certain before the browser was cut off.
                for _ in self._turns.before(self._after.line):
                    pass
            tasks.start(self._read(self._next), "read")
            while True:
                self._wake.clear()
                while not self._lines.empty():
                    await self._line(*self._lines.get_nowait())
                self._mark(self._next)
                await self._flush(caught_up=True)
                if self._lines.empty():
                    await self._wake.wait()
        finally:
            forget()
            await tasks.aclose()

    def _store_changed(self) -> None:
        self._stored.set()
        self._wake.set()

    async def _read(self, number: int) -> None:
        """Put lines into the queue, from the broker or the store, for ever."""
        while True:
            self._stored.clear()
            broker = self._state.broker_of(self._record.key)
            lines = follow_session(self._record, broker, start=number, paths=self._state.paths)
            try:
                async for found, line in lines:
                    await self._lines.put((found, line))
                    self._wake.set()
                    number = found + 1
            except DragomanError as error:
                # Such as a number that is not there yet.
                log.debug("the session %s has no more lines: %s", self._record.key, error)
            finally:
                await lines.aclose()
            await self._stored.wait()

    async def _line(self, number: int, line: bytes) -> None:
        events = tuple(events_of(line, self._envelope))
        if not self._in_turn and not all(isinstance(event, _OUTSIDE) for event in events):
            await self._know_turn(number)
        self._mark(number)
        sent = 0
        if self._after is not None and self._after.line == number:
            sent = self._after.part or 0
        for part, event in enumerate(events[sent:], sent + 1):
            last = part == len(events)
            cursor = EventCursor(self._record.key, number, None if last else part)
            self._pending.append(as_json(event) | {"cursor": str(cursor)})
        self._next = number + 1
        self._pending_size += len(line)
        if len(self._pending) >= BATCH or self._pending_size >= BATCH_SIZE:
            await self._flush(caught_up=False)

    async def _know_turn(self, number: int) -> None:
        """Wait until the job is known that a line belongs to, so that its prompt comes first."""
        try:
            async with asyncio.timeout(TURN_TIMEOUT):
                self._take_jobs()
                while not self._turns.covers(number):
                    self._wake.clear()
                    await self._wake.wait()
                    self._take_jobs()
        except TimeoutError:
            # It belongs to none. The next turn is looked for when it begins.
            self._in_turn = True

    def _take_jobs(self) -> None:
        self._turns.take(self._state.jobs_of(self._record.key))

    def _mark(self, number: int) -> None:
        self._take_jobs()
        for event in self._turns.before(number):
            told = as_json(event)
            # Sent again after the browser was cut off: it knows by this that it has it.
            told["mark"] = f"{event.turn}:{told['type']}"
            self._pending.append(told)
            self._in_turn = isinstance(event, model.TurnStarted)

    async def _flush(self, *, caught_up: bool) -> None:
        pending, self._pending = self._pending, []
        self._pending_size = 0
        if pending or caught_up:
            await self._send(pending, caught_up)


def as_json(event: model.Event) -> dict[str, Any]:
    """An event without the message that it came from."""
    told: dict[str, Any] = msgspec.to_builtins(event, enc_hook=str)
    for name in ("raw", "source", "native"):
        told.pop(name, None)
    return told
