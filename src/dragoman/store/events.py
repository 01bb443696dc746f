"""The table of session events, and of the notes between them.

Events of a session are numbered without duplicates, and a `GAP` note records those that could not
be stored. A process that resumes a session skips `EVENT_SPAN` numbers. An event is one line, the
`params` of a `session/update` of ACP v1, already redacted (`store.stream_redaction`).
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from dragoman.decoders import decode_typed
from dragoman.errors import UnknownSession
from dragoman.store.database import Database
from dragoman.store.records import GAP, Gap, Note
from dragoman.store.sessions import missing

ROW_SIZE: Final = 256 * 1024
"""Approximate number of bytes of lines per row: a reader loads one row at a time."""


class EventTable(Database):
    """The event methods of a store."""

    def append(self, key: str, first: int, lines: Sequence[bytes], job: str | None = None) -> None:
        """Append events to a session. `first` is the number of the first one.

        Raises `StoreConflict` if that is not the session's next number, and `UnknownSession`.
        """
        if not lines:
            return
        with self.transaction() as connection:
            next_event = _next_event(connection, key)
            if next_event != first:
                raise self._conflict(
                    f"event {first} of session {key} cannot be stored: the next is {next_event}"
                )
            number = first
            for part in _parts(lines):
                connection.execute(
                    "INSERT INTO events (session_key, first, count, job, data)"
                    " VALUES (?, ?, ?, ?, ?)",
                    (key, number, len(part), job, _joined(part)),
                )
                number += len(part)
            connection.execute(
                "UPDATE sessions SET next_event = ?, updated_at = ? WHERE key = ?",
                (number, time.time(), key),
            )

    def skip(self, key: str, next: int, why: str) -> None:
        """Record that events up to but excluding `next` could not be stored, and continue after
        them. No effect if those numbers are already used. Raises `UnknownSession`."""
        with self.transaction() as connection:
            next_event = _next_event(connection, key)
            if next_event >= next:
                return
            self.note(key, next_event, GAP, {"first": next_event, "next": next, "why": why})
            connection.execute("UPDATE sessions SET next_event = ? WHERE key = ?", (next, key))

    def go_on_at(self, key: str, next: int) -> None:
        """Make `next` the number of the next event, if it is higher than the current one. Raises
        `UnknownSession`."""
        with self.transaction() as connection:
            if _next_event(connection, key) < next:
                connection.execute("UPDATE sessions SET next_event = ? WHERE key = ?", (next, key))

    def gaps(self, key: str) -> list[Gap]:
        """Return the gaps in the stored events of a session, in order."""
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT data FROM notes WHERE session_key = ? AND kind = ?"
                " ORDER BY at_event, number",
                (key, GAP),
            ).fetchall()
        return [decode_typed(data, Gap) for (data,) in rows]

    def lines(
        self, key: str, start: int = 0, stop: int | None = None
    ) -> Iterator[tuple[int, bytes]]:
        """Yield the events from `start` up to but excluding `stop`, with their numbers. Events that
        were stored after the first one was requested, deleted by retention or lost in a gap are
        left out. Raises `UnknownSession`."""
        with self._reading() as connection:
            end = _next_event(connection, key)
        if stop is not None:
            end = min(stop, end)
        number = start
        # One row at a time, so that a reader that stops midway holds nothing open.
        while number < end and (row := self._row_with(key, number)) is not None:
            first, lines = row[0], row[1].split(b"\n")
            number = max(number, first)
            for line in lines[number - first : end - first]:
                yield number, line
                number += 1

    def first_event(self, key: str) -> int:
        """Return the number of the first event that is still stored, or of the next event if there
        is none. Raises `UnknownSession`."""
        with self._reading() as connection:
            found = connection.execute(
                "SELECT coalesce(min(first), (SELECT next_event FROM sessions WHERE key = ?))"
                " FROM events WHERE session_key = ?",
                (key, key),
            ).fetchone()
        if found[0] is None:
            raise UnknownSession(missing(key))
        return int(found[0])

    def note(self, key: str, at_event: int, kind: str, data: dict[str, Any]) -> None:
        """Store a note of a session. Raises `UnknownSession`."""
        self.add_notes(key, [Note(at_event=at_event, kind=kind, data=data, at=time.time())])

    def add_notes(self, key: str, notes: Sequence[Note]) -> None:
        """Store several notes of one session. Raises `UnknownSession`."""
        lines = [msgspec.json.encode(note.data) for note in notes]
        together = b"\n".join(lines)
        # Search all of them at once first: there is almost never a secret.
        if self.redact.line(together) is not together:
            lines = [self.redact.line(line) for line in lines]
        rows = [
            (key, note.at_event, note.kind, line.decode(), note.at)
            for note, line in zip(notes, lines, strict=True)
        ]
        with self.transaction() as connection:
            try:
                connection.executemany(
                    "INSERT INTO notes (session_key, at_event, kind, data, at)"
                    " VALUES (?, ?, ?, ?, ?)",
                    rows,
                )
            except sqlite3.IntegrityError as error:
                raise UnknownSession(missing(key)) from error

    def notes(self, key: str) -> list[Note]:
        """Return the notes of a session, in the order of its events."""
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT at_event, kind, data, at FROM notes WHERE session_key = ?"
                " ORDER BY at_event, number",
                (key,),
            ).fetchall()
        return [
            Note(at_event=at_event, kind=kind, data=msgspec.json.decode(data), at=at)
            for at_event, kind, data, at in rows
        ]

    def _row_with(self, key: str, number: int) -> tuple[int, bytes] | None:
        """Return the row that contains event `number`, or else the next row, as the number of its
        first event and its lines. Returns None if there is neither."""
        with self._reading() as connection:
            row = connection.execute(
                "SELECT first, data, count FROM events WHERE session_key = ? AND first <= ?"
                " ORDER BY first DESC LIMIT 1",
                (key, number),
            ).fetchone()
            if row is None or row[0] + row[2] <= number:
                row = connection.execute(
                    "SELECT first, data, count FROM events WHERE session_key = ? AND first > ?"
                    " ORDER BY first LIMIT 1",
                    (key, number),
                ).fetchone()
        return None if row is None else (row[0], row[1])


def _next_event(connection: sqlite3.Connection, key: str) -> int:
    found = connection.execute("SELECT next_event FROM sessions WHERE key = ?", (key,)).fetchone()
    if found is None:
        raise UnknownSession(missing(key))
    return int(found[0])


def _parts(lines: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """Group the lines into rows of about the same size."""
    begin = size = 0
    for index, line in enumerate(lines):
        size += len(line)
        if size >= ROW_SIZE:
            yield lines[begin : index + 1]
            begin, size = index + 1, 0
    if begin < len(lines):
        yield lines[begin:]


def _joined(lines: Sequence[bytes]) -> bytes:
    data = b"\n".join(lines)
    if data.count(b"\n") != len(lines) - 1:
        # Between JSON tokens a line break is equivalent to a space, and strings cannot contain one.
        data = b"\n".join(line.replace(b"\n", b" ") for line in lines)
    return data
