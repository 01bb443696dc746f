"""Render attempts of delegations as table rows and JSON lines.

The records come from `store.ledger`; sums of them are in `stat_pages`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from dragoman.cli.output.times import ago
from dragoman.cli.output.turn_text import duration, money

if TYPE_CHECKING:
    from dragoman.store.ledger.records import AttemptRecord

HEAD: Final = ("job", "role", "peer", "outcome", "begun", "took", "cost", "verdict", "model")
DROP: Final = ("model", "took", "begun", "verdict", "cost")
"""Columns that a narrow terminal drops, least important first."""


def as_cells(attempt: AttemptRecord, now: float) -> list[str]:
    """An attempt as a row under `HEAD`."""
    cost = attempt.cost
    return [
        attempt.job,
        attempt.role,
        attempt.peer,
        attempt.outcome or "running",
        ago(attempt.started_at, now),
        "" if attempt.seconds is None else duration(attempt.seconds),
        "unknown" if cost.amount is None else money(cost.amount, cost.currency),
        attempt.verdict or "",
        attempt.model or "",
    ]


def as_json(attempt: AttemptRecord) -> dict[str, Any]:
    """An attempt as a JSON line, as in `ledger export`."""
    return {"type": "Attempt", **msgspec.to_builtins(attempt)}
