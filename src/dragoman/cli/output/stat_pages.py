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
"""For attempts that have no model."""

COLUMNS: Final = ("attempts", "ok", "fallbacks", "good/bad", "time", "tokens in", "out", "cost")
DROP: Final = ("out", "tokens in", "fallbacks", "time", "good/bad")
"""What a narrow terminal does without, the least important first."""

KEY_WIDTH: Final = 24
"""Columns of a name beside its bar."""

_BLOCKS: Final = ("█", "░")
_PLAIN_BLOCKS: Final = ("#", ".")

FIELDS: Final = (
    *("key", "attempts", "ok", "unfinished", "fallbacks", "good", "bad", "seconds"),
    *("first_event_seconds", "input_tokens", "output_tokens", "tokens_unknown", "costs"),
    *("cost_unknown", "cost_estimated"),
)
"""The fields of a line of JSON, and the columns of CSV, where `costs` is one column of text."""


def head(by: str) -> list[str]:
    return [by, *COLUMNS]


def as_cells(row: StatRow) -> list[str]:
    """A row of the table."""
    share = "" if row.success is None else f" ({row.success:.0%})"
    verdicts = f"{row.good}/{row.bad}" if row.good or row.bad else ""
    return [
        row.key or UNNAMED,
        f"{row.attempts:,}",
        f"{row.ok:,}{share}",
        f"{row.fallbacks:,}" if row.fallbacks else "",
        verdicts,
        "" if row.seconds is None else duration(row.seconds),
        "" if row.input_tokens is None else f"{row.input_tokens:,}",
        "" if row.output_tokens is None else f"{row.output_tokens:,}",
        cost_of(row),
    ]


def cost_of(row: StatRow) -> str:
    """What it has cost, with what is not known of it."""
    mark = "~" if row.cost_estimated else ""
    told = [f"{mark}{money(amount, unit)}" for unit, amount in sorted(row.costs.items())]
    if row.cost_unknown:
        told.append(f"{row.cost_unknown:,} unknown")
    return " + ".join(told)


def as_json(row: StatRow, by: str) -> dict[str, Any]:
    """A row for programs."""
    told: dict[str, Any] = msgspec.to_builtins(row)
    return {"type": "Stat", "by": by, **{name: told[name] for name in FIELDS}}


def write_csv(rows: Sequence[StatRow], by: str, stream: TextIO) -> None:
    """Rows for a spreadsheet. Unknown is an empty cell."""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([by, *FIELDS[1:]])
    for row in rows:
        values: dict[str, Any] = msgspec.to_builtins(row)
        values["costs"] = " + ".join(
            f"{amount:.6f} {one_line(unit)}".rstrip() for unit, amount in sorted(row.costs.items())
        )
        values["key"] = one_line(row.key or "")
        writer.writerow(["" if values[name] is None else values[name] for name in FIELDS])


def write_chart(rows: Sequence[StatRow], stream: TextIO) -> None:
    """A bar for every row: as long as its attempts are many, full as far as they were ok."""
    most = max((row.attempts for row in rows), default=0)
    if not most:
        return
    paint = paint_for(stream)
    unicode = (stream.encoding or "").lower().replace("-", "") == "utf8"
    full, rest = _BLOCKS if unicode else _PLAIN_BLOCKS
    names = [one_line(row.key or UNNAMED) for row in rows]
    name_width = min(KEY_WIDTH, max(map(columns, names)))
    number_width = len(f"{most:,}")
    room = max((width_of(stream) or DEFAULT_WIDTH) - name_width - number_width - 2, 10)
    for name, row in zip(names, rows, strict=True):
        shown = cut(name, name_width)
        size = max(round(room * row.attempts / most), 1)
        good = min(round(size * row.ok / row.attempts), size)
        if not unicode:
            shown = shown.encode("ascii", "replace").decode()
        put(
            stream,
            f"{shown}{' ' * (name_width - columns(shown))} {row.attempts:>{number_width},} ",
            paint(full * good, "green"),
            paint(rest * (size - good), "red"),
            "\n",
        )
