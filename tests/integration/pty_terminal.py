"""A terminal with a program in it, for tests that type and look."""

from __future__ import annotations

import os
import pty
import select
import signal
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

TIMEOUT = 45.0
"""Seconds until something that should appear counts as missing; the machine may be busy."""

ROWS = 40
"""Rows of a terminal whose columns are given."""

CTRL_C = "\x03"
CTRL_D = "\x04"

READY = "\x1b[?2004h"
"""What a line editor shows when it reads keys: from now on a paste is marked as one."""


class Terminal:
    """A running program and what it has shown so far."""

    def __init__(self, pid: int, descriptor: int) -> None:
        self.pid = pid
        self._descriptor = descriptor
        self.shown = ""
        self._seen = 0
        self._code: int | None = None

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def type_bytes(self, data: bytes) -> None:
        """Type bytes of any number: what the program shows meanwhile is read."""
        until = time.monotonic() + TIMEOUT
        while data:
            _, ready, _ = select.select([], [self._descriptor], [], 0.01)
            if ready:
                data = data[os.write(self._descriptor, data[:1024]) :]
            shown, _, _ = select.select([self._descriptor], [], [], 0)
            if shown:
                self.read(until)
            assert time.monotonic() < until, "the program does not read what is typed"

    def expect(self, text: str) -> str:
        """Wait until a text appears after what was expected last; what stood before it."""
        until = time.monotonic() + TIMEOUT
        while text not in self.shown[self._seen :]:
            assert time.monotonic() < until and self.read(until), (
                f"{text!r} never came; there was {self.shown[self._seen :]!r}"
            )
        at = self.shown.index(text, self._seen)
        before, self._seen = self.shown[self._seen : at], at + len(text)
        return before

    def wait(self) -> int:
        """The exit code; all that was shown till then is read."""
        until = time.monotonic() + TIMEOUT
        while self.read(until):
            pass
        if self._code is None:
            _, status = os.waitpid(self.pid, 0)
            self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def read(self, until: float) -> bool:
        """Read what is there; False at the end."""
        ready, _, _ = select.select([self._descriptor], [], [], max(0.0, until - time.monotonic()))
        assert ready, f"nothing came any more after {self.shown[-400:]!r}"
        try:
            data = os.read(self._descriptor, 65536)
        except OSError:
            return False  # The other side of a terminal that is gone.
        self.shown += data.decode("utf-8", "replace")
        return bool(data)

    @property
    def echoes(self) -> bool:
        """Whether the terminal shows what is typed."""
        return bool(termios.tcgetattr(self._descriptor)[3] & termios.ECHO)

    def resize(self, columns: int, rows: int = ROWS) -> None:
        """Change the size of the terminal's window."""
        termios.tcsetwinsize(self._descriptor, (rows, columns))

    def close(self) -> None:
        if self._code is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._descriptor)


@contextmanager
def in_terminal(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    columns: int = 0,
    rows: int = ROWS,
) -> Iterator[Terminal]:
    """Run a program with a terminal of its own, until the block ends.

    It has so many columns; with 0, the program does not learn how many there are.
    """
    pid, descriptor = pty.fork()
    if pid == 0:
        try:
            if columns:
                termios.tcsetwinsize(0, (rows, columns))
            os.chdir(cwd)
            os.execve(argv[0], list(argv), dict(env))
        finally:
            os._exit(127)
    terminal = Terminal(pid, descriptor)
    try:
        yield terminal
    finally:
        terminal.close()
