"""Schema of ``sessions.db``: its tables and numbered migrations.

The number of applied migrations is the version in the file's header. A published migration never
changes; a new one is appended. `store.database` applies them.
"""

from __future__ import annotations

from typing import Final

APPLICATION_ID: Final = 0x64726167
"""Stored in the file header, so that another program's file is not mistaken for the store."""

MIGRATIONS: Final[tuple[tuple[str, ...], ...]] = (
    (
        """
        CREATE TABLE sessions (
            key TEXT PRIMARY KEY,
            peer TEXT NOT NULL,
            root TEXT NOT NULL,
            name TEXT,
            peer_session_id TEXT NOT NULL,
            cwd TEXT NOT NULL,
            created_at REAL NOT NULL,
            updated_at REAL NOT NULL,
            closed_at REAL,
            title TEXT,
            mode TEXT,
            model TEXT,
            next_event INTEGER NOT NULL
        )
        """,
        # A name is free again once its session is closed.
        """
        CREATE UNIQUE INDEX sessions_named ON sessions (peer, root, name)
        WHERE name IS NOT NULL AND closed_at IS NULL
        """,
        "CREATE INDEX sessions_updated ON sessions (updated_at)",
        "CREATE INDEX sessions_of_peer ON sessions (peer, peer_session_id)",
        """
        CREATE TABLE jobs (
            id TEXT PRIMARY KEY,
            session_key TEXT REFERENCES sessions (key) ON DELETE CASCADE,
            peer TEXT NOT NULL,
            root TEXT NOT NULL,
            prompt TEXT NOT NULL,
            state TEXT NOT NULL,
            outcome TEXT,
            stop TEXT,
            text TEXT NOT NULL,
            failure TEXT,
            usage TEXT,
            created_at REAL NOT NULL,
            started_at REAL,
            ended_at REAL,
            first_event INTEGER NOT NULL,
            next_event INTEGER NOT NULL,
            endpoint TEXT,
            runner TEXT NOT NULL
        )
        """,
        "CREATE INDEX jobs_created ON jobs (created_at)",
        "CREATE INDEX jobs_of_session ON jobs (session_key, first_event)",
        # A row has many events, one on each line of `data`: a row for each event would cost ten
        # times as much. `first` is the number of the first one.
        """
        CREATE TABLE events (
            session_key TEXT NOT NULL REFERENCES sessions (key) ON DELETE CASCADE,
            first INTEGER NOT NULL,
            count INTEGER NOT NULL,
            job TEXT,
            data BLOB NOT NULL,
            UNIQUE (session_key, first)
        )
        """,
        """
        CREATE TABLE notes (
            number INTEGER PRIMARY KEY,
            session_key TEXT NOT NULL REFERENCES sessions (key) ON DELETE CASCADE,
            at_event INTEGER NOT NULL,
            kind TEXT NOT NULL,
            data TEXT NOT NULL,
            at REAL NOT NULL
        )
        """,
        "CREATE INDEX notes_of_session ON notes (session_key, at_event)",
    ),
)

VERSION: Final = len(MIGRATIONS)
