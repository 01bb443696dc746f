"""Read lines of files inside the workspace for scout's answers, with size limits.

Resolves paths from a question and refuses those outside the workspace, symbolic links included
(`client.services.workspace`). Refuses binary files and replaces invalid UTF-8. Blocking: call it
in a thread.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dragoman.client.services.worker_thread import check
from dragoman.client.services.workspace import Workspace
from dragoman.errors import FileFailed, FileMissing, NotText
from dragoman.scout.hits import clean

MAX_LINES: Final = 400
"""Lines of a file that are shown at once: some screens full. The answer says how to see more."""

MAX_LINE_SIZE: Final = 2000
"""Characters of a line that are shown."""

MAX_SCAN_SIZE: Final = 256 * 1024 * 1024
"""How far into a file lines are looked for."""

CHUNK_SIZE: Final = 256 * 1024
BINARY_SIZE: Final = 8 * 1024


@dataclass(frozen=True, slots=True)
class FilePart:
    """Some lines of a file."""

    path: str
    """From the root on."""
    first: int
    lines: list[str]
    total: int | None
    """How many lines the file has; None if it was not read to its end."""

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
        """A path that somebody wrote, absolute or from the root on, as an absolute one."""
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

    def anything(self, path: str) -> str:
        """The file or folder that a path means, or would mean if it were still there."""
        try:
            with self._workspace.find(self.locate(path)) as place:
                return self.relative(place.real_path)
        except FileMissing:
            return self.relative(self._workspace.resolve_for_write(self.locate(path)))

    def part(
        self, path: str, first: int | None, last: int | None, stop: threading.Event
    ) -> FilePart:
        """Some lines of a file. A negative `first` means the last lines."""
        where = self.locate(path)
        real = self.relative(self._workspace.resolve_for_read(where))
        with self._workspace.open_for_read(where) as (fd, _):
            lines = self._raw_lines(path, fd, stop)
            if first is not None and first < 0:
                return _tail(real, lines, min(-first, MAX_LINES))
            start = max(first or 1, 1)
            wanted = MAX_LINES if last is None else max(0, min(last - start + 1, MAX_LINES))
            return _slice(real, lines, start, wanted)

    def all_lines(self, path: str, stop: threading.Event, limit: int = 100_000) -> list[str]:
        """The lines of a file as far as they are of use for finding out what stands around one."""
        with self._workspace.open_for_read(self.locate(path)) as (fd, _):
            kept: list[str] = []
            for line in self._raw_lines(path, fd, stop):
                kept.append(_shown(line))
                if len(kept) >= limit:
                    break
            return kept

    def _raw_lines(self, path: str, fd: int, stop: threading.Event) -> Iterator[bytes]:
        rest = b""
        scanned_size = 0
        long_line = False
        while True:
            check(stop)
            try:
                chunk = os.read(fd, CHUNK_SIZE)
            except OSError as error:
                raise FileFailed(path, error.strerror or str(error), error.errno) from error
            if scanned_size == 0 and b"\0" in chunk[:BINARY_SIZE]:
                raise NotText(path, "it has NUL bytes in it")
            if not chunk or scanned_size > MAX_SCAN_SIZE:
                break
            scanned_size += len(chunk)
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                if not long_line:
                    yield line
                long_line = False
            if len(rest) > CHUNK_SIZE:
                # A line without an end: its beginning is told once, the rest is passed over.
                if not long_line:
                    yield rest
                long_line = True
                rest = b""
        if rest and not long_line:
            yield rest


def _shown(line: bytes) -> str:
    text = line[: MAX_LINE_SIZE * 4].decode("utf-8", "replace").rstrip("\r")
    cut = len(text) > MAX_LINE_SIZE or len(line) > MAX_LINE_SIZE * 4
    return clean(text[:MAX_LINE_SIZE]) + ("…" if cut else "")


# Only what is shown is decoded: a file of millions of lines is read in seconds and not in minutes.


def _slice(path: str, lines: Iterable[bytes], start: int, wanted: int) -> FilePart:
    kept: list[str] = []
    number = 0
    for number, line in enumerate(lines, 1):
        if number >= start and len(kept) < wanted:
            kept.append(_shown(line))
    return FilePart(path, start, kept, number)


def _tail(path: str, lines: Iterable[bytes], wanted: int) -> FilePart:
    kept: deque[bytes] = deque(maxlen=wanted)
    number = 0
    for number, line in enumerate(lines, 1):  # noqa: B007 - counted
        kept.append(line)
    return FilePart(path, max(1, number - len(kept) + 1), [_shown(line) for line in kept], number)
