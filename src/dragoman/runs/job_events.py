"""Follow the events of a session or job while it runs, in this or another process.

Yields each event once and in order, from the broker that has the session open or from the store,
with an `EventCursor`: a reader that was disconnected continues after its last event. Sends no
prompt and answers nothing. `store.history` reads past sessions.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from msgspec import Raw

from dragoman.broker.client.hello import ANSWER_TIMEOUT, open_stream, require_answer, watch
from dragoman.broker.protocol import (
    ATTACH,
    POSITION,
    RELEASED,
    RESULT,
    Attached,
    Position,
    decode_as,
)
from dragoman.client.acp.client import AcpClient
from dragoman.client.acp.options import ClientOptions
from dragoman.errors import (
    CallError,
    ConnectError,
    ConnectionLost,
    DragomanError,
    InvalidAnswer,
    Overflow,
    RemoteError,
    UsageError,
)
from dragoman.events.model import Event, EventEnvelope, Source
from dragoman.gateway.relay import HERE, Route, Upstream
from dragoman.rpc import Lane
from dragoman.rpc.tasks import in_thread
from dragoman.runs.jobs import LOOK_INTERVAL, address_of, find_job, updated
from dragoman.store.history import events_of
from dragoman.store.open import open_store

if TYPE_CHECKING:
    from dragoman.broker.records import BrokerRecord
    from dragoman.paths import Paths
    from dragoman.store.records import JobRecord, SessionRecord
    from dragoman.wire.messages import Notification, Request

ATTACH_TIMEOUT: Final = ANSWER_TIMEOUT
"""Timeout in seconds for a broker to attach a reader. That needs no peer, and at most one read
from the store."""

FIRST_INTERVAL: Final = 0.01
"""Seconds until a queued job is checked again for the first time."""

NOBODY: Final = ClientOptions(read_files=False, write_files=False)
"""Options of a client that only follows events: it offers the agent no files and decides
nothing."""


class _Watcher(AcpClient):
    """A client that a broker notifies when event numbers are skipped or the session is released."""

    def __init__(self, stream: Any, on_position: Callable[[Position | Over], None]) -> None:
        super().__init__(stream, NOBODY)
        self._on_position = on_position
        self._serving.between = self._told

    def _told(self, method: str, params: Raw) -> bool:
        if method == RELEASED:
            self._on_position(Over(error=ConnectionLost("the session was released")))
            return True
        if method != POSITION:
            return False
        try:
            self._on_position(decode_as(params, Position, POSITION))
        except InvalidAnswer as error:
            # The numbers of the events that follow are unknown.
            self._on_position(Over(error=error))
        return True


class Over:
    """Marks the end of the lines, with the broker's report on the job or the error that ended
    them."""

    def __init__(self, told: Any = None, error: DragomanError | None = None) -> None:
        self.told = told
        self.error = error


class _Route(Route):
    """Receives the updates of one session and queues them in a lane."""

    def __init__(self, lane: Lane[bytes | Position | Over]) -> None:
        self._lane = lane

    def update(self, notification: Notification) -> None:
        self._lane.put(bytes(notification.params), len(notification.line))

    def request(self, request: Request) -> Any:
        return HERE


READ_SIZE: Final = 1024 * 1024
"""Number of bytes of stored lines to read at once, after which the reader gets them."""

_CURSOR: Final = re.compile(r"(?P<session>[^:]+):(?P<line>[0-9]{1,18})(?:\.(?P<part>[0-9]{1,9}))?")


@dataclass(frozen=True, slots=True)
class EventCursor:
    """The position after one event of a session, from which to continue.

    As text it is `SESSION:LINE` after the last event of a line of the session, and
    `SESSION:LINE.PART` after an earlier one of several. Only `str` and `parse` deal with this text
    form.
    """

    session: str
    """The key of the session."""
    line: int
    """The number of the line that the event is from."""
    part: int | None = None
    """Number of events of the line before this position; None for all of them."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a cursor. Raises `UsageError` if the text is not a valid cursor."""
        found = _CURSOR.fullmatch(text)
        if found is None:
            raise UsageError(f"not an event cursor: {text!r}")
        part = found["part"]
        return cls(found["session"], int(found["line"]), None if part is None else int(part))

    def __str__(self) -> str:
        part = "" if self.part is None else f".{self.part}"
        return f"{self.session}:{self.line}{part}"

    @property
    def next_line(self) -> int:
        """The number of the first line with events after this position."""
        return self.line + (self.part is None)


def events_after(
    after: EventCursor | None, *, session: str, line: int, events: Sequence[Event]
) -> Iterator[tuple[EventCursor, Event]]:
    """Yield the events of a line that come after the cursor `after`, each with its own cursor; all
    of them if `after` is None or in another line."""
    seen = 0
    if after is not None and (after.session, after.line) == (session, line):
        seen = after.part or 0
    for part, event in enumerate(events[seen:], seen + 1):
        yield EventCursor(session, line, None if part == len(events) else part), event


async def session_events(
    record: SessionRecord,
    broker: BrokerRecord | None,
    *,
    start: int | None = None,
    after: EventCursor | None = None,
    paths: Paths,
) -> AsyncGenerator[tuple[EventCursor, Event], None]:
    """Yield the events of a session until its broker ends: those after the cursor `after`, or else
    from the line `start` on, or else from now on.

    If no broker has it open, the stored events are yielded without waiting for more. Raises
    `UsageError` for a cursor of another session or of events that do not exist and, after the last
    event, `BrokerError` if the broker that has the session open does not answer.
    """
    if after is not None:
        if after.session != record.key:
            raise UsageError(f"{after} is a cursor of another session, not of {record.key}")
        start = after.next_line
    lines = follow_session(record, broker, start=start, paths=paths)
    try:
        async for each in _events(lines, record, after):
            yield each
    finally:
        await lines.aclose()


async def job_events(
    job: JobRecord, *, after: EventCursor | None = None, paths: Paths
) -> AsyncGenerator[tuple[EventCursor, Event], None]:
    """Yield the events of a job, from its first or after `after`, until it has ended; for a
    delegated job, those of all its attempts. Raises `UsageError` for a cursor that is not of this
    job, and `BrokerError` if a broker that runs it no longer answers."""
    attempts = attempts_of(job, after=after, paths=paths)
    async for record, attempt in attempts:
        lines = follow_job(record, attempt, start=start_in(attempt, after), paths=paths)
        try:
            async for each in _events(lines, record, after):
                yield each
        finally:
            await lines.aclose()
        # The cursor applies only to the events of the first attempt.
        after = None


async def attempts_of(
    job: JobRecord, *, after: EventCursor | None, paths: Paths
) -> AsyncGenerator[tuple[SessionRecord, JobRecord], None]:
    """Yield the jobs that carry out a job, one after another as they start, each with its session:
    the attempts of delegated work, otherwise the job itself. With a cursor, it starts at the
    cursor's job."""
    seen = 0
    while True:
        record, attempt, seen = await _stored_attempt(job, seen, after, paths)
        after = None
        if record is not None:
            yield record, attempt
            if attempt is job:
                return
            seen += 1
        elif job.state == "ended":
            return
        else:
            await asyncio.sleep(LOOK_INTERVAL)
        # Checked before the attempts are read, so that the last one is not missed.
        job = await find_job(job.id, paths=paths, require_answer=True)


async def _stored_attempt(
    job: JobRecord, seen: int, after: EventCursor | None, paths: Paths
) -> tuple[SessionRecord | None, JobRecord, int]:
    """Return the session, the record and the index of an attempt: that with the index `seen` or,
    with a cursor, the one that the cursor is from. The session is None if that attempt has not
    started. Reads in a thread, because another process may hold the store."""

    def read(_: threading.Event) -> tuple[SessionRecord | None, JobRecord, int]:
        with open_store(read_only=True, paths=paths) as store:
            found = [each for each in store.attempts(job.id) if each.session_key]
            if not found and job.session_key:
                found = [job]
            number = seen if after is None else _attempt_of(job, found, after)
            if number >= len(found):
                return None, job, number
            return store.session(found[number].session_key), found[number], number

    return await in_thread(str(paths.state), read)


def _attempt_of(job: JobRecord, attempts: Sequence[JobRecord], after: EventCursor) -> int:
    """Return the index of the attempt that the event before a cursor belongs to. Raises
    `UsageError` if there is none."""
    for index in reversed(range(len(attempts))):
        attempt = attempts[index]
        if attempt.session_key == after.session and _may_have(attempt, after.line):
            return index
    raise UsageError(f"{after} is not a cursor of the job {job.id}")


def _may_have(job: JobRecord, line: int) -> bool:
    """Return whether a line of its session may belong to a job.

    A broker that was killed may have sent more lines of the job than it has stored.
    """
    over = job.state == "ended" and job.outcome != "crashed"
    return job.first_event <= line and not (over and line >= job.next_event)


def start_in(job: JobRecord, after: EventCursor | None) -> int | None:
    """Return the number of the first line after a cursor. Without a cursor, or with one of another
    session, return None, which stands for all lines of the job."""
    return None if after is None or after.session != job.session_key else after.next_line


async def _events(
    lines: AsyncGenerator[tuple[int, bytes], None],
    record: SessionRecord,
    after: EventCursor | None,
) -> AsyncGenerator[tuple[EventCursor, Event], None]:
    place = EventEnvelope(Source("acp", "watched"), itertools.count(1), record.peer_session_id)
    async for number, line in lines:
        events = tuple(events_of(line, place))
        for found in events_after(after, session=record.key, line=number, events=events):
            yield found


async def follow_session(
    record: SessionRecord, broker: BrokerRecord | None, *, start: int | None, paths: Paths
) -> AsyncGenerator[tuple[int, bytes], None]:
    """Yield the lines of a session, with their numbers, until its broker ends: from the line
    `start` on or, if that is None, from now on.

    If no broker has it open, or the broker has released it to another process, the stored lines are
    yielded without waiting for more. Raises `BrokerError` after them if the broker has it open and
    does not answer, and `UsageError` if there is no line `start` yet.
    """
    begun = lost = False
    while broker is not None and not lost:
        following = _live(broker.address, broker.name, record.peer_session_id, start, None)
        number = start
        try:
            async for line_number, line in following:
                yield line_number, line
                number = line_number + 1
        except Overflow:
            # They were read too slowly. The broker sends what was dropped again.
            begun, start = True, number
        except (ConnectError, CallError, ConnectionLost):
            # The session is not open there, or no longer; the store has its events.
            begun, start, lost = begun or number != start, number, True
        else:
            return
        finally:
            await following.aclose()
    if start is not None:
        number = start
        # A broker that was killed may have shown events that it had not stored.
        while some := await _stored_lines(record.key, number, paths, require_begun=not begun):
            for stored in some:
                yield stored
            begun, number = True, some[-1][0] + 1
    if lost and broker is not None:
        await require_answer(broker.address, broker.name)


async def follow_job(
    record: SessionRecord, job: JobRecord, *, start: int | None = None, paths: Paths
) -> AsyncGenerator[tuple[int, bytes], None]:
    """Yield the lines of a job, with their numbers, until it has ended: from its first, or from the
    line `start` if that is later. Raises `BrokerError` if its broker no longer answers."""
    interval = FIRST_INTERVAL
    while job.state == "queued":
        # The interval grows: a job usually starts at once, but may wait long behind other jobs.
        await asyncio.sleep(interval)
        interval = min(2 * interval, LOOK_INTERVAL)
        job = await find_job(job.id, paths=paths, require_answer=True)
    number = job.first_event if start is None else max(start, job.first_event)
    if job.state == "running" and job.endpoint is not None:
        address = address_of(job.endpoint, paths)
        following = _live(address, job.endpoint, record.peer_session_id, number, job)
        try:
            async for line_number, line in following:
                yield line_number, line
                number = line_number + 1
        except (ConnectError, CallError, ConnectionLost):
            pass
        finally:
            await following.aclose()
    while True:
        until = await _next_event(record.key, paths)
        # Checked between the number of the last line and the lines: then the last ones are not
        # missed, and lines that follow the end of the job are not taken for lines of it.
        job = await find_job(job.id, paths=paths, require_answer=True)
        stop = job.next_event if job.state == "ended" else until
        while some := await _stored_lines(record.key, number, paths, stop=stop):
            for line_number, line in some:
                yield line_number, line
                number = line_number + 1
        if job.state == "ended":
            return
        await asyncio.sleep(LOOK_INTERVAL)


async def _next_event(key: str, paths: Paths) -> int:
    """Return the number of the next event of a session; 0 if it is not stored."""

    def read(_: threading.Event) -> int:
        with open_store(read_only=True, paths=paths) as store:
            now = store.session(key)
        return 0 if now is None else now.next_event

    return await in_thread(str(paths.state), read)


async def _stored_lines(
    key: str, start: int, paths: Paths, *, stop: int | None = None, require_begun: bool = False
) -> list[tuple[int, bytes]]:
    """Return the next stored lines, of `READ_SIZE` or a little more, from `start` up to but
    excluding `stop`. Reads in a thread, because another process may hold the store.

    With `require_begun`, raises `UsageError` if the line `start` does not exist yet.
    """

    def read(_: threading.Event) -> list[tuple[int, bytes]]:
        found, size = [], 0
        with open_store(read_only=True, paths=paths) as store:
            now = store.session(key) if require_begun else None
            if now is not None and start >= now.resumed_event:
                raise UsageError(
                    f"the session {key} has no event {start}: the next is {now.next_event}"
                )
            for number, line in store.lines(key, start, stop):
                found.append((number, line))
                size += len(line)
                if size >= READ_SIZE:
                    break
        return found

    return await in_thread(str(paths.state), read)


async def _live(
    address: str, broker: str, session_id: str, start: int | None, job: JobRecord | None
) -> AsyncGenerator[tuple[int, bytes], None]:
    lane: Lane[bytes | Position | Over]
    client = _Watcher(await open_stream(address), lambda position: lane.put(position, 0))
    upstream = Upstream(client)
    try:
        connection = client.connection
        watch(connection, address, broker, always=True)
        await client.start()
        lane = Lane(connection.flow)
        upstream.route(session_id, _Route(lane))
        try:
            raw = await connection.call(
                ATTACH, {"sessionId": session_id, "start": start}, timeout=ATTACH_TIMEOUT
            )
        except RemoteError as error:
            next = error.data.get("next") if isinstance(error.data, dict) else None
            if start is not None and isinstance(next, int) and start > next:
                raise UsageError(f"the session has no event {start}: the next is {next}") from error
            raise
        answer = decode_as(raw, Attached, f"response to {ATTACH}")
        number = answer.next if start is None else max(start, answer.first)
        stop: int | None = None
        if job is not None:

            def settle(result: Raw | None, error: DragomanError | None) -> None:
                told: Any = None
                try:
                    if result is not None:
                        told = decode_as(result, dict[str, Any], f"response to {RESULT}")
                except InvalidAnswer as invalid:
                    error = invalid
                lane.put(Over(told, error), 0)

            connection.begin(RESULT, {"job": job.id, "wait": True}, settle=settle)
        while stop is None or number < stop:
            item = await lane.get()
            if isinstance(item, bytes):
                yield number, item
                number += 1
            elif isinstance(item, Position):
                number = item.next
            elif item.error is not None:
                raise item.error
            elif job is not None:
                # The response may arrive before events that the broker has yet to send.
                stop = updated(job, item.told).next_event
    finally:
        await client.aclose()
