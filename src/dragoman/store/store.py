"""The session store: sessions, jobs and events in ``sessions.db``, in the state directory.

Combines the tables. All calls block on the disk, so an event loop writes through
`store.writer`. Raises `StoreError` if the file cannot be used.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from dragoman.store.events import EventTable
from dragoman.store.export import Portable
from dragoman.store.jobs import JobTable
from dragoman.store.retention import Retention
from dragoman.store.sessions import SessionTable

FILE_NAME: Final = "sessions.db"


def store_path(state: Path) -> Path:
    """Return the path of the store, below dragoman's state directory."""
    return state / FILE_NAME


class Store(Portable, Retention, SessionTable, JobTable, EventTable):
    """The session store: sessions, jobs and events, in one SQLite file."""
