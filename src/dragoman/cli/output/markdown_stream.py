"""Markdown as rows of a terminal, while it streams.

A line break of the source is one on the screen: agents also write what is not Markdown. So every
line is a block of its own, except in a table and in fenced code. Finished rows are returned once;
the rows of the open line or table can be asked for at any time. Within a line `output.styled_rows`
knows the markup.
"""

from __future__ import annotations

import re
from typing import Final

from dragoman.cli.output.escape import Neutral, joined, neutral
from dragoman.cli.output.styled_rows import Inline, Piece, Row, inline, plain, rows_of
from dragoman.cli.output.tables import GAP, columns, fit, folded, line, longest_word
from dragoman.cli.output.terminal import Paint

MAX_PARSED: Final = 4000
"""Characters of a line in which markup is looked for. Reading it takes the square of that."""

MAX_TABLE_ROWS: Final = 200
"""Rows of a table that are kept until it ends: the widths of its columns depend on all of them."""

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
    """One message. Text that is handed in must be neutral."""

    def __init__(self, paint: Paint, *, unicode: bool = True) -> None:
        self._paint = paint
        self._bullet, self._bar, self._dash = "•│─" if unicode else "*|-"
        self._line = ""
        """The open line, or what is left of it."""
        self._prefix: Neutral | None = None
        """What stands before the rows of a line whose beginning is final; None at a beginning."""
        self._line_styles: tuple[str, ...] = ()
        self._fence = ""
        self._table: list[str] = []
        self._widths: list[int] = []
        """The widths of the columns of a table whose first rows are final."""
        self._width = 0
        self._shown = 0
        """Characters of the open line that the last `open_rows` had in them."""

    def feed(self, text: str, width: int) -> list[Neutral]:
        """Add text. Returns the rows that are final."""
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
        """The message is over. Returns the rest of its rows."""
        self._width = width
        done = self._end_line(width) if self._line or self._prefix is not None else []
        done += self._end_table(width)
        self._fence = ""
        return done

    def open_rows(self, width: int, height: int) -> list[Neutral]:
        """The rows that may still change, at most the last `height` of them."""
        self._width = width
        rows = self._table_rows(width) if self._table else []
        if self._line:
            rows += [row.text for row in self._rows(width)]
        self._shown = len(self._line)
        return rows[-height:]

    def shrink(self, width: int, height: int) -> list[Neutral]:
        """The rows that have to be final because no more than `height` can be open."""
        self._width = width
        if self._table:
            return self._final_table(width) if len(self._table_rows(width)) > height else []
        return self._settle(width, all_but_last=True) if len(self._rows(width)) > height else []

    def freeze(self) -> None:
        """The last `open_rows` were made final: other output has been written behind them."""
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
                # The fence itself is not shown, only the name of its language.
                done.append(self._paint(f"  {name}", "dim"))
        elif self._fence:
            # In one piece, so that it can be copied: the terminal breaks what is too long.
            lead = "  " if began and source else ""
            done = [self._paint(lead + source, "cyan")]
        else:
            done = self._end_table(width)
            if source or began:
                done += [row.text for row in self._rows(width)]
        self._line, self._shown, self._prefix, self._line_styles = "", 0, None, ()
        return done

    def _is_fence(self, found: re.Match[str]) -> bool:
        """Whether a line begins fenced code, or ends the one that is open."""
        return not self._fence or (found[1].startswith(self._fence) and not found[2].strip())

    def _settle(self, width: int, *, all_but_last: bool = False) -> list[Neutral]:
        """The rows of the open line that cannot change any more; they leave it. With
        `all_but_last` also those that could."""
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
        """The beginning of the open line is final: keep what goes before its other rows."""
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
        """The open line: what goes before its first row and the others, and its text."""
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
        """What goes before the first row and the others, where the text begins, its styles."""
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
        # Half of the window is left for the text.
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
            # The rest of an indented line belongs below its beginning.
            indent = min(len(source) - len(source.lstrip(" ")), most)
            return neutral(" " * indent), neutral(" " * indent), indent, ()
        return first, others, at, styles

    # -- tables

    def _end_table(self, width: int) -> list[Neutral]:
        rows = self._table_rows(width) if self._table else []
        self._table, self._widths = [], []
        return rows

    def _final_table(self, width: int) -> list[Neutral]:
        """The rows of the open table, which goes on with columns of the same widths."""
        rows = self._table_rows(width)
        if len(self._table) > 1 and _DIVIDER.match(self._table[1]):
            cells = [_cells(source) for at, source in enumerate(self._table) if at != 1]
            self._widths = self._fitted(_squared(cells), width) or [1]
        self._table = []
        return rows

    def _fitted(self, cells: list[list[str]], width: int) -> list[int]:
        """The widths of columns with which no word is cut; empty if the window is too narrow."""
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
        """Rows below those that are final."""
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
        """A table that is too wide for the terminal: the cells of a row, one below the other."""
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
    """Rows with as many cells each."""
    count = max(map(len, rows))
    return [[*row, *[""] * (count - len(row))] for row in rows]


class PlainStream:
    """Text without markup in one style, wrapped at words: thoughts."""

    def __init__(self, paint: Paint, *styles: str, lead: str = "") -> None:
        self._paint = paint
        self._styles = styles
        self._lead = lead
        self._line = ""
        self._shown = 0

    def feed(self, text: str, width: int) -> list[Neutral]:
        """Add text. Returns the rows that are final."""
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
        """The text is over. Returns the rest of its rows."""
        rows = [row.text for row in self._rows(width)] if self._line else []
        self._line = ""
        return rows

    def open_rows(self, width: int, height: int) -> list[Neutral]:
        """The row that may still change."""
        self._shown = len(self._line)
        return [row.text for row in self._rows(width)][-height:] if self._line else []

    def shrink(self, width: int, height: int) -> list[Neutral]:
        """Only one row is open."""
        return []

    def freeze(self) -> None:
        """The last `open_rows` were made final."""
        self._line, self._shown = self._line[self._shown :].lstrip(" "), 0

    def _rows(self, width: int) -> list[Row]:
        return rows_of([Piece(self._line, self._styles)], width, self._paint)


def lines_of(text: str, width: int, paint: Paint, *styles: str) -> Neutral:
    """Lines of ours as rows, wrapped at words; what follows in a line is indented as it is."""
    made: list[Neutral] = []
    for each in text.expandtabs(TAB_SIZE).split("\n"):
        indent = min(len(each) - len(each.lstrip(" ")), width // 2)
        others = " " * (indent + 2) if columns(each) > width else ""
        made += [row.text for row in rows_of([Piece(each, styles)], width, paint, others=others)]
    return joined("\n", made) + "\n"
