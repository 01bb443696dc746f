"""Schema of ``ledger.db``: its tables and numbered migrations.

A published migration never changes; a new one is appended. `store.database` applies them.
"""

from __future__ import annotations

from typing import Final

from dragoman.store.database import Form

APPLICATION_ID: Final = 0x6472616C
"""Stored in the file header, so that the ledger and the session store are not mistaken for each
other."""

MIGRATIONS: Final[tuple[tuple[str, ...], ...]] = (
    (
        """
        CREATE TABLE decisions (
            id TEXT PRIMARY KEY,
            at REAL NOT NULL,
            data TEXT NOT NULL
        ) WITHOUT ROWID
        """,
        """
        CREATE TABLE attempts (
            id INTEGER PRIMARY KEY,
            job TEXT NOT NULL,
            decision_id TEXT NOT NULL REFERENCES decisions (id),
            number INTEGER NOT NULL,
            peer TEXT NOT NULL,
            role TEXT NOT NULL,
            tier TEXT,
            size TEXT,
            model TEXT,
            runtime_role TEXT NOT NULL,
            reason TEXT NOT NULL,
            started_at REAL NOT NULL,
            ended_at REAL,
            outcome TEXT,
            error_class TEXT,
            input_tokens INTEGER,
            output_tokens INTEGER,
            total_tokens INTEGER,
            tokens_provenance TEXT NOT NULL,
            cost REAL,
            currency TEXT,
            cost_provenance TEXT NOT NULL,
            first_event_at REAL,
            files_changed INTEGER,
            verdict TEXT,
            verdict_source TEXT,
            runner TEXT NOT NULL,
            -- Of this machine's clock when it began: SQLite can group by an index, not by a sum.
            day TEXT NOT NULL,
            UNIQUE (job, number)
        )
        """,
        "CREATE INDEX attempts_of_decision ON attempts (decision_id)",
        # All columns that totals use, in their grouping order: totals never read the table, sort
        # almost nothing, and read little more than the requested period.
        """
        CREATE INDEX attempts_summed ON attempts (
            day, role, peer, model, currency, started_at, outcome, verdict, number, ended_at,
            first_event_at, input_tokens, output_tokens, total_tokens, cost, cost_provenance
        )
        """,
        "CREATE INDEX attempts_unfinished ON attempts (id) WHERE outcome IS NULL",
        """
        CREATE TABLE posteriors (
            role TEXT NOT NULL,
            size TEXT NOT NULL,
            peer TEXT NOT NULL,
            tier TEXT NOT NULL,
            alpha REAL NOT NULL,
            beta REAL NOT NULL,
            cost REAL,
            seconds REAL,
            pulls INTEGER NOT NULL,
            updated_at REAL NOT NULL,
            PRIMARY KEY (role, size, peer, tier)
        ) WITHOUT ROWID
        """,
        "CREATE TABLE health (peer TEXT PRIMARY KEY, data TEXT NOT NULL) WITHOUT ROWID",
    ),
    (
        "ALTER TABLE attempts ADD COLUMN unenforced TEXT",
        "ALTER TABLE attempts ADD COLUMN violations INTEGER",
    ),
    (
        # NULL is this machine.
        "ALTER TABLE attempts ADD COLUMN machine TEXT",
        "DROP INDEX attempts_summed",
        """
        CREATE INDEX attempts_summed ON attempts (
            day, role, peer, model, currency, machine, started_at, outcome, verdict, number,
            ended_at, first_event_at, input_tokens, output_tokens, total_tokens, cost,
            cost_provenance
        )
        """,
    ),
)

FORM: Final = Form(
    application_id=APPLICATION_ID,
    migrations=MIGRATIONS,
    make_room="free some disk space; `dragoman ledger prune` deletes old attempts",
    upgraded_by="the next delegation migrates it",
)
