"""Print tables: aligned columns for people, one row per line for programs.

On a terminal the widest columns are cut to fit; in a pipe nothing is cut or coloured, so `grep` and
`awk` see whole values. JSON rows are written by `jsonl.write_json`.

    write_table(["peer", "version"], [["codex", "0.166.0"], ["gemini", "unknown"]])
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Sequence
from typing import Final, TextIO

from dragoman.cli.output.escape import joined, one_line
from dragoman.cli.output.terminal import paint_for, put, width_of

GAP: Final = 2
"""Spaces between two columns."""

NARROWEST: Final = 12
"""A column is not cut below this: what is left would say nothing."""


def write_table(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, stream: TextIO | None = None
) -> None:
    """Write a table with a heading to `stream`, which is stdout unless told otherwise."""
    stream = stream or sys.stdout
    paint = paint_for(stream)
    cells = [[one_line(cell) or "-" for cell in row] for row in rows]
    widths = fit([list(head), *cells], width_of(stream))
    lines = [paint(_row(head, widths), "bold")] + [_row(row, widths) for row in cells]
    put(stream, joined("\n", lines), "\n")


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


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    shown = []
    for cell, width in zip(cells, widths, strict=True):
        cell = cut(cell, width)
        shown.append(cell + " " * (width - columns(cell)))
    return (" " * GAP).join(shown).rstrip()


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
