"""Totals of the ledger: spending since a time, and statistics by role, peer, model, day, machine
or work (a role with a peer).

Both queries read only one covering index, ordered by day, so that their cost grows with the period
and not with the table. `delegation.spending_limits` compares with budgets; `cli.stats` renders.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any, Final

from dragoman.store.ledger.posterior_table import PosteriorTable
from dragoman.store.ledger.records import By, Spent, StatRow
from dragoman.store.values import DOLLARS

MARGIN: Final = 2 * 86_400.0
"""An upper bound, in seconds, for how far the dates of an instant in any two time zones differ."""

_FIRST_DAY: Final = ""
_LAST_DAY: Final = "~"
"""Texts that sort before and after every day."""

# Each is a sum that can be summed again. They are evaluated two hundred thousand times, so missing
# values are derived from the number of present ones.
_SUMS: Final = {
    "attempts": "count(*)",
    "finished": "count(outcome)",
    "ok": "sum(outcome = 'ok')",
    "fallbacks": "sum(number > 1)",
    "judged": "count(verdict)",
    "good": "sum(verdict = 'good')",
    "rejected": "sum(outcome = 'ok' AND verdict = 'bad')",
    "took": "sum(ended_at - started_at)",
    "ended": "count(ended_at)",
    "waited": "sum(first_event_at - started_at)",
    "began": "count(first_event_at)",
    "input_tokens": "sum(input_tokens)",
    "output_tokens": "sum(output_tokens)",
    "counted": "count(coalesce(total_tokens, input_tokens, output_tokens))",
    "costs": "sum(cost)",
    "priced": "count(cost)",
    "estimated": "sum(cost_provenance = 'estimated')",
}

# The inner query follows the order of the index, without sorting; only its few rows are sorted by
# the requested keys.
_STATS: Final = f"""
SELECT {{keys}}, currency, {", ".join(f"sum({name})" for name in _SUMS)}
FROM (
    SELECT day, role, peer, model, currency, machine,
        {", ".join(f"{sum} AS {name}" for name, sum in _SUMS.items())}
    FROM attempts INDEXED BY attempts_summed
    WHERE day >= ? AND day <= ? AND started_at >= ? AND started_at < ?{{role}}
    GROUP BY day, role, peer, model, currency, machine
)
GROUP BY 1, 2, 3, 4
"""

_KEYS: Final[dict[By, str]] = {
    "work": "role, peer, machine",
    "machine": "machine, NULL, machine",
}
"""SQL expressions for the key, peer and machine of a row. The rows of other groupings have only
their key."""

_SPENT: Final = """
SELECT currency, count(*), sum(ended_at - started_at),
    sum(coalesce(total_tokens, coalesce(input_tokens, 0) + coalesce(output_tokens, 0))),
    sum(total_tokens IS NULL AND input_tokens IS NULL AND output_tokens IS NULL),
    sum(cost), sum(cost IS NULL)
FROM attempts INDEXED BY attempts_summed
WHERE day >= ? AND started_at >= ?{peer}
GROUP BY 1
"""


class Totals(PosteriorTable):
    """The methods of the ledger that sum up attempts: spending and statistics."""

    def spent(self, peer: str | None, since: float) -> Spent:
        """Return the usage of the attempts that began at `since` or later: those of one peer, on
        this machine and on hosts, or of all peers if `peer` is None."""
        where: str = ""
        values: tuple[str, ...] = ()
        if peer is not None:
            where, values = " AND (peer = ? OR instr(peer, ?) = 1)", (peer, f"{peer}@")
        with self._reading() as connection:
            rows = connection.execute(
                _SPENT.format(peer=where), (_day(since - MARGIN, _FIRST_DAY), since, *values)
            ).fetchall()
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
        self,
        by: By = "role",
        *,
        role: str | None = None,
        since: float | None = None,
        until: float | None = None,
    ) -> list[StatRow]:
        """Return the totals of the attempts that began in a period, for one role or all.

        The row with the most attempts is first, except that days are in order. Grouped by work,
        roles are in order, each with its most successful peer first.
        """
        since = -math.inf if since is None else since
        until = math.inf if until is None else until
        days = (_day(since - MARGIN, _FIRST_DAY), _day(until + MARGIN, _LAST_DAY))
        keys = _KEYS.get(by, f"{by}, NULL, NULL")
        where, wanted = (" AND role = ?", (role,)) if role is not None else ("", ())
        query = _STATS.format(keys=keys, role=where)
        with self._reading() as connection:
            rows = connection.execute(query, (*days, since, until, *wanted)).fetchall()
        grouped: dict[tuple[str | None, str | None, str | None], list[tuple[Any, ...]]] = {}
        for key, peer, machine, *values in rows:
            grouped.setdefault((key, peer, machine), []).append(tuple(values))
        found = [_stat(*names, values) for names, values in grouped.items()]
        if by == "work":
            return sorted(found, key=_by_success)
        if by == "day":
            return sorted(found, key=lambda row: row.key or "")
        return sorted(found, key=lambda row: (-row.attempts, row.key or ""))


def _day(at: float, beyond: str) -> str:
    """Return the UTC date of an instant; `beyond` if it is outside the calendar."""
    try:
        return datetime.fromtimestamp(at, UTC).date().isoformat()
    except (ValueError, OverflowError, OSError):
        return beyond


def _by_success(row: StatRow) -> tuple[str, float, int, str, str]:
    share = -1.0 if row.success is None else row.success
    return row.key or "", -share, -row.attempts, row.peer or "", row.machine or ""


def _stat(
    key: str | None, peer: str | None, machine: str | None, rows: list[tuple[Any, ...]]
) -> StatRow:
    """Combine the rows that SQLite separates by currency into one."""
    currencies, *columns = zip(*rows, strict=True)
    told = dict(zip(_SUMS, columns, strict=True))
    # A sum over no rows is NULL, which means that nothing was reported.
    sums = {
        name: sum(known) if (known := [each for each in values if each is not None]) else None
        for name, values in told.items()
    }
    count = {name: value or 0 for name, value in sums.items()}
    costs: dict[str, float] = {}
    for currency, cost in zip(currencies, told["costs"], strict=True):
        if cost is not None:
            costs[currency or ""] = costs.get(currency or "", 0.0) + cost
    return StatRow(
        key=key,
        peer=peer,
        machine=machine,
        attempts=count["attempts"],
        ok=count["ok"],
        rejected=count["rejected"],
        unfinished=count["attempts"] - count["finished"],
        fallbacks=count["fallbacks"],
        good=count["good"],
        bad=count["judged"] - count["good"],
        seconds=count["took"] / count["ended"] if count["ended"] else None,
        first_event_seconds=count["waited"] / count["began"] if count["began"] else None,
        input_tokens=sums["input_tokens"],
        output_tokens=sums["output_tokens"],
        tokens_unknown=count["finished"] - count["counted"],
        costs=costs,
        cost_unknown=count["finished"] - count["priced"],
        cost_estimated=count["estimated"],
        total_seconds=count["took"],
    )
