"""The table of sessions: create, update, find, list and delete.

A session name is unique among the open sessions of a peer and root directory. `store.events` has
the events.
"""

from __future__ import annotations

import sqlite3
from typing import Any, Final

from msgspec import structs

from dragoman.decoders import convert_typed
from dragoman.errors import UnknownSession
from dragoman.store.database import Database
from dragoman.store.records import SessionRecord

MANY: Final = 1000
"""Default maximum number of rows in a list."""

COLUMNS: Final = SessionRecord.__struct_fields__
_NAMES: Final = ", ".join(COLUMNS)
_MARKS: Final = ", ".join("?" * len(COLUMNS))
_CHANGEABLE: Final = frozenset(COLUMNS) - {"key", "peer", "created_at", "next_event"}
"""The columns that can be updated: not those that never change, nor the number that only events
change."""


class SessionTable(Database):
    """The session methods of a store."""

    def create_session(self, record: SessionRecord) -> None:
        """Store a new session. Raises `StoreConflict` if its key exists, or if another open session
        of the same peer and root has its name; `find_session` returns that one."""
        record = structs.replace(record, title=self._clean(record.title))
        with self.transaction() as connection:
            try:
                connection.execute(
                    f"INSERT INTO sessions ({_NAMES}) VALUES ({_MARKS})", structs.astuple(record)
                )
            except sqlite3.IntegrityError as error:
                if self.session(record.key) is not None:
                    problem = f"session {record.key} already exists"
                else:
                    problem = (
                        f"an open session of {record.peer} in {record.root} already "
                        f"has the name {record.name!r}"
                    )
                raise self._conflict(problem) from error

    def update_session(self, key: str, **fields: Any) -> None:
        """Change fields of a session. Raises `UnknownSession` if it does not exist."""
        if "title" in fields:
            fields["title"] = self._clean(fields["title"])
        if not self._update("sessions", ("key", key), fields, _CHANGEABLE):
            raise UnknownSession(missing(key))

    def session(self, key: str) -> SessionRecord | None:
        """Return the session with this key, or None."""
        return self._first_session("key = ?", key)

    def find_session(self, peer: str, root: str, name: str) -> SessionRecord | None:
        """Return the open session of a peer in a root directory that has this name, or None."""
        return self._first_session(
            "peer = ? AND root = ? AND name = ? AND closed_at IS NULL", peer, root, name
        )

    def find_by_peer_id(self, peer: str, peer_session_id: str) -> SessionRecord | None:
        """Return the session with this peer-side id, preferably an open one, or None."""
        return self._first_session(
            "peer = ? AND peer_session_id = ? ORDER BY closed_at IS NOT NULL, updated_at DESC",
            peer,
            peer_session_id,
        )

    def sessions(
        self,
        peer: str | None = None,
        root: str | None = None,
        *,
        include_closed: bool = True,
        limit: int = MANY,
    ) -> list[SessionRecord]:
        """Return at most `limit` sessions, the most recently used first. `peer` and `root` restrict
        the list unless they are None; `include_closed` says whether it has closed sessions."""
        where, values = equal(peer=peer, root=root)
        if not include_closed:
            where += " AND closed_at IS NULL"
        with self._reading() as connection:
            rows = connection.execute(
                f"SELECT {_NAMES} FROM sessions WHERE {where}"
                " ORDER BY updated_at DESC, key DESC LIMIT ?",
                (*values, limit),
            ).fetchall()
            return [_record(row) for row in rows]

    def delete_session(self, key: str) -> None:
        """Delete a session with its events, notes and jobs. Raises `UnknownSession`."""
        with self.transaction() as connection:
            if not connection.execute("DELETE FROM sessions WHERE key = ?", (key,)).rowcount:
                raise UnknownSession(missing(key))
        self._give_space_back()

    def _first_session(self, where: str, *values: str) -> SessionRecord | None:
        with self._reading() as connection:
            row = connection.execute(
                f"SELECT {_NAMES} FROM sessions WHERE {where} LIMIT 1", values
            ).fetchone()
            return None if row is None else _record(row)

    def _clean(self, text: str | None) -> str | None:
        return None if text is None else self.redact.text(text)


def _record(row: tuple[Any, ...]) -> SessionRecord:
    return convert_typed(dict(zip(_ENCODED, row, strict=True)), SessionRecord)


_ENCODED: Final = SessionRecord.__struct_encode_fields__


def missing(key: str) -> str:
    """Return the error message for a session that does not exist."""
    return f"there is no stored session {key}; it may have been deleted"


def equal(**values: str | None) -> tuple[str, list[str]]:
    """Return an SQL condition that compares each of these columns with its value, and its
    parameters.

    A column whose value is None is not compared.
    """
    wanted = {column: value for column, value in values.items() if value is not None}
    return " AND ".join(("TRUE", *(f"{column} = ?" for column in wanted))), list(wanted.values())
