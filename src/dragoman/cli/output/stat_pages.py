"""Render ledger sums as a table, bar chart, JSON lines and CSV.

Unknown values are shown as unknown, never as zero; estimated costs are marked. `store.ledger`
computes the sums.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, TextIO

import msgspec

from dragoman.cli.output.escape import one_line
from dragoman.cli.output.tables import columns, cut
from dragoman.cli.output.terminal import DEFAULT_WIDTH, paint_for, put, width_of
from dragoman.cli.output.turn_text import duration, money

if TYPE_CHECKING:
    from dragoman.store.ledger.records import StatRow

UNNAMED: Final = "(not told)"
"""Label for attempts without a model."""

COLUMNS: Final = (
    *("done", "cost", "unknown cost", "time each"),
    *("good/bad", "fallbacks", "tokens in", "out"),
)
DROP: Final = ("out", "tokens in", "fallbacks", "good/bad", "time each")
"""Columns that a narrow terminal drops, least important first."""

KEY_WIDTH: Final = 24
"""Width of the name beside a bar."""

_BLOCKS: Final = ("█", "░")
_PLAIN_BLOCKS: Final = ("#", ".")

FIELDS: Final = (
    *("key", "attempts", "ok", "unfinished", "fallbacks", "good", "bad", "seconds"),
    *("first_event_seconds", "input_tokens", "output_tokens", "tokens_unknown", "costs"),
    *("cost_unknown", "cost_estimated", "peer", "rejected"),
)
"""The fields of a JSON line and the columns of CSV, where `costs` is one text column."""


def head(by: str) -> list[str]:
    return [*(("role", "peer") if by == "work" else (by,)), *COLUMNS]


def as_cells(row: StatRow, *, work: bool = False) -> list[str]:
    """A row of the table; grouped by work, the peer has its own column."""
    share = "" if row.success is None else f" ({row.success:.0%})"
    verdicts = f"{row.good}/{row.bad}" if row.good or row.bad else ""
    return [
        row.key or UNNAMED,
        *([row.peer or UNNAMED] if work else []),
        f"{row.done:,} of {row.attempts:,}{share}",
        cost_of(row),
        f"{row.cost_unknown:,}" if row.cost_unknown else "",
        "" if row.seconds is None else duration(row.seconds),
        verdicts,
        f"{row.fallbacks:,}" if row.fallbacks else "",
        "" if row.input_tokens is None else f"{row.input_tokens:,}",
        "" if row.output_tokens is None else f"{row.output_tokens:,}",
    ]


def cost_of(row: StatRow) -> str:
    """The known cost."""
    mark = "~" if row.cost_estimated else ""
    return " + ".join(f"{mark}{money(amount, unit)}" for unit, amount in sorted(row.costs.items()))


def summary(rows: Sequence[StatRow]) -> list[str]:
    """Totals as lines: how many attempts were done, and how many are unknown."""
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
    """A row as JSON data."""
    told: dict[str, Any] = msgspec.to_builtins(row)
    return {"type": "Stat", "by": by, **{name: told[name] for name in FIELDS}}


def write_csv(rows: Sequence[StatRow], by: str, stream: TextIO) -> None:
    """Rows as CSV. Unknown is an empty cell."""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([by, *FIELDS[1:]])
    for row in rows:
        values: dict[str, Any] = msgspec.to_builtins(row)
        values["costs"] = " + ".join(
            f"{amount:.6f} {one_line(unit)}".rstrip() for unit, amount in sorted(row.costs.items())
        )
        values["key"] = one_line(row.key or "")
        values["peer"] = one_line(row.peer or "")
        writer.writerow(["" if values[name] is None else values[name] for name in FIELDS])


def write_chart(rows: Sequence[StatRow], stream: TextIO) -> None:
    """A bar for every row: its length shows the attempts, its filled part those that were done."""
    most = max((row.attempts for row in rows), default=0)
    if not most:
        return
    paint = paint_for(stream)
    unicode = (stream.encoding or "").lower().replace("-", "") == "utf8"
    full, rest = _BLOCKS if unicode else _PLAIN_BLOCKS
    names = [one_line(" ".join(filter(None, (row.key or UNNAMED, row.peer)))) for row in rows]
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
