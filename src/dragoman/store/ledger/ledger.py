"""The ledger: decisions, attempts, what was learned and what it cost, in ``ledger.db``.

Owns where the file is, and nothing else but the sum of the tables. Everything here blocks while the
disk does, for a millisecond as a rule; a loop calls it from a thread. Raises `StoreError` where the
file cannot be used.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from dragoman.store.ledger.attempt_table import AttemptTable
from dragoman.store.ledger.totals import Totals

FILE_NAME: Final = "ledger.db"


def ledger_path(state: Path) -> Path:
    """Where the ledger is, below dragoman's state folder."""
    return state / FILE_NAME


class Ledger(AttemptTable, Totals):
    """Decisions, attempts, posteriors and health."""
