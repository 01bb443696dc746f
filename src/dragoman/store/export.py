"""Export a session as JSON lines, and import such a file.

docs/reference/sessions-store.md describes the format. The last line has the counts, so that a
truncated file is rejected. Imported data is redacted again, because its origin is unknown.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct, structs

from dragoman.decoders import decode_typed
from dragoman.errors import UnknownSession, UsageError
from dragoman.store.events import EventTable
from dragoman.store.jobs import JobTable
from dragoman.store.records import (
    EVENT_SPAN,
    GAP,
    LOCAL_KINDS,
    Gap,
    JobRecord,
    Note,
    SessionRecord,
    new_job_id,
    new_session_key,
)
from dragoman.store.sessions import SessionTable, missing
from dragoman.store.stream_redaction import LineRedactor
from dragoman.wire.messages import UNDECODABLE

FORMAT: Final = 1

BATCH: Final = 1000
"""Maximum number of events stored in one transaction."""


class _Head(Struct, rename="camel"):
    session: SessionRecord
    format: int
    first_event: int = 0


class _Line(Struct, rename="camel"):
    """A line after the first one. Exactly one of these fields is set."""

    job: JobRecord | None = None
    event: int | None = None
    params: Raw = Raw()
    gap: Gap | None = None
    note: Note | None = None
    end: dict[str, Any] | None = None


class Portable(SessionTable, JobTable, EventTable):
    """The export and import methods of a store."""

    def export(self, key: str) -> Iterator[bytes]:
        """Yield a session as lines of JSON, without line breaks. Raises `UnknownSession`."""
        session = self.session(key)
        if session is None:
            raise UnknownSession(missing(key))
        encode = msgspec.json.encode
        first = self.first_event(key)
        gaps = [gap for gap in self.gaps(key) if first <= gap.next <= session.next_event]
        # There may be a gap before the first stored event.
        first = min([first, *(gap.first for gap in gaps)])
        yield encode({"session": session, "format": FORMAT, "firstEvent": first})
        jobs = self.jobs(session_key=key, limit=-1)
        for job in reversed(jobs):
            yield encode({"job": job})
        events = 0
        for number, line in self.lines(key, stop=session.next_event):
            while gaps and gaps[0].first < number:
                yield encode({"gap": gaps.pop(0)})
            events += 1
            yield b'{"event":%d,"params":%b}' % (number, line)
        for gap in gaps:
            yield encode({"gap": gap})
        notes = [note for note in self.notes(key) if note.kind not in (GAP, *LOCAL_KINDS)]
        for note in notes:
            yield encode({"note": note})
        yield encode({"end": {"jobs": len(jobs), "events": events, "notes": len(notes)}})

    def import_(self, lines: Iterable[bytes]) -> SessionRecord:
        """Store an exported session, completely or not at all, and return it as stored here.

        Keeps its key, its name and the ids of its jobs if they are free. Raises `UsageError` for
        lines that are not an exported session.
        """
        try:
            with self.transaction():
                return self._take(iter(lines))
        except OverflowError as error:
            # SQLite stores integers of 64 bits.
            raise UsageError("the file contains a number that is too large") from error

    def _take(self, lines: Iterator[bytes]) -> SessionRecord:
        head = _decoded(next(lines, b""), _Head, 1)
        if head.format != FORMAT:
            raise UsageError(
                f"the session was exported in format {head.format}, and this version reads format "
                f"{FORMAT}: import it with the version that exported it, or a newer one"
            )
        session = self._placed(head)
        self.create_session(session)
        seen = {"jobs": 0, "events": 0, "notes": 0}
        runs = LineRedactor(self.redact)
        held: list[bytes] = []
        stored = number = session.next_event
        for count, text in enumerate(lines, 2):
            line = _decoded(text, _Line, count)
            if line.job is not None:
                self._take_job(line.job, session.key)
                seen["jobs"] += 1
            elif line.event is not None:
                if line.event > number and (line.event - number) % EVENT_SPAN == 0:
                    # Another process resumed the session.
                    held += runs.flush()
                    self.append(session.key, stored, held)
                    held = []
                    self.go_on_at(session.key, line.event)
                    stored = number = line.event
                if line.event != number:
                    raise UsageError(f"line {count}: event {number} is missing before it")
                held += runs.feed(bytes(line.params))
                number += 1
                seen["events"] += 1
                if len(held) >= BATCH:
                    self.append(session.key, stored, held)
                    stored += len(held)
                    held = []
            elif line.gap is not None:
                # Text before the gap must not continue after it: half a secret does not look like
                # one.
                held += runs.flush()
                self.append(session.key, stored, held)
                held = []
                self.skip(session.key, line.gap.next, line.gap.why)
                stored = number = max(number, line.gap.next)
            elif line.note is not None:
                note = line.note
                if note.kind not in LOCAL_KINDS:
                    self.note(session.key, note.at_event, note.kind, note.data)
                seen["notes"] += 1
            elif line.end is not None:
                self.append(session.key, stored, held + runs.flush())
                if line.end != seen:
                    raise UsageError(
                        f"the file was changed or is incomplete: its last line counts "
                        f"{_counts(line.end)}, but it has {_counts(seen)}"
                    )
                # Closed now: retention counts its age from this moment.
                closed_at = None if session.closed_at is None else time.time()
                self.update_session(
                    session.key, updated_at=head.session.updated_at, closed_at=closed_at
                )
                return structs.replace(session, next_event=number, closed_at=closed_at)
        raise UsageError("the file is truncated: the last line is missing")

    def _placed(self, head: _Head) -> SessionRecord:
        """Return the imported session, with a new key if its own exists here, and without its name
        if another open session here has it."""
        session = structs.replace(head.session, next_event=head.first_event)
        if self.session(session.key) is not None:
            session = structs.replace(session, key=new_session_key())
        if session.name is not None and session.closed_at is None:
            if self.find_session(session.peer, session.root, session.name) is not None:
                session = structs.replace(session, name=None)
        return session

    def _take_job(self, job: JobRecord, key: str) -> None:
        job = structs.replace(job, session_key=key, endpoint=None, runner={})
        if self.job(job.id) is not None:
            job = structs.replace(job, id=new_job_id())
        if job.state != "ended":
            # Whatever its state was elsewhere, it does not run here.
            job = structs.replace(job, state="ended", outcome=job.outcome or "unknown")
        self.create_job(job)


def _decoded(text: bytes, kind: Any, number: int) -> Any:
    try:
        return decode_typed(text, kind)
    except UNDECODABLE as error:
        raise UsageError(
            f"line {number} is not a line of an exported session: {error}",
            remedy="import a file that `dragoman sessions export` wrote",
        ) from error


def _counts(numbers: Mapping[str, object]) -> str:
    return ", ".join(f"{numbers.get(name)} {name}" for name in ("jobs", "events", "notes"))
