"""Render the ledger: its sums as a table, bar chart, JSON lines and CSV, and its attempts as rows.

Unknown values are shown as unknown, never as zero; estimated costs are marked. `store.ledger`
reads the attempts and computes the sums.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, TextIO

import msgspec

from dragoman.cli.output.escape import one_line
from dragoman.cli.output.renderer import duration, money
from dragoman.cli.output.tables import columns, cut
from dragoman.cli.output.terminal import DEFAULT_WIDTH, paint_for, put, width_of
from dragoman.cli.output.times import ago

if TYPE_CHECKING:
    from dragoman.store.ledger.records import AttemptRecord, StatRow

UNNAMED: Final = "(not reported)"
"""Label for a name that was not reported, such as that of the model."""

THIS_MACHINE: Final = "(this machine)"

COLUMNS: Final = (
    *("done", "cost", "unknown cost", "time each"),
    *("good/bad", "fallbacks", "tokens in", "out"),
)
DROP: Final = ("out", "tokens in", "fallbacks", "good/bad", "time each")
"""Columns that a narrow terminal drops, least important first."""

ATTEMPT_HEAD: Final = (
    *("job", "role", "peer", "outcome", "begun"),
    *("took", "cost", "verdict", "model"),
)
ATTEMPT_DROP: Final = ("model", "took", "begun", "verdict", "cost")

KEY_WIDTH: Final = 24
"""Width of the name beside a bar."""

_BLOCKS: Final = ("█", "░")
_PLAIN_BLOCKS: Final = ("#", ".")

FIELDS: Final = (
    *("key", "attempts", "ok", "unfinished", "fallbacks", "good", "bad", "seconds"),
    *("first_event_seconds", "input_tokens", "output_tokens", "tokens_unknown", "costs"),
    *("cost_unknown", "cost_estimated", "peer", "total_seconds", "rejected", "machine"),
)
"""The fields of a JSON line and the columns of CSV, where `costs` is one text column."""


def head(by: str, *, machines: bool = False) -> list[str]:
    """Return the column titles of a table grouped by `by`. `machines`: whether a table by work has
    a column for the machine."""
    if by != "work":
        return [by, *COLUMNS]
    return ["role", "peer", *(("machine",) if machines else ()), *COLUMNS]


def as_cells(row: StatRow, by: str, *, machines: bool = False) -> list[str]:
    """Return a row of the table under `head`. A table by work has a column of its own for the peer
    and, with `machines`, for the machine."""
    share = "" if row.success is None else f" ({row.success:.0%})"
    verdicts = f"{row.good}/{row.bad}" if row.good or row.bad else ""
    return [
        _name(row, by),
        *([row.peer or UNNAMED] if by == "work" else []),
        *([row.machine or THIS_MACHINE] if by == "work" and machines else []),
        f"{row.done:,} of {row.attempts:,}{share}",
        cost_of(row),
        f"{row.cost_unknown:,}" if row.cost_unknown else "",
        "" if row.seconds is None else duration(row.seconds),
        verdicts,
        f"{row.fallbacks:,}" if row.fallbacks else "",
        "" if row.input_tokens is None else f"{row.input_tokens:,}",
        "" if row.output_tokens is None else f"{row.output_tokens:,}",
    ]


def _name(row: StatRow, by: str) -> str:
    return row.key or (THIS_MACHINE if by == "machine" else UNNAMED)


def _names(row: StatRow, by: str) -> list[str]:
    """Return the values that identify a row. The machine is left out if the name of the peer
    already ends with it."""
    names = [_name(row, by), row.peer or ""]
    if by == "work" and row.machine and not (row.peer or "").endswith(f"@{row.machine}"):
        names.append(row.machine)
    return [name for name in names if name]


def cost_of(row: StatRow) -> str:
    """Return the known costs, marked with ~ if a part is estimated; empty if none is known."""
    mark = "~" if row.cost_estimated else ""
    return " + ".join(f"{mark}{money(amount, unit)}" for unit, amount in sorted(row.costs.items()))


def summary(rows: Sequence[StatRow]) -> list[str]:
    """Return the totals as lines: how many attempts are done, unfinished or rejected, and how many
    have an unknown cost."""
    attempts = sum(row.attempts for row in rows)
    told = [f"{sum(row.done for row in rows):,} of {attempts:,} attempts done"]
    if unfinished := sum(row.unfinished for row in rows):
        told.append(f"{unfinished:,} running or lost")
    if rejected := sum(row.rejected for row in rows):
        told.append(f"{rejected:,} rejected by a check or a verdict")
    if unknown := sum(row.cost_unknown for row in rows):
        told.append(f"the cost of {unknown:,} is unknown: the peer did not report it")
    return told


def as_json(row: StatRow, by: str) -> dict[str, Any]:
    """Return a row as a JSON object."""
    told: dict[str, Any] = msgspec.to_builtins(row)
    return {"type": "Stat", "by": by, **{name: told[name] for name in FIELDS}}


def write_csv(rows: Sequence[StatRow], by: str, stream: TextIO) -> None:
    """Write rows as CSV. Unknown values are empty cells."""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([by, *FIELDS[1:]])
    for row in rows:
        values: dict[str, Any] = msgspec.to_builtins(row)
        values["costs"] = " + ".join(
            f"{amount:.6f} {one_line(unit)}".rstrip() for unit, amount in sorted(row.costs.items())
        )
        values["key"] = one_line(row.key or "")
        values["peer"] = one_line(row.peer or "")
        values["machine"] = one_line(row.machine or "")
        writer.writerow(["" if values[name] is None else values[name] for name in FIELDS])


def write_chart(rows: Sequence[StatRow], stream: TextIO, by: str = "work") -> None:
    """Write a bar for every row: its length shows the attempts, its filled part those that were ok
    and not rejected."""
    most = max((row.attempts for row in rows), default=0)
    if not most:
        return
    paint = paint_for(stream)
    unicode = (stream.encoding or "").lower().replace("-", "") == "utf8"
    full, rest = _BLOCKS if unicode else _PLAIN_BLOCKS
    names = [one_line(" ".join(_names(row, by))) for row in rows]
    name_width = min(KEY_WIDTH, max(map(columns, names)))
    number_width = len(f"{most:,}")
    room = max((width_of(stream) or DEFAULT_WIDTH) - name_width - number_width - 2, 10)
    for name, row in zip(names, rows, strict=True):
        shown = cut(name, name_width)
        size = max(round(room * row.attempts / most), 1)
        good = min(round(size * row.done / row.attempts), size)
        if not unicode:
            shown = shown.encode("ascii", "replace").decode()
        put(
            stream,
            f"{shown}{' ' * (name_width - columns(shown))} {row.attempts:>{number_width},} ",
            paint(full * good, "green"),
            paint(rest * (size - good), "red"),
            "\n",
        )


# -- attempts


def attempt_cells(attempt: AttemptRecord, now: float) -> list[str]:
    """Return an attempt as a row under `ATTEMPT_HEAD`."""
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


def attempt_json(attempt: AttemptRecord) -> dict[str, Any]:
    """Return an attempt as a JSON object, as in `ledger export`."""
    return {"type": "Attempt", **msgspec.to_builtins(attempt)}
