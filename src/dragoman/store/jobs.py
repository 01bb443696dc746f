"""The table of jobs: create, update, list, and end the jobs whose process is gone.

The caller passes the liveness check to `end_orphans`. The notices of a job and the number of its
missing events are computed from the notes that `store.events` keeps.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec
from msgspec import structs

from dragoman.decoders import convert_typed, decode_typed
from dragoman.errors import UnknownJob
from dragoman.events.words import Outcome
from dragoman.store.database import Database
from dragoman.store.records import (
    GAP,
    JOB_NOTICE,
    Gap,
    JobNotice,
    JobRecord,
    JobState,
    delegated_job,
)
from dragoman.store.sessions import MANY, equal
from dragoman.transports.process.identity import ProcessIdentity, ProcessState, state_of
from dragoman.wire.messages import UNDECODABLE

PROMPT_SIZE: Final = 64 * 1024
"""Maximum number of characters of a prompt to keep. A longer one is usually a pasted file."""

TEXT_SIZE: Final = 1024 * 1024
"""Maximum number of characters of an answer to keep with its job. The events have all of it."""

_COMPUTED: Final = frozenset({"missing_events", "notices"})
"""The fields without a column: they are computed when a job is read."""

COLUMNS: Final = tuple(name for name in JobRecord.__struct_fields__ if name not in _COMPUTED)
_NAMES: Final = ", ".join(COLUMNS)
_TEXTLESS: Final = ", ".join("''" if name == "text" else name for name in COLUMNS)
_MARKS: Final = ", ".join("?" * len(COLUMNS))
_JSON: Final = frozenset({"failure", "usage", "runner"})
_TEXTS: Final = {"prompt": PROMPT_SIZE, "text": TEXT_SIZE}
_CHANGEABLE: Final = frozenset(COLUMNS) - {"id", "created_at"}


class JobTable(Database):
    """The job methods of a store."""

    def create_job(self, record: JobRecord) -> None:
        """Store a new job. Raises `StoreConflict` if its id is taken or its session does not
        exist."""
        row = self._row({name: getattr(record, name) for name in COLUMNS})
        with self.transaction() as connection:
            try:
                connection.execute(
                    f"INSERT INTO jobs ({_NAMES}) VALUES ({_MARKS})", tuple(row.values())
                )
            except sqlite3.IntegrityError as error:
                if self.job(record.id) is not None:
                    problem = f"job {record.id} already exists"
                else:
                    problem = f"there is no session {record.session_key} for the job {record.id}"
                raise self._conflict(problem) from error

    def update_job(self, id: str, **fields: Any) -> None:
        """Change fields of a job. Raises `UnknownJob` if it does not exist."""
        if not self._update("jobs", ("id", id), self._row(fields), _CHANGEABLE):
            raise UnknownJob(f"there is no job {id}; it may have been deleted")

    def job(self, id: str) -> JobRecord | None:
        """Return the job with this id, or None."""
        with self._reading() as connection:
            row = connection.execute(f"SELECT {_NAMES} FROM jobs WHERE id = ?", (id,)).fetchone()
            return None if row is None else self._computed([_record(row)])[0]

    def job_ids(self, prefix: str = "", *, limit: int = MANY) -> list[str]:
        """Return the job ids that start with this prefix, newest job first.

        Attempts are left out.
        """
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT id FROM jobs WHERE id >= ? AND id < ? AND id NOT LIKE 'j-%-%'"
                " ORDER BY created_at DESC, id DESC LIMIT ?",
                # No id contains a character above this one.
                (prefix, f"{prefix}\U0010ffff", limit),
            ).fetchall()
            return [id for (id,) in rows]

    def jobs(
        self,
        state: JobState | None = None,
        root: str | None = None,
        *,
        session_key: str | None = None,
        limit: int = MANY,
        texts: bool = True,
        attempts: bool = True,
    ) -> list[JobRecord]:
        """Return at most `limit` jobs, the newest first. `state`, `root` and `session_key` restrict
        the list unless they are None. Without `texts`, their answers are left out; without
        `attempts`, the attempts of delegated jobs are left out."""
        where, values = equal(state=state, root=root, session_key=session_key)
        if not attempts:
            where += " AND id NOT LIKE '%-%-%'"
        with self._reading() as connection:
            rows = connection.execute(
                f"SELECT {_NAMES if texts else _TEXTLESS} FROM jobs WHERE {where}"
                " ORDER BY created_at DESC, id DESC LIMIT ?",
                (*values, limit),
            ).fetchall()
            return self._computed([_record(row) for row in rows])

    def first_prompts(self, session_keys: Iterable[str]) -> dict[str, str]:
        """Return the first prompt of each of these sessions, by session key. Sessions without one
        are left out."""
        found: dict[str, str] = {}
        with self._reading() as connection:
            for key in session_keys:
                row = connection.execute(
                    "SELECT prompt FROM jobs WHERE session_key = ? ORDER BY created_at, id LIMIT 1",
                    (key,),
                ).fetchone()
                if row is not None and row[0]:
                    found[key] = row[0]
        return found

    def attempts(self, job: str) -> list[JobRecord]:
        """Return the attempts of a delegated job, in order. Their ids consist of the job's id and a
        number."""
        with self._reading() as connection:
            rows = connection.execute(
                f"SELECT {_NAMES} FROM jobs WHERE id > ? AND id < ? ORDER BY created_at, id",
                # The character after "-" is ".".
                (f"{job}-", f"{job}."),
            ).fetchall()
            return self._computed([_record(row) for row in rows])

    def _computed(self, jobs: list[JobRecord]) -> list[JobRecord]:
        """Return the jobs, each with its notices and the number of its missing events. This costs
        one lookup per session; there is almost never a note of these kinds."""
        gaps: dict[str, list[Gap]] = {}
        notices: dict[tuple[str, str], list[str]] = {}
        with self._reading() as connection:
            for key in {job.session_key for job in jobs if job.session_key}:
                rows = connection.execute(
                    "SELECT kind, data FROM notes WHERE session_key = ? AND kind IN (?, ?)"
                    " ORDER BY at_event, number",
                    (key, GAP, JOB_NOTICE),
                )
                for kind, data in rows:
                    if kind == GAP:
                        gaps.setdefault(key, []).append(decode_typed(data, Gap))
                        continue
                    # An imported session may have any data in a note.
                    with suppress(*UNDECODABLE):
                        notice = decode_typed(data, JobNotice)
                        # The notices of an attempt are also those of the whole delegation.
                        for id in (notice.job, delegated_job(notice.job)):
                            notices.setdefault((key, id), []).append(notice.text)
        if not gaps and not notices:
            return jobs
        return [
            structs.replace(
                job,
                missing_events=sum(_shared(job, gap) for gap in gaps.get(job.session_key, ())),
                notices=tuple(notices.get((job.session_key, job.id), ())),
            )
            for job in jobs
        ]

    def last_sign(self, id: str) -> float | None:
        """Return when a job ended; if it has not, when its last event was stored, or when it began
        if there is none. None if there is no such job."""
        job = self.job(id)
        if job is None:
            return None
        if job.ended_at is not None:
            return job.ended_at
        with self._reading() as connection:
            found = connection.execute(
                "SELECT 1 FROM events WHERE session_key = ? AND job = ? LIMIT 1",
                (job.session_key, id),
            ).fetchone()
            return _last_sign(connection, job, has_events=found is not None)

    def end_orphans(self, is_alive: Callable[[dict[str, Any]], bool]) -> list[str]:
        """Mark as crashed every job that has not ended and whose `runner` is not alive. Returns
        their ids. Their end is the time of their last event, or else their start: when their
        process was killed is unknown."""
        ended = []
        with self.transaction() as connection:
            rows = connection.execute(
                f"SELECT {_NAMES} FROM jobs WHERE state != 'ended'"
            ).fetchall()
            for job in map(_record, rows):
                if is_alive(job.runner):
                    continue
                crashed = self.as_crashed(job)
                self.update_job(
                    job.id,
                    state=crashed.state,
                    outcome=crashed.outcome,
                    ended_at=crashed.ended_at,
                    failure=crashed.failure,
                    next_event=crashed.next_event,
                )
                ended.append(job.id)
        return ended

    def as_crashed(self, job: JobRecord) -> JobRecord:
        """Return the record of a job that has not ended, changed to crashed. Stores nothing."""
        with self._reading() as connection:
            # Not up to the end of the session: another job may have run in it since.
            last = connection.execute(
                "SELECT max(first + count) FROM events WHERE session_key = ? AND job = ?",
                (job.session_key, job.id),
            ).fetchone()
            ended_at = _last_sign(connection, job, has_events=last[0] is not None)
        return structs.replace(
            job,
            state="ended",
            outcome=Outcome.CRASHED.value,
            ended_at=ended_at,
            failure={"message": "the process that ran it is gone"},
            next_event=max(last[0] or 0, job.next_event),
        )

    def _row(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return these fields as stored in the table: redacted, and long texts shortened."""
        row = dict(fields)
        for name, value in fields.items():
            if name in _JSON and value is not None:
                row[name] = self.redact.line(msgspec.json.encode(value)).decode()
            elif name in _TEXTS:
                # Truncated only after redaction: half a secret does not look like one.
                row[name] = shortened(self.redact.text(value), _TEXTS[name])
            elif name == "session_key":
                row[name] = value or None
            elif name in ("outcome", "stop") and value is not None:
                row[name] = self.redact.text(str(value))
        return row


def shortened(text: str, size: int) -> str:
    """Return a text; if it is longer than `size`, only its start and end, with the gap marked."""
    if len(text) <= size:
        return text
    half = size // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half} characters …]\n{text[-half:]}"


def _last_sign(connection: sqlite3.Connection, job: JobRecord, *, has_events: bool) -> float:
    """Return when the last event of a job was stored; without events, when the job began."""
    began_at = job.created_at if job.started_at is None else job.started_at
    if not has_events:
        return began_at
    stored_at, next_at = connection.execute(
        "SELECT updated_at, (SELECT min(started_at) FROM jobs WHERE session_key = key"
        " AND started_at > ?) FROM sessions WHERE key = ?",
        (began_at, job.session_key),
    ).fetchone()
    # A session has only the time of its last event, which may be that of a later job.
    last_at: float = min(stored_at, next_at or stored_at)
    return max(began_at, last_at)


def _shared(job: JobRecord, gap: Gap) -> int:
    """Return how many events of a gap belong to the job.

    All events since the start of a running job are its own.
    """
    if job.started_at is None:
        return 0
    stop = min(gap.next, job.next_event) if job.state == "ended" else gap.next
    return max(0, stop - max(gap.first, job.first_event))


def _record(row: tuple[Any, ...]) -> JobRecord:
    fields = dict(zip(COLUMNS, row, strict=True))
    for name in _JSON:
        if fields[name] is not None:
            fields[name] = msgspec.json.decode(fields[name])
    fields["session_key"] = fields["session_key"] or ""
    return JobRecord(**fields)


def is_alive(runner: dict[str, Any]) -> bool:
    """Return whether the process that runs a job may still be alive. If that is unknown, it counts
    as alive: a job is never ended on a guess."""
    try:
        identity = convert_typed(runner, ProcessIdentity)
    except msgspec.ValidationError:
        return True
    return state_of(identity) is not ProcessState.DEAD
