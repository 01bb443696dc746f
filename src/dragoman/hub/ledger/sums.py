"""Sums over the ledger: what was spent, and how it went by role, peer, model or day.

Owns the two questions. Both are answered from one index that holds all they need, in the order of
time, so the work grows with the attempts of the time that is asked about and never touches the
table. What is shown of it is the business of `dragoman.cli`.
"""

from __future__ import annotations

import math
from typing import Any, Final

from dragoman.hub.ledger.belief_table import BeliefTable
from dragoman.hub.ledger.records import By, Spent, StatRow
from dragoman.hub.prices import DOLLARS

_KEYS: Final[dict[By, str]] = {
    "role": "role",
    "peer": "peer",
    "model": "model",
    # The user's own days: a day that ends in the afternoon helps nobody.
    "day": "strftime('%Y-%m-%d', started_at, 'unixepoch', 'localtime')",
}

# Every step counts two hundred thousand times: what is not there is counted by what is.
_STATS: Final = """
SELECT {key}, currency,
    count(*), count(outcome), sum(outcome = 'ok'), sum(number > 1),
    count(verdict), sum(verdict = 'good'),
    sum(ended_at - started_at), count(ended_at),
    sum(first_event_at - started_at), count(first_event_at),
    sum(input_tokens), sum(output_tokens),
    count(coalesce(total_tokens, input_tokens, output_tokens)),
    sum(cost), count(cost), sum(cost_provenance = 'estimated')
FROM attempts INDEXED BY attempts_summed
WHERE started_at >= ? AND started_at < ?
GROUP BY 1, 2
"""

_SPENT: Final = """
SELECT currency, count(*), sum(ended_at - started_at),
    sum(coalesce(total_tokens, coalesce(input_tokens, 0) + coalesce(output_tokens, 0))),
    sum(total_tokens IS NULL AND input_tokens IS NULL AND output_tokens IS NULL),
    sum(cost), sum(cost IS NULL)
FROM attempts INDEXED BY attempts_summed
WHERE started_at >= ?{peer}
GROUP BY 1
"""


class Sums(BeliefTable):
    """What the ledger adds up."""

    def spent(self, peer: str | None, since: float) -> Spent:
        """What one peer, or all of them, have used since then."""
        where, values = (" AND peer = ?", (peer,)) if peer is not None else ("", ())
        with self._reading() as connection:
            rows = connection.execute(_SPENT.format(peer=where), (since, *values)).fetchall()
        costs: dict[str, float] = {}
        turns = tokens = tokens_unknown = cost_unknown = 0
        seconds = 0.0
        for currency, count, took, used, untold, cost, unpriced in rows:
            turns += count
            seconds += took or 0.0
            tokens += used or 0
            tokens_unknown += untold or 0
            cost_unknown += unpriced or 0
            if cost is not None:
                costs[currency or ""] = costs.get(currency or "", 0.0) + cost
        return Spent(
            turns=turns,
            seconds=seconds,
            tokens=tokens,
            tokens_unknown=tokens_unknown,
            cost=costs.pop(DOLLARS, 0.0),
            other_costs=costs,
            cost_unknown=cost_unknown,
        )

    def stats(
        self, by: By = "role", *, since: float | None = None, until: float | None = None
    ) -> list[StatRow]:
        """Sums of the attempts that began in a time: the busiest first, days in their order."""
        bounds = (-math.inf if since is None else since, math.inf if until is None else until)
        with self._reading() as connection:
            rows = connection.execute(_STATS.format(key=_KEYS[by]), bounds).fetchall()
        grouped: dict[str | None, list[tuple[Any, ...]]] = {}
        for key, *values in rows:
            grouped.setdefault(key, []).append(tuple(values))
        found = [_stat(key, values) for key, values in grouped.items()]
        if by == "day":
            return sorted(found, key=lambda row: row.key or "")
        return sorted(found, key=lambda row: (-row.attempts, row.key or ""))


def _stat(key: str | None, rows: list[tuple[Any, ...]]) -> StatRow:
    """One row of what SQLite keeps apart by currency."""
    currencies, *columns = zip(*rows, strict=True)
    # A sum of nothing is NULL, and means that nobody has told anything.
    sums = [
        sum(told) if (told := [n for n in values if n is not None]) else None for values in columns
    ]
    (attempts, finished, ok, fallbacks, judged, good, took, ended, first, began, *rest) = sums
    input_tokens, output_tokens, counted, _, priced, estimated = rest
    costs: dict[str, float] = {}
    for currency, cost in zip(currencies, columns[_COST], strict=True):
        if cost is not None:
            costs[currency or ""] = costs.get(currency or "", 0.0) + cost
    return StatRow(
        key=key,
        attempts=attempts or 0,
        ok=ok or 0,
        unfinished=(attempts or 0) - (finished or 0),
        fallbacks=fallbacks or 0,
        good=good or 0,
        bad=(judged or 0) - (good or 0),
        seconds=took / ended if took is not None and ended else None,
        first_event_seconds=first / began if first is not None and began else None,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        tokens_unknown=(finished or 0) - (counted or 0),
        costs=costs,
        cost_unknown=(finished or 0) - (priced or 0),
        cost_estimated=estimated or 0,
    )


_COST: Final = 13
"""Which column of a sum is the cost, behind the currency."""
