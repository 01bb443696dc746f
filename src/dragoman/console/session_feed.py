"""Follow one session for one browser: first its stored events, then each new one as it happens.

Event lines come from the broker that has the session open, or from the store. The start and end of
a turn have no line: they are derived from the jobs and inserted where they belong. A browser that
stops reading delays only its own feed.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from dragoman.errors import DragomanError, UsageError
from dragoman.events import model
from dragoman.events.model import EventEnvelope, Source
from dragoman.rpc.tasks import TaskOwner
from dragoman.runs.job_events import EventCursor, events_after, follow_session
from dragoman.store.history import TurnMarks, events_of

if TYPE_CHECKING:
    from dragoman.console.live_state import LiveState
    from dragoman.store.records import JobRecord, SessionRecord

log: Final = logging.getLogger("dragoman.console")

BATCH: Final = 250
BATCH_SIZE: Final = 256 * 1024
"""Maximum number of events in one message to a browser, and maximum bytes of their lines. Either
limit ends a batch."""

MAX_LINES: Final = 500
MAX_LINES_SIZE: Final = 1024 * 1024
"""Maximum number and total bytes of the lines queued for the browser before reading pauses."""

TURN_TIMEOUT: Final = 1.0
"""Seconds that the first events of a turn wait for their job. The broker sends events immediately
and stores the job a moment later."""

RETRY_INTERVAL: Final = 5.0
"""Seconds until lines are read again after an error, for example of a broker that hangs."""

_OUTSIDE: Final = (
    model.SettingsChanged,
    model.CommandsChanged,
    model.SessionChanged,
    model.UsageReported,
)
"""Types of events that may occur while no turn is running."""

Send = Callable[[list[dict[str, Any]], bool], Awaitable[None]]


class SessionFeed:
    """Sends the events of one session to one browser, or only those after the cursor `after`.
    `send` is called with a list of events and with whether they bring the browser up to date; it
    waits while the browser reads slowly."""

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
        self._lines_size = 0
        self._room = asyncio.Event()
        self._earlier: dict[str, JobRecord] = {}
        """The jobs of the session, by id: those stored at the start of the feed, because the state
        lists only the newest ones, and those listed since."""
        self._jobs_changed = True
        self._wake = asyncio.Event()
        self._stored = asyncio.Event()
        self._pending: list[dict[str, Any]] = []
        self._pending_size = 0

    async def run(self) -> None:
        """Send the stored events, then new ones as they come, until cancelled."""
        tasks = TaskOwner("session feed")
        forget = self._state.on_store(self._store_changed)
        try:
            jobs = await self._state.stored_jobs(self._record.key)
            self._earlier = {job.id: job for job in reversed(jobs)}
            self._take_jobs()
            if self._after is not None:
                # Turn marks before the cursor were sent before the browser disconnected.
                for _ in self._turns.before(self._after.line):
                    pass
            reading = tasks.start(self._read(self._next), "read")
            reading.add_done_callback(lambda _: self._wake.set())
            while not reading.done():
                self._wake.clear()
                while not self._lines.empty():
                    number, line = self._lines.get_nowait()
                    self._lines_size -= len(line)
                    self._room.set()
                    await self._line(number, line)
                self._mark(self._next)
                await self._flush(caught_up=True)
                if self._lines.empty() and not reading.done():
                    await self._wake.wait()
            # Reading never ends normally, so this raises its error.
            reading.result()
        finally:
            forget()
            await tasks.aclose()

    def _store_changed(self) -> None:
        self._jobs_changed = True
        self._stored.set()
        self._wake.set()

    async def _read(self, number: int) -> None:
        """Queue lines from the broker or the store until cancelled."""
        told = ""
        while True:
            failure: DragomanError | None = None
            self._stored.clear()
            # The peer may have changed the id of the session.
            record = self._state.session(self._record.key) or self._record
            broker = self._state.broker_of(record.key)
            lines = follow_session(record, broker, start=number, paths=self._state.paths)
            try:
                async for found, line in lines:
                    await self._lines.put((found, line))
                    self._lines_size += len(line)
                    self._wake.set()
                    number = found + 1
                    while self._lines_size >= MAX_LINES_SIZE:
                        self._room.clear()
                        await self._room.wait()
            except UsageError as error:
                # `number` is the number of a line that does not exist yet.
                log.debug("session %s has no new lines yet: %s", self._record.key, error)
            except DragomanError as error:
                failure = error
            finally:
                await lines.aclose()
            if failure is None:
                told = ""
                await self._stored.wait()
                continue
            if str(failure) != told:
                told = str(failure)
                self._report(told)
            with suppress(TimeoutError):
                async with asyncio.timeout(RETRY_INTERVAL):
                    await self._stored.wait()

    def _report(self, why: str) -> None:
        """Tell the browser that events are missing for now."""
        log.warning("cannot read the events of session %s: %s", self._record.key, why)
        title = "new events of this session cannot be read; trying again"
        event = model.Noticed(*self._envelope.base("", None), "warning", title, why)
        self._pending.append(as_json(event))
        self._wake.set()

    async def _line(self, number: int, line: bytes) -> None:
        events = tuple(events_of(line, self._envelope))
        if not self._in_turn and not all(isinstance(event, _OUTSIDE) for event in events):
            await self._know_turn(number)
        self._mark(number)
        key = self._record.key
        for cursor, event in events_after(self._after, session=key, line=number, events=events):
            self._pending.append(as_json(event) | {"cursor": str(cursor)})
        self._next = number + 1
        self._pending_size += len(line)
        if len(self._pending) >= BATCH or self._pending_size >= BATCH_SIZE:
            await self._flush(caught_up=False)

    async def _know_turn(self, number: int) -> None:
        """Wait for up to `TURN_TIMEOUT` until the job of a line is known, so that the job's prompt
        is sent before the line."""
        try:
            async with asyncio.timeout(TURN_TIMEOUT):
                self._take_jobs()
                while not self._turns.covers(number):
                    self._wake.clear()
                    await self._wake.wait()
                    self._take_jobs()
        except TimeoutError:
            # The line belongs to no job. The next turn is looked up when it starts.
            self._in_turn = True

    def _take_jobs(self) -> None:
        if self._jobs_changed:
            self._jobs_changed = False
            self._earlier |= {job.id: job for job in self._state.jobs_of(self._record.key)}
            self._turns.take(self._earlier.values())

    def _mark(self, number: int) -> None:
        self._take_jobs()
        for event in self._turns.before(number):
            told = as_json(event)
            # Sent again after a reconnect. The browser uses the mark to skip duplicates.
            told["mark"] = f"{event.turn}:{told['type']}"
            self._pending.append(told)
            self._in_turn = isinstance(event, model.TurnStarted)

    async def _flush(self, *, caught_up: bool) -> None:
        pending, self._pending = self._pending, []
        self._pending_size = 0
        if pending or caught_up:
            await self._send(pending, caught_up)


def as_json(event: model.Event) -> dict[str, Any]:
    """Return an event as JSON, without its source and the message that it was decoded from."""
    told: dict[str, Any] = msgspec.to_builtins(event, enc_hook=str)
    for name in ("raw", "source", "native"):
        told.pop(name, None)
    return told
