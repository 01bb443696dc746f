"""Delete old sessions (`prune`), and limit the size of the store (`shrink`).

The caller sets the limits. A session with an unfinished job is never deleted.
"""

from __future__ import annotations

import time
from typing import Final

from msgspec import Struct

from dragoman.store.events import EventTable
from dragoman.store.jobs import JobTable
from dragoman.store.sessions import SessionTable

KEPT_AGE: Final = 90 * 24 * 3600.0
"""Default: delete sessions unused for this many seconds."""


LEFT_AT: Final = "max(updated_at, closed_at)"
"""When a closed session was last used. A session that was closed or imported today is kept for the
full time, however old its last message is."""

RECENT_AGE: Final = 24 * 3600.0
"""Seconds for which a session is kept despite the size limit: it may still be read."""


class Pruned(Struct, frozen=True, kw_only=True):
    """Counts of what was deleted."""

    sessions: int = 0
    jobs: int = 0
    events: int = 0
    keys: tuple[str, ...] = ()
    """Keys of the deleted sessions."""


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
        long ago are deleted. Jobs that failed before they had a session are deleted as well. With
        `dry_run`, nothing is deleted, only counted."""
        now = time.time() if now is None else now
        before = now if older_than is None else now - older_than
        with self.transaction() as connection:
            closed = f"closed_at IS NOT NULL AND {LEFT_AT} <= ?"
            rows = connection.execute(
                f"SELECT key FROM sessions WHERE {closed if closed_only else 'updated_at <= ?'}"
                " AND key NOT IN (SELECT key FROM sessions ORDER BY updated_at DESC LIMIT ?)"
                " AND NOT EXISTS (SELECT 1 FROM jobs"
                " WHERE jobs.session_key = sessions.key AND state != 'ended')",
                (before, keep),
            ).fetchall()
            keys = tuple(key for (key,) in rows)
            jobs = events = 0
            for key in keys:
                jobs += connection.execute(
                    "SELECT count(*) FROM jobs WHERE session_key = ?", (key,)
                ).fetchone()[0]
                events += connection.execute(
                    "SELECT coalesce(sum(count), 0) FROM events WHERE session_key = ?", (key,)
                ).fetchone()[0]
                if not dry_run:
                    connection.execute("DELETE FROM sessions WHERE key = ?", (key,))
            # Jobs that failed before they had a session.
            loose = "FROM jobs WHERE session_key IS NULL AND state = 'ended' AND created_at < ?"
            jobs += connection.execute(f"SELECT count(*) {loose}", (before,)).fetchone()[0]
            if not dry_run:
                connection.execute(f"DELETE {loose}", (before,))
        if keys and not dry_run:
            self._give_space_back()
        return Pruned(sessions=len(keys), jobs=jobs, events=events, keys=keys)

    def shrink(self, max_size: int, *, now: float | None = None) -> Pruned:
        """Delete closed sessions, the least recently used first, until the store takes at most
        about `max_size` bytes. A session that was used or closed in the last day, or
        has a job that has not ended, is kept, however large."""
        excess = self.used_size - max_size
        if excess <= 0:
            return Pruned()
        before = (time.time() if now is None else now) - RECENT_AGE
        keys: list[str] = []
        jobs = events = 0
        with self.transaction() as connection:
            rows = connection.execute(
                f"SELECT key FROM sessions WHERE closed_at IS NOT NULL AND {LEFT_AT} < ?"
                " AND NOT EXISTS (SELECT 1 FROM jobs"
                " WHERE jobs.session_key = sessions.key AND state != 'ended')"
                f" ORDER BY {LEFT_AT}",
                (before,),
            ).fetchall()
            for (key,) in rows:
                if excess <= 0:
                    break
                count, size = connection.execute(
                    "SELECT coalesce(sum(count), 0), coalesce(sum(length(data)), 0)"
                    " FROM events WHERE session_key = ?",
                    (key,),
                ).fetchone()
                made, said = connection.execute(
                    "SELECT count(*), coalesce(sum(length(prompt) + length(text)), 0)"
                    " FROM jobs WHERE session_key = ?",
                    (key,),
                ).fetchone()
                connection.execute("DELETE FROM sessions WHERE key = ?", (key,))
                excess -= size + said
                events, jobs = events + count, jobs + made
                keys.append(key)
        if keys:
            self._give_space_back()
        return Pruned(sessions=len(keys), jobs=jobs, events=events, keys=tuple(keys))
