"""The store: sessions, jobs and events in one file, ``sessions.db`` of dragoman's state folder.

Owns nothing but the sum of the tables. Everything here blocks while the disk does: what runs in an
event loop writes through a `Writer`. Raises `StoreError` where the file cannot be used.
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
    """Where the store is, below dragoman's state folder."""
    return state / FILE_NAME


class Store(Portable, Retention, SessionTable, JobTable, EventTable):
    """Sessions, jobs and events."""
