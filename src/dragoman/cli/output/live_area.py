"""The last rows of a terminal, redrawn in place: the open block of a turn and the status line.

Renderers use `LiveText`, which takes text, lines, a plan and a status; `LiveArea` draws. The cursor
stays at the first row of the area, so erasing from there is correct after a resize too, whether the
terminal rewraps long rows or cuts them. Before other output (`output.terminal.held`) the shown part
of the open block becomes final and the status line is erased.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, TextIO

from dragoman.cli.output.escape import Neutral, joined, neutral, one_line
from dragoman.cli.output.markdown_stream import TAB_SIZE, MarkdownStream, PlainStream
from dragoman.cli.output.styled_rows import Piece, rows_of
from dragoman.cli.output.tables import columns, cut
from dragoman.cli.output.terminal import (
    DEFAULT_WIDTH,
    ERASE_BELOW,
    Paint,
    held,
    is_terminal,
    paint_for,
    put,
)
from dragoman.events.words import Role

STATUS_DELAY: Final = 0.2
"""Seconds until a status is shown, so that a fast command does not flicker."""

TICK_INTERVAL: Final = 0.25
"""Seconds between two checks of the time and the window size."""

MIN_WIDTH: Final = 20
DEFAULT_HEIGHT: Final = 24

SPARE_ROWS: Final = 2
"""Rows of the window that the open block leaves free: the status line and the cursor's row."""

PENDING_SIZE: Final = 64 * 1024
"""Maximum number of characters of finished rows that are buffered until the next loop iteration."""


class LiveArea:
    """Draws finished rows once, and redraws the open rows and the status line below them.

    Used in the loop's thread. Only `give_way`, `last_words` and `close` are called from other
    threads, while nothing else can write (`held.alone`).
    """

    def __init__(
        self,
        stream: TextIO,
        *,
        write: Callable[[str], None],
        open_rows: Callable[[int, int], list[Neutral]],
        on_close: Callable[[], None],
    ) -> None:
        """`write` writes to the stream at once. `open_rows(width, height)` returns at most `height`
        open rows; `on_close` finishes them."""
        self.stream = stream
        self._write = write
        self._open_rows = open_rows
        self._on_close = on_close
        self._paint = paint_for(stream)
        self._ellipsis = "…" if is_unicode(stream) else "..."
        self._doing = ""
        self._details: Callable[[], str] = str
        self._since = 0.0
        self._show_status_at = 0.0
        self._pending: list[Neutral] = []
        self._pending_size = 0
        self._drawn: tuple[list[Neutral], Neutral, tuple[int, int]] | None = None
        """The open rows and the status on the screen, and the window size when they were drawn."""
        self.frozen = False
        """Whether the open rows were made final by other output since the last draw."""
        self._in_line = False
        """Whether other output has begun a line without ending it."""
        self._tick: asyncio.TimerHandle | None = None
        self._due = False
        self._thread = 0

    # -- for the renderer

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows of the window, with at least `MIN_WIDTH` columns."""
        columns = rows = 0
        with suppress(OSError, ValueError):
            columns, rows = os.get_terminal_size(self.stream.fileno())
        return max(columns or DEFAULT_WIDTH, MIN_WIDTH), rows or DEFAULT_HEIGHT

    @property
    def open_height(self) -> int:
        """Maximum number of open rows, at least 1."""
        return max(self.size[1] - SPARE_ROWS, 1)

    def status(self, doing: str, details: Callable[[], str] | None = None) -> None:
        """Show a status; an empty one removes it.

        The displayed time counts from the first status after none was shown. `details` is called at
        every draw and returns text to add; None keeps the earlier callback.
        """
        if doing and not self._doing:
            self._since = time.monotonic()
            self._show_status_at = self._since + STATUS_DELAY
            self._in_line = False
        self._doing = doing
        if details is not None:
            self._details = details
        self.changed()

    def add(self, text: Neutral) -> None:
        """Write finished lines at the next draw."""
        self._pending.append(text)
        self._pending_size += len(text)
        self.changed(now=self._pending_size > PENDING_SIZE)

    def changed(self, *, now: bool = False) -> None:
        """Schedule a draw: all changes of one loop iteration are drawn together. Without a running
        loop, finished lines are drawn at once."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            if self._pending:
                self.draw()
            return
        held.overlay = self
        self._thread = threading.get_ident()
        if now:
            self.draw()
        elif not self._due:
            self._due = True
            loop.call_soon(self._draw_due)
        if self._tick is None:
            self._ticked()

    def _draw_due(self) -> None:
        self._due = False
        self.draw()

    def _ticked(self) -> None:
        """Redraw while there is a status: its time and the window size change."""
        if self._tick is not None:
            self.draw()
        loop = asyncio.get_running_loop()
        self._tick = loop.call_later(TICK_INTERVAL, self._ticked) if self._doing else None

    def draw(self) -> None:
        """Write the finished lines and, after a change, redraw the open rows and the status. While
        a question is open, only the finished lines are written; they are shown after the answer."""
        with held.alone():
            lasting = joined("", self._pending)
            self._pending, self._pending_size = [], 0
            if held.is_open:
                if lasting:
                    put(self.stream, lasting)
                return
            if lasting:
                self._in_line = False
            size = self.size
            rows = self._open_rows(size[0], self.open_height) if is_running() else []
            status = self._status_row(size[0])
            if not lasting and self._drawn == (rows, status, size):
                return
            frame = [Neutral(ERASE_BELOW)] if self._drawn is not None else []
            shown = [*rows, *([status] if status else [])]
            if self._in_line:
                shown = []
            frame += [lasting, joined("\n", shown)]
            if len(shown) > 1:
                frame.append(Neutral(f"\x1b[{len(shown) - 1}A"))
            if shown:
                frame.append(Neutral("\r"))
            self._drawn = (rows, status, size) if shown else None
            self._write(joined("", frame))

    def _status_row(self, width: int) -> Neutral:
        now = time.monotonic()
        if not self._doing or now < self._show_status_at or not is_running():
            return Neutral("")
        seconds = int(now - self._since)
        took = f"{seconds} s" if seconds < 60 else f"{seconds // 60} min {seconds % 60} s"
        details = self._details()
        parts = [one_line(self._doing), took, *([one_line(details)] if details else [])]
        return self._paint(cut(f"{self._ellipsis} {', '.join(parts)}", width - 1), "dim")

    # -- for other output

    def give_way(self, stream: TextIO, text: str) -> None:
        """Called before `text` is written to `stream`: keep the open rows and erase the status,
        unless that text goes to a file or a pipe."""
        if stream is not self.stream and not is_terminal(stream):
            return
        if threading.get_ident() == self._thread and self._pending:
            self.draw()
        self._in_line = not text.endswith("\n")
        if last := self.last_words():
            assert self._drawn is not None
            self.frozen = self.frozen or bool(self._drawn[0])
            self._drawn = None
            self._write(last)

    def last_words(self) -> Neutral:
        """Return the output that leaves only complete lines on the terminal; empty if nothing is
        drawn."""
        if self._drawn is None:
            return Neutral("")
        return joined("", [Neutral(ERASE_BELOW), *(row + "\n" for row in self._drawn[0])])

    def settle(self) -> None:
        """Leave only complete lines: end the open text, erase the status, and keep the rows."""
        with held.alone():
            self._on_close()
            self.draw()
            self.give_way(self.stream, "\n")

    def close(self) -> None:
        """Remove the status for good, and leave only complete lines."""
        self._doing = ""
        if self._tick is not None:
            self._tick.cancel()
            self._tick = None
        self.settle()


class LiveText:
    """Shows the text, lines, plan and status of a turn on a terminal."""

    def __init__(self, stream: TextIO, write: Callable[[str], None]) -> None:
        self._paint = paint_for(stream)
        self._unicode = is_unicode(stream)
        self._area = LiveArea(stream, write=write, open_rows=self._open_rows, on_close=self.end)
        self._stream: MarkdownStream | PlainStream | None = None
        self._plan_id = ""
        self._plan: list[tuple[str, ...]] = []
        """The lines of the plan at the end of the output, each a text and its styles."""

    def say(self, role: Role, text: str) -> None:
        """Add text of the agent to the open message, or begin one. `end` ends the message."""
        self._thaw()
        self.end_plan()
        if self._stream is None:
            if role is Role.THOUGHT:
                self._stream = PlainStream(self._paint, "dim", lead="[thinking] ")
            else:
                self._stream = MarkdownStream(self._paint, unicode=self._unicode)
        width = self._area.size[0]
        rows = self._stream.feed(neutral(text), width)
        rows += self._stream.shrink(width, self._area.open_height)
        self._add(rows)

    def end(self) -> None:
        """End the open text or plan: the next output starts a line."""
        self._thaw()
        self.end_plan()
        if self._stream is not None:
            rows = self._stream.end(self._area.size[0])
            self._stream = None
            self._add(rows)

    def line(self, text: str, *styles: str) -> None:
        """Write a line of dragoman's own output, after ending the agent's open text."""
        self.end()
        self._area.add(wrapped_lines(neutral(text), self._area.size[0], self._paint, *styles))

    def plan(self, plan_id: str, lines: Sequence[tuple[str, ...]]) -> None:
        """Show lines of a plan, each a text and its styles. They stay open: the next lines of
        the same plan replace them, until other output follows."""
        if not self.has_open_plan(plan_id):
            self.end()
        self._plan_id, self._plan = plan_id, list(lines)
        if len(lines) > self._area.open_height:
            self.end_plan()
        self._area.changed()

    def has_open_plan(self, plan_id: str) -> bool:
        """Return whether the lines of the plan are still the last output."""
        self._thaw()
        return bool(self._plan) and self._plan_id == plan_id

    def end_plan(self) -> None:
        """Make the plan final: other output follows it."""
        lines, self._plan = self._plan, []
        for text, *styles in lines:
            self._area.add(wrapped_lines(neutral(text), self._area.size[0], self._paint, *styles))

    def status(self, doing: str, details: Callable[[], str] | None = None) -> None:
        """Set the status, as in `LiveArea.status`; `details` is called at every draw."""
        self._area.status(doing, details)

    def flush(self) -> None:
        """Write everything that is not yet on the screen."""
        if not is_running():
            self.end()
        self._area.draw()

    def _add(self, rows: Sequence[Neutral]) -> None:
        if rows:
            self._area.add(joined("", (row + "\n" for row in rows)))
        else:
            self._area.changed()

    def _thaw(self) -> None:
        """Drop the part of the open block that other output has made final."""
        if self._area.frozen:
            self._area.frozen = False
            self._plan = []
            if self._stream is not None:
                self._stream.freeze()

    def _open_rows(self, width: int, height: int) -> list[Neutral]:
        self._thaw()
        if self._stream is not None:
            return self._stream.open_rows(width, height)
        rows: list[Neutral] = []
        for text, *styles in self._plan:
            shown = wrapped_lines(neutral(text), width, self._paint, *styles)
            rows += map(Neutral, shown.removesuffix("\n").split("\n"))
        return rows[-height:]


def wrapped_lines(text: str, width: int, paint: Paint, *styles: str) -> Neutral:
    """Wrap our own lines at words; continuation rows keep the indentation."""
    made: list[Neutral] = []
    for each in text.expandtabs(TAB_SIZE).split("\n"):
        indent = min(len(each) - len(each.lstrip(" ")), width // 2)
        others = " " * (indent + 2) if columns(each) > width else ""
        made += [row.text for row in rows_of([Piece(each, styles)], width, paint, others=others)]
    return joined("\n", made) + "\n"


def is_running() -> bool:
    """Return whether an event loop is running in this thread. Only a loop draws again, so without
    one no rows may stay open."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def is_unicode(stream: TextIO) -> bool:
    """Return whether the encoding of the stream is UTF-8, which has bullets and lines."""
    with suppress(AttributeError):
        return (stream.encoding or "").lower().replace("-", "") == "utf8"
    return False
