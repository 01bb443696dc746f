"""Read lines of files inside the workspace for scout's answers, with size limits.

Resolves paths from a question and refuses those outside the workspace, symbolic links included
(`client.services.workspace`). Refuses binary files and replaces invalid UTF-8. Blocking: call it
in a thread.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Final, NamedTuple

from dragoman.client.services.workspace import Workspace
from dragoman.errors import FileFailed, NotText
from dragoman.rpc.tasks import check
from dragoman.scout.hits import clean

MAX_LINES: Final = 400
"""Lines of a file that are shown at once: some screens full. The answer says how to see more."""

MAX_LINE_SIZE: Final = 2000
"""Characters of a line that are shown."""

MAX_READ_SIZE: Final = 16 * 1024 * 1024
"""Bytes of a file that are read: lines behind them are not shown."""

CHUNK_SIZE: Final = 1024 * 1024
BINARY_SIZE: Final = 8 * 1024


class FilePart(NamedTuple):
    """Some lines of a file."""

    path: str
    """From the root on."""
    first: int
    lines: list[str]
    total: int
    """How many lines the file has, as far as it was read."""

    @property
    def last(self) -> int:
        return self.first + len(self.lines) - 1


class FileReader:
    """Reads inside one workspace."""

    def __init__(self, root: str) -> None:
        self._workspace = Workspace([root])
        self.root = str(self._workspace.roots[0])
        """Its real path."""

    def locate(self, path: str) -> str:
        """A path that was written, absolute or from the root on, as an absolute one."""
        return os.path.join(self.root, os.path.expanduser(path) if path[:1] == "~" else path)

    def relative(self, real: Path) -> str:
        """A real path from the root on, with slashes between the names."""
        return "" if str(real) == self.root else real.relative_to(self.root).as_posix()

    def folder(self, path: str) -> str:
        """The folder that a path means, from the root on. Raises what `Workspace` raises."""
        # Whether a name is written as one of a folder makes no difference here.
        return self.relative(self._workspace.resolve_folder(self.locate(path.rstrip("/") or path)))

    def file(self, path: str) -> str:
        """The file that a path means, from the root on."""
        return self.relative(self._workspace.resolve_for_read(self.locate(path)))

    def part(
        self, path: str, first: int | None, last: int | None, stop: threading.Event
    ) -> FilePart:
        """Some lines of a file."""
        lines = self._raw_lines(path, stop)
        start = max(first or 1, 1)
        wanted = MAX_LINES if last is None else max(0, min(last - start + 1, MAX_LINES))
        # Only what is shown is decoded: a file of many lines is read in no time.
        shown = [_shown(line) for line in lines[start - 1 : start - 1 + wanted]]
        return FilePart(self.file(path), start, shown, len(lines))

    def all_lines(self, path: str, stop: threading.Event, limit: int = 20_000) -> list[str]:
        """The lines of a file as far as they are of use for judging it."""
        return [_shown(line) for line in self._raw_lines(path, stop)[:limit]]

    def _raw_lines(self, path: str, stop: threading.Event) -> list[bytes]:
        data = bytearray()
        with self._workspace.open_for_read(self.locate(path)) as (fd, _):
            while len(data) < MAX_READ_SIZE:
                check(stop)
                try:
                    chunk = os.read(fd, CHUNK_SIZE)
                except OSError as error:
                    raise FileFailed(path, error.strerror or str(error), error.errno) from error
                if not chunk:
                    break
                if not data and b"\0" in chunk[:BINARY_SIZE]:
                    raise NotText(path, "it has NUL bytes in it")
                data += chunk
        lines = bytes(data).split(b"\n")
        return lines if lines[-1] else lines[:-1]


def _shown(line: bytes) -> str:
    text = line[: MAX_LINE_SIZE * 4].decode("utf-8", "replace").rstrip("\r")
    cut = len(text) > MAX_LINE_SIZE or len(line) > MAX_LINE_SIZE * 4
    return clean(text[:MAX_LINE_SIZE]) + ("…" if cut else "")
