"""Render Markdown as terminal rows while it streams.

Line breaks of the source are kept, because agents also write text that is not Markdown. So every
line is a block of its own, except in a table and in fenced code. Finished rows are returned once;
the rows of the open line or table can be requested at any time. Inline markup is parsed by
`output.styled_rows`.
"""

from __future__ import annotations

import re
from typing import Final

from dragoman.cli.output.escape import Neutral, neutral
from dragoman.cli.output.styled_rows import Inline, Piece, Row, inline, plain, rows_of
from dragoman.cli.output.tables import GAP, fit, folded, line, longest_word
from dragoman.cli.output.terminal import Paint

MAX_PARSED: Final = 4000
"""Number of characters of a line whose markup is parsed; the rest of the line is plain text,
because parsing takes quadratic time."""

MAX_TABLE_ROWS: Final = 200
"""Maximum buffered rows of a table: its column widths depend on all of them."""

RULE_WIDTH: Final = 20

TAB_SIZE: Final = 4

_FENCE: Final = re.compile(r" *(`{3,}|~{3,})\s*([^`]*)$")
_HEADING: Final = re.compile(r" {0,3}(#{1,6})(?: +|$)(.*?)(?: +#+)? *$")
_RULE: Final = re.compile(r" {0,3}([-*_])(?: *\1){2,} *$")
_ITEM: Final = re.compile(r"( *)([-*+]|\d{1,3}[.)])( +)(?=\S)")
_QUOTE: Final = re.compile(r" {0,3}> ?")
_TABLE: Final = re.compile(r" {0,3}\|")
_DIVIDER: Final = re.compile(r" {0,3}\|?[ :]*-[-: ]*(?:\|[ :]*-[-: ]*)*\|? *$")
_CELLS: Final = re.compile(r"(?<!\\)\|")


class MarkdownStream:
    """Renders one Markdown message as it streams. Does not escape: pass only text that `neutral`
    has already escaped."""

    def __init__(self, paint: Paint, *, unicode: bool = True) -> None:
        self._paint = paint
        self._bullet, self._bar, self._dash = "•│─" if unicode else "*|-"
        self._line = ""
        """The open line, or what is left of it after its first rows became final."""
        self._prefix: Neutral | None = None
        """The prefix of the rows of a line whose beginning is final; None at the start of a
        line."""
        self._line_styles: tuple[str, ...] = ()
        self._fence = ""
        self._table: list[str] = []
        self._widths: list[int] = []
        """The column widths of a table whose first rows are final."""
        self._width = 0
        self._shown = 0
        """Characters of the open line that the last `open_rows` covered."""

    def feed(self, text: str, width: int) -> list[Neutral]:
        """Add text. Returns the rows that became final."""
        self._width = width
        done: list[Neutral] = []
        if self._prefix is not None and not self._line and not self._fence:
            text = text.lstrip(" ")
        *lines, rest = text.expandtabs(TAB_SIZE).split("\n")
        for each in lines:
            self._line += each
            done += self._end_line(width)
        self._line += rest
        if self._table and self._line.strip() and not _TABLE.match(self._line):
            done += self._end_table(width)
        return done + self._settle(width, all_but_last=len(self._line) > MAX_PARSED)

    def end(self, width: int) -> list[Neutral]:
        """End the message. Returns its remaining rows."""
        self._width = width
        done = self._end_line(width) if self._line or self._prefix is not None else []
        done += self._end_table(width)
        self._fence = ""
        return done

    def open_rows(self, width: int, height: int) -> list[Neutral]:
        """Return the rows that may still change, at most the last `height` of them."""
        self._width = width
        rows = self._table_rows(width) if self._table else []
        if self._line:
            rows += [row.text for row in self._rows(width)]
        self._shown = len(self._line)
        return rows[-height:]

    def shrink(self, width: int, height: int) -> list[Neutral]:
        """Remove and return the rows that must become final because at most `height` can be open;
        an empty list if there is room for all."""
        self._width = width
        if self._table:
            return self._final_table(width) if len(self._table_rows(width)) > height else []
        return self._settle(width, all_but_last=True) if len(self._rows(width)) > height else []

    def freeze(self) -> None:
        """Treat the rows of the last `open_rows` as final: other output was written after them."""
        self._table, self._widths = [], []
        if self._shown:
            self._begin_rest()
            rest = self._line[self._shown :]
            self._line, self._shown = rest if self._fence else rest.lstrip(" "), 0

    # -- lines

    def _end_line(self, width: int) -> list[Neutral]:
        source, began = self._line, self._prefix is None
        done: list[Neutral] = []
        if began and not self._fence and _TABLE.match(source) and len(source) <= MAX_PARSED:
            self._table.append(source)
            if self._widths or len(self._table) >= MAX_TABLE_ROWS:
                done = self._final_table(width)
        elif began and (fence := _FENCE.match(source)) and self._is_fence(fence):
            done = self._end_table(width)
            self._fence = "" if self._fence else fence[1]
            if name := fence[2].strip():
                # The fence is not shown, only the name of its language.
                done.append(self._paint(f"  {name}", "dim"))
        elif self._fence:
            # Not wrapped, so that it can be copied: the terminal breaks long lines.
            lead = "  " if began and source else ""
            done = [self._paint(lead + source, "cyan")]
        else:
            done = self._end_table(width)
            if source or began:
                done += [row.text for row in self._rows(width)]
        self._line, self._shown, self._prefix, self._line_styles = "", 0, None, ()
        return done

    def _is_fence(self, found: re.Match[str]) -> bool:
        """Return whether a line opens or closes a code fence."""
        return not self._fence or (found[1].startswith(self._fence) and not found[2].strip())

    def _settle(self, width: int, *, all_but_last: bool = False) -> list[Neutral]:
        """Remove and return the rows of the open line that can no longer change; with
        `all_but_last`, all of its rows except the last."""
        if not all_but_last and (
            self._fence or self._table or (self._prefix is None and _TABLE.match(self._line))
        ):
            return []
        rows = self._rows(width)
        final = len(rows) - 1
        if not all_but_last:
            unsure_at = self._inline()[2].unsure_at
            while final > 0 and rows[final].at > unsure_at:
                final -= 1
        if final <= 0:
            return []
        rest = rows[final]
        self._begin_rest()
        self._line, self._shown = rest.opened + self._line[rest.at :], 0
        return [row.text for row in rows[:final]]

    def _begin_rest(self) -> None:
        """Mark the beginning of the open line as final, and keep the prefix for its other rows."""
        if self._fence:
            self._prefix = Neutral("")
        elif self._prefix is None:
            _, self._prefix, _, self._line_styles = self._layout()

    def _rows(self, width: int) -> list[Row]:
        if self._fence:
            lead = "" if self._prefix is not None else "  "
            whole = [Piece(self._line, ("cyan",))]
            return rows_of(whole, width, self._paint, first=lead)
        first, others, found = self._inline()
        return rows_of(found.pieces, width, self._paint, first=first, others=others)

    def _inline(self) -> tuple[Neutral, Neutral, Inline]:
        """Return the prefixes of the open line's first row and of its other rows, and its parsed
        text."""
        first, others, begin, styles = self._layout()
        found = inline(self._line[begin:MAX_PARSED])
        if begin or styles:
            moved = tuple(
                Piece(each.text, (*styles, *each.styles), each.at + begin, each.opened)
                for each in found.pieces
            )
            found = Inline(moved, found.unsure_at + begin)
        if len(self._line) > MAX_PARSED:
            rest = Piece(self._line[MAX_PARSED:], styles, MAX_PARSED)
            found = Inline((*found.pieces, rest), found.unsure_at)
        return first, others, found

    def _layout(self) -> tuple[Neutral, Neutral, int, tuple[str, ...]]:
        """Return, for the open line, the prefixes of its first and of its other rows, the position
        at which its text begins, and the styles of the text."""
        if self._prefix is not None:
            return self._prefix, self._prefix, 0, self._line_styles
        source, none = self._line, Neutral("")
        if _RULE.match(source) and len(source) <= RULE_WIDTH * 2:
            return self._paint(self._dash * RULE_WIDTH, "dim"), none, len(source), ()
        styles: tuple[str, ...] = ()
        if (found := _HEADING.match(source)) and found[2]:
            styles = ("bold", "underline") if len(found[1]) == 1 else ("bold",)
            return none, none, found.start(2), styles
        first = others = none
        at, used = 0, 0
        # Leave half of the window for the text.
        most = self._width // 2
        while used < most:
            if quote := _QUOTE.match(source, at):
                bar = self._paint(f"{self._bar} ", "dim")
                first, others, styles = first + bar, others + bar, ("dim",)
                at, used = quote.end(), used + 2
            elif item := _ITEM.match(source, at):
                mark = self._bullet if item[2] in "-*+" else item[2]
                lead = " " * min(len(item[1]), most - used)
                first = first + f"{lead}{mark} "
                others = others + " " * (len(lead) + len(mark) + 1)
                at, used = item.end(), used + len(lead) + len(mark) + 1
            else:
                break
        if not at:
            # Continuation rows are aligned with the beginning of an indented line.
            indent = min(len(source) - len(source.lstrip(" ")), most)
            return neutral(" " * indent), neutral(" " * indent), indent, ()
        return first, others, at, styles

    # -- tables

    def _end_table(self, width: int) -> list[Neutral]:
        rows = self._table_rows(width) if self._table else []
        self._table, self._widths = [], []
        return rows

    def _final_table(self, width: int) -> list[Neutral]:
        """Remove and return the rows of the open table, which become final. The later rows of the
        table get the same column widths."""
        rows = self._table_rows(width)
        if len(self._table) > 1 and _DIVIDER.match(self._table[1]):
            cells = [_cells(source) for at, source in enumerate(self._table) if at != 1]
            self._widths = self._fitted(_squared(cells), width) or [1]
        self._table = []
        return rows

    def _fitted(self, cells: list[list[str]], width: int) -> list[int]:
        """Return the column widths that cut no word; empty if the window is too narrow."""
        least = [max(map(longest_word, column)) for column in zip(*cells, strict=True)]
        if sum(least) + GAP * (len(least) - 1) > width:
            return []
        return fit(cells, width, narrowest=1)

    def _table_rows(self, width: int) -> list[Neutral]:
        if self._widths:
            return self._later_rows(width)
        if len(self._table) < 2 or not _DIVIDER.match(self._table[1]):
            pieces = (inline(source).pieces for source in self._table)
            return [row.text for each in pieces for row in rows_of(each, width, self._paint)]
        cells = _squared([_cells(source) for at, source in enumerate(self._table) if at != 1])
        widths = self._fitted(cells, width)
        head, *body = cells
        if not widths:
            return self._records(head, body, width)
        rule = line([self._dash * each for each in widths], widths)
        return [
            *(self._paint(each, "bold") for each in folded(head, widths)),
            self._paint(rule, "dim"),
            *(neutral(each) for row in body for each in folded(row, widths)),
        ]

    def _later_rows(self, width: int) -> list[Neutral]:
        """Return the rows of a table that follow its final ones."""
        made: list[Neutral] = []
        for source in self._table:
            cells = _cells(source)
            widths = [*self._widths, *[1] * (len(cells) - len(self._widths))][: len(cells)]
            widths = [
                max(each, longest_word(cell)) for each, cell in zip(widths, cells, strict=True)
            ]
            made += map(neutral, folded(cells, widths))
        return made

    def _records(self, head: list[str], body: list[list[str]], width: int) -> list[Neutral]:
        """Render a table that is too wide for the terminal: the cells of each row below each
        other."""
        made: list[Neutral] = []
        for row in body or [[""] * len(head)]:
            if made:
                made.append(Neutral(""))
            for name, cell in zip(head, row, strict=True):
                pieces = (
                    [Piece(f"{name}:", ("bold",)), Piece(f" {cell}")] if name else [Piece(cell)]
                )
                made += [each.text for each in rows_of(pieces, width, self._paint, others="  ")]
        return made


def _cells(source: str) -> list[str]:
    inner = source.strip().removeprefix("|")
    if inner.endswith("|") and not inner.endswith("\\|"):
        inner = inner[:-1]
    return [plain(cell.strip().replace("\\|", "|")) for cell in _CELLS.split(inner)]


def _squared(rows: list[list[str]]) -> list[list[str]]:
    """Return rows padded to the same number of cells."""
    count = max(map(len, rows))
    return [[*row, *[""] * (count - len(row))] for row in rows]


class PlainStream:
    """Renders text without markup in one style, wrapped at words. Used for thoughts."""

    def __init__(self, paint: Paint, *styles: str, lead: str = "") -> None:
        self._paint = paint
        self._styles = styles
        self._lead = lead
        self._line = ""
        self._shown = 0

    def feed(self, text: str, width: int) -> list[Neutral]:
        """Add text. Returns the rows that became final."""
        *lines, rest = (self._lead + text).expandtabs(TAB_SIZE).split("\n")
        self._lead = ""
        done: list[Neutral] = []
        for each in lines:
            self._line += each
            done += [row.text for row in self._rows(width)]
            self._line = ""
        self._line += rest
        *final, last = self._rows(width)
        self._line = self._line[last.at :]
        return [*done, *(row.text for row in final)]

    def end(self, width: int) -> list[Neutral]:
        """End the text. Returns its remaining rows."""
        rows = [row.text for row in self._rows(width)] if self._line else []
        self._line = ""
        return rows

    def open_rows(self, width: int, height: int) -> list[Neutral]:
        """Return the row that may still change, as a list; empty if there is none."""
        self._shown = len(self._line)
        return [row.text for row in self._rows(width)][-height:] if self._line else []

    def shrink(self, width: int, height: int) -> list[Neutral]:
        """Return no rows: only one row is ever open."""
        return []

    def freeze(self) -> None:
        """Treat the row of the last `open_rows` as final."""
        self._line, self._shown = self._line[self._shown :].lstrip(" "), 0

    def _rows(self, width: int) -> list[Row]:
        return rows_of([Piece(self._line, self._styles)], width, self._paint)
