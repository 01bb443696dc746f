"""The ledger: decisions, attempts, posteriors, health and totals in ``ledger.db``.

Combines the tables. All calls block on the disk, usually for a millisecond, so an event loop calls
them from a thread. Raises `StoreError` if the file cannot be used.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from dragoman.store.ledger.attempt_table import AttemptTable
from dragoman.store.ledger.totals import Totals

FILE_NAME: Final = "ledger.db"


def ledger_path(state: Path) -> Path:
    """Return the path of the ledger, below dragoman's state directory."""
    return state / FILE_NAME


class Ledger(AttemptTable, Totals):
    """The ledger: decisions, attempts, posteriors, health and totals, in one SQLite file."""
