"""Delete old sessions (`prune`), and limit the size of the store (`shrink`).

The caller sets the limits. A session with an unfinished job is never deleted.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from dragoman.store.events import EventTable
from dragoman.store.jobs import JobTable
from dragoman.store.sessions import SessionTable

KEPT_AGE: Final = 90 * 24 * 3600.0
"""Default number of seconds for which an unused session is kept."""


LEFT_AT: Final = "max(updated_at, closed_at)"
"""SQL expression for when a closed session was last used. A session that was closed or imported
today is kept for the full time, however old its last message is."""

RECENT_AGE: Final = 24 * 3600.0
"""Seconds for which a session is kept despite the size limit: it may still be read."""


class Pruned(Struct, frozen=True, kw_only=True):
    """Counts of what was deleted, or with `dry_run` would be."""

    sessions: int = 0
    jobs: int = 0
    events: int = 0
    keys: tuple[str, ...] = ()
    """Keys of the deleted sessions."""


_NO_JOBS: Final = (
    "NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.session_key = sessions.key AND state != 'ended')"
)
"""SQL condition for a session without an unfinished job."""


class _Deleted(NamedTuple):
    """A deleted session, and what was deleted with it."""

    key: str
    jobs: int
    events: int
    size: int
    """Approximate number of bytes."""


class Retention(SessionTable, JobTable, EventTable):
    """The methods that limit the size of a store."""

    def prune(
        self,
        older_than: float | None = None,
        keep: int = 0,
        *,
        closed_only: bool = False,
        dry_run: bool = False,
        now: float | None = None,
    ) -> Pruned:
        """Delete sessions last used at least `older_than` seconds ago (None: of any age), but never
        the `keep` most recent ones. With `closed_only`, only sessions that were also closed that
        long ago are deleted. Jobs that failed before they had a session are deleted as well.
        Returns counts of what was deleted; with `dry_run`, nothing is deleted, only counted."""
        now = time.time() if now is None else now
        before = now if older_than is None else now - older_than
        age = f"closed_at IS NOT NULL AND {LEFT_AT} <= ?" if closed_only else "updated_at <= ?"
        with self._reading() as connection:
            rows = connection.execute(
                f"SELECT key FROM sessions WHERE {age} AND {_NO_JOBS}"
                " AND key NOT IN (SELECT key FROM sessions ORDER BY updated_at DESC LIMIT ?)",
                (before, keep),
            ).fetchall()
        found = (self._delete(key, age, before, dry_run=dry_run) for (key,) in rows)
        gone = [each for each in found if each is not None]
        # Jobs that failed before they had a session.
        loose = "FROM jobs WHERE session_key IS NULL AND state = 'ended' AND created_at < ?"
        with self._reading() if dry_run else self.transaction() as connection:
            jobs = connection.execute(f"SELECT count(*) {loose}", (before,)).fetchone()[0]
            if not dry_run:
                connection.execute(f"DELETE {loose}", (before,))
        if gone and not dry_run:
            self._give_space_back()
        return _pruned(gone, jobs)

    def shrink(self, max_size: int, *, now: float | None = None) -> Pruned:
        """Delete closed sessions, the least recently used first, until the store takes at most
        about `max_size` bytes, and return counts of what was deleted. A session that was used or
        closed in the last day, or has a job that has not ended, is kept, however large."""
        excess = self.used_size - max_size
        if excess <= 0:
            return Pruned()
        before = (time.time() if now is None else now) - RECENT_AGE
        age = f"closed_at IS NOT NULL AND {LEFT_AT} < ?"
        with self._reading() as connection:
            rows = connection.execute(
                f"SELECT key FROM sessions WHERE {age} AND {_NO_JOBS} ORDER BY {LEFT_AT}",
                (before,),
            ).fetchall()
        gone: list[_Deleted] = []
        for (key,) in rows:
            if excess <= 0:
                break
            deleted = self._delete(key, age, before)
            if deleted is not None:
                excess -= deleted.size
                gone.append(deleted)
        if gone:
            self._give_space_back()
        return _pruned(gone)

    def _delete(
        self, key: str, age: str, before: float, *, dry_run: bool = False
    ) -> _Deleted | None:
        """Delete a session if `age`, an SQL condition with the parameter `before`, still applies to
        it and it has no unfinished job. Returns None otherwise.

        One session per transaction: overwriting gigabytes takes minutes, and another process waits
        for a transaction only for seconds.
        """
        with self._reading() if dry_run else self.transaction() as connection:
            events, data = connection.execute(
                "SELECT coalesce(sum(count), 0), coalesce(sum(length(data)), 0)"
                " FROM events WHERE session_key = ?",
                (key,),
            ).fetchone()
            jobs, texts = connection.execute(
                "SELECT count(*), coalesce(sum(length(prompt) + length(text)), 0)"
                " FROM jobs WHERE session_key = ?",
                (key,),
            ).fetchone()
            if not dry_run:
                where = f"key = ? AND {age} AND {_NO_JOBS}"
                deleted = connection.execute(f"DELETE FROM sessions WHERE {where}", (key, before))
                if not deleted.rowcount:
                    return None
        return _Deleted(key, jobs, events, data + texts)


def _pruned(gone: Sequence[_Deleted], jobs: int = 0) -> Pruned:
    return Pruned(
        sessions=len(gone),
        jobs=jobs + sum(each.jobs for each in gone),
        events=sum(each.events for each in gone),
        keys=tuple(each.key for each in gone),
    )
