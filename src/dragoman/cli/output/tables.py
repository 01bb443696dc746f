"""Print lists and tables: aligned columns for people, JSON lines or names for programs.

On a terminal the widest columns of a table are cut to fit; in a pipe nothing is cut or coloured, so
`grep` and `awk` see whole values.

    write_table(["peer", "version"], [["codex", "0.166.0"], ["gemini", "unknown"]])
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TextIO, TypeVar

from dragoman.cli.output.escape import Neutral, joined, one_line
from dragoman.cli.output.jsonl import write_json
from dragoman.cli.output.terminal import paint_for, put, put_data, put_err, width_of

GAP: Final = 2
"""Spaces between two columns."""

NARROWEST: Final = 12
"""A column is not cut below this: what is left would say nothing."""


T = TypeVar("T")


def write_list(
    items: Sequence[T],
    format: str,
    *,
    head: Sequence[str],
    cells: Callable[[T], Sequence[str]],
    as_json: Callable[[T], Mapping[str, Any]],
    name: Callable[[T], str] | None = None,
    empty: str = "",
    limit: int | None = None,
) -> None:
    """Write items to stdout, at most `limit`: a JSON line each, a `name` each (quiet), or a table.

    People get `empty` on stderr instead of a table without rows, and a note if there are more.
    """
    shown = items[:limit]
    if format == "json":
        for item in shown:
            write_json(as_json(item))
    elif format == "quiet" and name is not None:
        put_data(sys.stdout, *(f"{name(item)}\n" for item in shown))
    elif shown or not empty:
        write_table(head, [cells(item) for item in shown])
        if len(items) > len(shown):
            put_err(f"There are more than {limit}; --limit shows more of them.\n")
    else:
        put_err(f"{empty}\n")


def write_table(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, stream: TextIO | None = None
) -> None:
    """Write a table with a heading to `stream`, which is stdout unless told otherwise."""
    stream = stream or sys.stdout
    paint = paint_for(stream)
    cells = [[one_line(cell) or "-" for cell in row] for row in rows]
    widths = fit([list(head), *cells], width_of(stream))
    lines = [line([*map(cut, row, widths)], widths) for row in ([*head], *cells)]
    put(stream, joined("\n", [paint(lines[0], "bold"), *lines[1:]]), "\n")


def facts(named: Iterable[tuple[str, str | None]], *, indent: str = "") -> Neutral:
    """Named values, a line each. Those without a value are left out."""
    rows = [(indent + name, one_line(value)) for name, value in named if value]
    return joined("", (f"{text}\n" for text in aligned(rows)))


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as lines with their columns one below the other; nothing is cut."""
    widths = fit(rows, 0)
    return [line(row, widths) for row in rows]


def line(cells: Sequence[str], widths: Sequence[int]) -> str:
    """One row. Cells that are wider than their column, or have no width, are written whole."""
    padded = [
        cell + " " * (width - columns(cell)) for cell, width in zip(cells, widths, strict=False)
    ]
    return (" " * GAP).join([*padded, *cells[len(widths) :]]).rstrip()


def fit(rows: Sequence[Sequence[str]], total: int) -> list[int]:
    """The width of each column, so that a row has at most `total` columns; 0 is no limit."""
    widths = [max(columns(cell) for cell in column) for column in zip(*rows, strict=True)]
    while total and sum(widths) + GAP * (len(widths) - 1) > total:
        widest = max(range(len(widths)), key=widths.__getitem__)
        if widths[widest] <= NARROWEST:
            break
        over = sum(widths) + GAP * (len(widths) - 1) - total
        second = max((w for at, w in enumerate(widths) if at != widest), default=NARROWEST)
        lowest = max(NARROWEST, min(second, widths[widest] - 1))
        widths[widest] = max(lowest, widths[widest] - over)
    return widths


def columns(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    return sum(_columns(character) for character in text)


def _columns(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def cut(text: str, width: int) -> str:
    """The beginning of a text that fits into so many columns, with a mark if something is gone."""
    if columns(text) <= width:
        return text
    kept, used = [], 1
    for character in text:
        used += _columns(character)
        if used > width:
            break
        kept.append(character)
    return "".join(kept) + "…"
