"""Print lists and tables: aligned columns for people, JSON lines or names for programs.

A table fits the terminal: first the least important columns are left out, then the cells of the
widest ones are wrapped at words. In a pipe nothing is left out, wrapped or coloured, so `grep` and
`awk` see whole values.

    write_table(["peer", "version"], [["codex", "0.166.0"], ["gemini", "unknown"]])
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TextIO, TypeVar

from dragoman.cli.output.escape import Neutral, joined, one_line
from dragoman.cli.output.terminal import paint_for, put, put_data, put_err, width_of

GAP: Final = 2
"""Spaces between two columns."""

NARROWEST: Final = 12
"""Minimum width of a column: less would be unreadable."""

READABLE: Final = 24
"""A table drops columns before it wraps the text of one to less than this width."""

BREAK: Final = re.compile(r"(?<=[ ,])")
"""Matches the positions at which a cell may be wrapped: after a space or a comma."""

WORD: Final = re.compile(r"\S*`[^`]*`\S*\s*|\S+\s*")
"""What is not broken when a line is wrapped: a word, or a command in backticks."""

LABEL: Final = re.compile(r"\s*\S.*\s{2,}(?=\S)|\s*")
"""Matches the spaces and labels at the beginning of a line; its continuation rows are aligned with
the text after them."""

STYLE: Final = re.compile(r"\x1b\[[0-9;]*m")
"""Escape sequences that change the style of text."""


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
    drop: Sequence[str] = (),
) -> None:
    """Write at most `limit` items to stdout: as JSON lines, as names (quiet), or as a table.

    Instead of an empty table, people get `empty` on stderr. They also get a note if there are more
    items than `limit`. `drop` names columns as in `write_table`.
    """
    shown = items[:limit]
    if format == "json":
        # Imported here: tables of agents are shown without it.
        from dragoman.cli.output.jsonl import write_json

        for item in shown:
            write_json(as_json(item))
    elif format == "quiet" and name is not None:
        put_data(sys.stdout, *(f"{name(item)}\n" for item in shown))
    elif shown or not empty:
        write_table(head, [cells(item) for item in shown], drop=drop)
        if len(items) > len(shown):
            put_err(f"There are more than {limit}; use --limit to show more.\n")
    else:
        put_err(f"{empty}\n")


def write_table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    drop: Sequence[str] = (),
    stream: TextIO | None = None,
) -> None:
    """Write a table with a heading to `stream` (default: stdout), fitted to its width if it is a
    terminal.

    `drop` names the columns that a narrow terminal omits, least important first.
    """
    stream = stream or sys.stdout
    paint = paint_for(stream)
    table = [list(head), *([one_line(cell) or "-" for cell in row] for row in rows)]
    total = width_of(stream)
    for name in drop:
        if not total or _width(map(_least, zip(*table, strict=True))) <= total:
            break
        at = table[0].index(name)
        table = [[*row[:at], *row[at + 1 :]] for row in table]
    widths = fit(table, total)
    lines = [text for row in table[1:] for text in folded(row, widths)]
    put(stream, joined("\n", [paint(line(table[0], widths), "bold"), *lines]), "\n")


def facts(named: Iterable[tuple[str, str | None]], *, indent: str = "") -> Neutral:
    """Format named values, one per line, omitting those without a value."""
    rows = [(indent + name, one_line(value)) for name, value in named if value]
    return joined("", (f"{text}\n" for text in aligned(rows)))


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Format rows as lines with aligned columns. Nothing is cut."""
    widths = fit(rows, 0)
    return [line(row, widths) for row in rows]


def line(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Format one row.

    Cells that are wider than their column, or have no width, are written in full.
    """
    padded = [
        cell + " " * (width - columns(cell)) for cell, width in zip(cells, widths, strict=False)
    ]
    return (" " * GAP).join([*padded, *cells[len(widths) :]]).rstrip()


def fit(rows: Sequence[Sequence[str]], total: int, *, narrowest: int = NARROWEST) -> list[int]:
    """Return the column widths for rows of at most `total` columns; 0 is no limit.

    The widest columns shrink first, down to the width of their longest word and, if that is not
    enough, to `narrowest`.
    """
    cells = list(zip(*rows, strict=True))
    widths = [max(map(columns, column)) for column in cells]
    for floors in ([max(map(longest_word, column)) for column in cells], [narrowest] * len(cells)):
        while total and (over := _width(widths) - total) > 0:
            able = [at for at, width in enumerate(widths) if width > max(floors[at], narrowest)]
            if not able:
                break
            widest = max(able, key=widths.__getitem__)
            second = max((widths[at] for at in able if at != widest), default=0)
            lowest = max(floors[widest], narrowest, min(second, widths[widest] - 1))
            widths[widest] = max(lowest, widths[widest] - over)
    return widths


def folded(cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    """Format one row as lines: cells wider than their column continue below, wrapped at words."""
    parts = [_fold(cell, width) for cell, width in zip(cells, widths, strict=True)]
    height = max(map(len, parts))
    filled = [part + [""] * (height - len(part)) for part in parts]
    return [line(row, widths) for row in zip(*filled, strict=True)]


def _fold(text: str, width: int) -> list[str]:
    """Wrap a text to `width` columns. A longer word is cut."""
    pieces = [""]
    for word in BREAK.split(text):
        if pieces[-1] and columns((pieces[-1] + word).rstrip()) > width:
            pieces.append("")
        pieces[-1] += word
    return [cut(piece.rstrip(), width) for piece in pieces]


def fold_lines(text: str, width: int) -> str:
    """Wrap lines to `width` columns at words; continuation rows are indented. A word longer than a
    row is left to the terminal, so that it can be copied."""
    return "\n".join(row for line in text.split("\n") for row in _rows(line, width))


def _rows(line: str, width: int) -> list[str]:
    if _shown(line) <= width:
        return [line]
    label = LABEL.match(line)
    begin = label[0] if label else ""
    indent = _shown(begin) if begin.strip() else len(begin) + 2
    if indent > width // 2:
        indent = 4
    rows = [begin]
    for word in _fitting(line[len(begin) :], width - indent):
        own, used = _shown(word.rstrip()), _shown(rows[-1])
        if used > width or (used + own > width and own <= width - indent):
            rows.append(" " * indent)
        rows[-1] += word
    return [*(row.rstrip() for row in rows[:-1]), rows[-1]]


def _fitting(text: str, width: int) -> Iterable[str]:
    """Yield the words of a line. A command in backticks is one word, unless it is longer than a
    row."""
    for word in WORD.findall(text):
        yield from [word] if _shown(word.rstrip()) <= width else re.findall(r"\S+\s*", word)


def _shown(text: str) -> int:
    return columns(STYLE.sub("", text))


def _width(widths: Iterable[int]) -> int:
    """Return the width of a row with columns of these widths."""
    each = list(widths)
    return sum(each) + GAP * (len(each) - 1)


def _least(column: Iterable[str]) -> int:
    """Return the width below which a column is hard to read: that of its longest word or of its
    longest cell, the latter counted up to `READABLE`."""
    return max(max(longest_word(cell), min(columns(cell), READABLE)) for cell in column)


def longest_word(text: str) -> int:
    """Return the width of the longest part of a text that cannot be folded."""
    return max(columns(word.rstrip()) for word in BREAK.split(text))


def columns(text: str) -> int:
    """Return the number of terminal columns that a text takes."""
    if text.isascii():
        return len(text)
    total = 0
    for before, character in zip(" " + text, text, strict=False):
        # A variation selector requests the wide emoji form of the character before it.
        is_picture = character == "\ufe0f" and _columns(before) == 1
        total += 1 if is_picture else _columns(character)
    return total


def _columns(character: str) -> int:
    if character.isascii():
        return 1
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def cut(text: str, width: int) -> str:
    """Cut a text to `width` columns, with a mark if anything was cut."""
    if columns(text) <= width:
        return text
    kept, used = [], 1
    for character in text:
        used += _columns(character)
        if used > width:
            break
        kept.append(character)
    return "".join(kept) + "…"
