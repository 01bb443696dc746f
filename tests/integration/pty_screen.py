"""The screen of a terminal, for tests that look at what a person sees."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pyte

from tests.integration.pty_terminal import ROWS, TIMEOUT, Terminal


class PtyScreen:
    """What a program has drawn: the rows on the screen, and those that scrolled away."""

    def __init__(self, terminal: Terminal, columns: int, rows: int = ROWS) -> None:
        self.terminal = terminal
        self.screen = pyte.HistoryScreen(columns, rows, history=10_000)
        self._stream = pyte.Stream(self.screen)
        self._fed = 0

    @property
    def rows(self) -> list[str]:
        """All rows, without the empty ones at the end."""
        shown = self.terminal.shown
        self._stream.feed(shown[self._fed :])
        self._fed = len(shown)
        width = self.screen.columns
        gone = ["".join(line[at].data for at in range(width)) for line in self.screen.history.top]
        rows = [row.rstrip() for row in (*gone, *self.screen.display)]
        while rows and not rows[-1]:
            rows.pop()
        return rows

    @property
    def text(self) -> str:
        return "\n".join(self.rows)

    def style_of(self, text: str) -> pyte.screens.Char:
        """How the first character of a text on the screen is drawn."""
        for number, row in enumerate(self.screen.display):
            if (at := row.find(text)) >= 0:
                return self.screen.buffer[number][at]
        raise AssertionError(f"{text!r} is not in {self.rows}")

    def until(self, seen: Callable[[str], bool] | str) -> str:
        """Wait until a text is on the screen, or until the screen is as it should be."""
        is_seen = seen if callable(seen) else lambda text: seen in text
        give_up_at = time.monotonic() + TIMEOUT
        while not is_seen(self.text):
            assert time.monotonic() < give_up_at and self.terminal.read(give_up_at), self.rows
        return self.text

    def resize(self, columns: int, rows: int = ROWS) -> None:
        """Change the size of the window, as a person does with the mouse."""
        _ = self.rows
        self.terminal.resize(columns, rows)
        self.screen.resize(rows, columns)

    def end(self) -> int:
        """Wait for the end of the program: its exit code. The cursor is where a shell goes on."""
        code = self.terminal.wait()
        rows = self.rows
        cursor = self.screen.cursor
        above = len(self.screen.history.top)
        # The terminal itself shows a Ctrl-C that was typed at the very end.
        typed = self.screen.display[cursor.y].rstrip()
        is_free = not typed.replace("^C", "") and cursor.x == len(typed)
        assert is_free and not cursor.hidden, (cursor.x, cursor.y, rows)
        assert cursor.y + above >= len(rows) - bool(typed), (cursor.y, above, rows)
        return code


def make(path: str) -> None:
    """Let the agent go on that waits for this file."""
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
