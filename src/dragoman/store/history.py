"""Replay a stored session as events, without its peer.

Converts stored lines and jobs to events, all marked as replayed, with the start and end of each
turn and a notice for each gap. Reads only.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from dragoman.client.results import Result
from dragoman.decoders import convert_typed
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1 import codec, content, translate, updates
from dragoman.errors import UnknownSession
from dragoman.events import model, parts
from dragoman.events.model import EventEnvelope
from dragoman.events.words import ErrorKind, Outcome
from dragoman.store.records import Gap, JobRecord, counted, delegated_job
from dragoman.store.sessions import missing
from dragoman.store.store import Store

CONNECTION: Final = "stored"
"""The connection id in the source of events that come from the store."""

_decode = codec.decoder(updates.SessionNotification)


def history(store: Store, key: str) -> Iterator[model.Event]:
    """Yield the events of a stored session, with the start and end of each turn. Raises
    `UnknownSession`."""
    session = store.session(key)
    if session is None:
        raise UnknownSession(missing(key))
    source = model.Source(translate.DIALECT, CONNECTION)
    envelope = EventEnvelope(source, itertools.count(1), session.peer_session_id)
    envelope.replay = True
    yield model.SessionOpened(
        *envelope.base("", None), "load", session.cwd, session.title, session.model
    )
    gaps = store.gaps(key)
    jobs = store.jobs(session_key=key, limit=-1, texts=False)
    turns = TurnMarks(envelope, jobs)
    for number, line in store.lines(key, stop=session.next_event):
        while gaps and gaps[0].first < number:
            yield from turns.before(gaps[0].first)
            yield _missing(gaps.pop(0), envelope)
        yield from turns.before(number)
        yield from events_of(line, envelope)
    for gap in gaps:
        yield from turns.before(gap.first)
        yield _missing(gap, envelope)
    yield from turns.rest()


def text_of(store: Store, job: JobRecord) -> str:
    """Return the agent's answer in a job, from its record or else from its stored events;
    incomplete if not all of it was stored."""
    if job.text or not job.session_key or job.started_at is None:
        return job.text
    stop = job.next_event if job.state == "ended" else None
    said = []
    for _, line in store.lines(job.session_key, job.first_event, stop):
        update = _update(line)
        if isinstance(update, updates.AgentMessageChunk):
            piece = update.content
            if isinstance(piece, content.TextContent):
                said.append(piece.text)
    return "".join(said)


def result_of(job: JobRecord) -> Result:
    """Return the result of a job that has ended, as far as its record has it."""
    return Result(
        outcome=_outcome(job.outcome),
        text=job.text,
        stop=job.stop or "",
        failure=_failure(job.failure),
        usage=_usage(job.usage),
    )


class TurnMarks:
    """Inserts the start and end of turns between the events, where they happened."""

    def __init__(self, envelope: EventEnvelope, jobs: Iterable[JobRecord] = ()) -> None:
        self._envelope = envelope
        self._left: list[JobRecord] = []
        self._begun: set[str] = set()
        self._open: JobRecord | None = None
        self.take(jobs)

    def take(self, jobs: Iterable[JobRecord]) -> None:
        """Take a new list of the session's jobs, some of which may still be running. Jobs that have
        not started and those whose start was already yielded are left out. So are delegated jobs
        with an attempt in the list."""
        jobs = list(jobs)
        # A delegated job and its attempt are stored with one session, and there is one turn.
        delegated = {parent for job in jobs if (parent := delegated_job(job.id))}
        left = []
        for job in jobs:
            if self._open is not None and job.id == self._open.id:
                self._open = job
            elif job.started_at and job.id not in self._begun and job.id not in delegated:
                left.append(job)
        self._left = sorted(left, key=lambda job: (job.first_event, job.created_at), reverse=True)

    def covers(self, number: int) -> bool:
        """Return whether the event with this number belongs to a known job whose end was not yet
        yielded."""
        known = [*self._left, *([] if self._open is None else [self._open])]
        return any(
            job.first_event <= number and (job.state != "ended" or number < job.next_event)
            for job in known
        )

    def before(self, number: int) -> Iterator[model.Event]:
        """Yield the starts and ends of turns that come before the event with this number, each
        once."""
        while True:
            job = self._open
            following = self._left[-1] if self._left else None
            if job is not None and (
                (job.state == "ended" and job.next_event <= number)
                or (following is not None and following.first_event <= number)
            ):
                yield from self._end(job)
            elif job is None and following is not None and following.first_event <= number:
                yield self._begin(self._left.pop())
            else:
                return

    def rest(self) -> Iterator[model.Event]:
        while self._open is not None or self._left:
            if self._open is not None:
                yield from self._end(self._open)
            else:
                yield self._begin(self._left.pop())

    def _begin(self, job: JobRecord) -> model.Event:
        self._open = job
        self._begun.add(job.id)
        self._envelope.turn = job.id
        prompt = (parts.Text(job.prompt),) if job.prompt else ()
        return model.TurnStarted(*self._envelope.base("", None), prompt)

    def _end(self, job: JobRecord) -> Iterator[model.Event]:
        self._open = None
        if job.state == "ended":
            yield model.TurnEnded(
                *self._envelope.base("", None),
                _outcome(job.outcome),
                job.stop or "",
                _failure(job.failure),
                usage=_usage(job.usage),
            )
        self._envelope.turn = None


def _missing(gap: Gap, envelope: EventEnvelope) -> model.Event:
    """Return a notice that replaces missing events."""
    title = f"{counted(gap.next - gap.first)} missing here: storing failed"
    return model.Noticed(*envelope.base("", None), "warning", title, gap.why or None)


def _update(line: bytes) -> Any:
    try:
        return _decode(line).update
    except msgspec.ValidationError:
        return None


_UPDATE: Final = acp.SESSION_UPDATE.name.encode()


def events_of(line: bytes, envelope: EventEnvelope) -> Iterator[model.Event]:
    """Yield the events of one stored line."""
    raw = b'{"jsonrpc":"2.0","method":"%b","params":%b}' % (_UPDATE, line)
    update = _update(line)
    if update is None:
        yield model.Unknown(
            *envelope.base(acp.SESSION_UPDATE.name, raw), "a line that is not an update"
        )
    else:
        yield from translate.of_update(update, envelope, raw)


def _outcome(word: str | None) -> Outcome:
    try:
        return Outcome(word or "")
    except ValueError:
        return Outcome.UNKNOWN


def _failure(failure: dict[str, Any] | None) -> parts.Failure | None:
    if failure is None:
        return None
    try:
        kind = ErrorKind(str(failure.get("kind", "")))
    except ValueError:
        kind = ErrorKind.PEER
    code = failure.get("code", failure.get("errorClass"))
    return parts.Failure(
        str(failure.get("message", "")), kind, code if isinstance(code, int | str) else None
    )


def _usage(usage: dict[str, Any] | None) -> parts.Usage | None:
    """Decode usage, in our spelling or the protocol's. Returns None if there is none or it is
    invalid."""
    if usage is None:
        return None
    told = {"".join(f"_{c.lower()}" if c.isupper() else c for c in k): v for k, v in usage.items()}
    try:
        return convert_typed(told, parts.Usage)
    except msgspec.ValidationError:
        return None
