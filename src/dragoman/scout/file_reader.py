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
"""Maximum number of lines of a file shown at once: a few screens. The answer says how to see
more."""

MAX_LINE_SIZE: Final = 2000
"""Maximum number of characters of a line to show."""

MAX_READ_SIZE: Final = 16 * 1024 * 1024
"""Maximum number of bytes read from a file: later lines are not shown."""

CHUNK_SIZE: Final = 1024 * 1024
BINARY_SIZE: Final = 8 * 1024


class FilePart(NamedTuple):
    """Some lines of a file."""

    path: str
    """Relative to the root."""
    first: int
    lines: list[str]
    total: int
    """The number of lines in the part of the file that was read."""

    @property
    def last(self) -> int:
        return self.first + len(self.lines) - 1


class FileReader:
    """Reads files inside one workspace."""

    def __init__(self, root: str) -> None:
        self._workspace = Workspace([root])
        self.root = str(self._workspace.roots[0])
        """The real path of the workspace."""

    def locate(self, path: str) -> str:
        """Return a path from a question, which may be absolute, relative to the root or begin with
        ``~``, as an absolute path. Checks nothing."""
        return os.path.join(self.root, os.path.expanduser(path) if path[:1] == "~" else path)

    def relative(self, real: Path) -> str:
        """Return a real path relative to the root, with slashes."""
        return "" if str(real) == self.root else real.relative_to(self.root).as_posix()

    def folder(self, path: str) -> str:
        """Return the directory that a path means, relative to the root.

        Raises what `Workspace.resolve_folder` raises.
        """
        # A trailing slash makes no difference here.
        return self.relative(self._workspace.resolve_folder(self.locate(path.rstrip("/") or path)))

    def file(self, path: str) -> str:
        """Return the file that a path means, relative to the root. Raises what
        `Workspace.resolve_for_read` raises."""
        return self.relative(self._workspace.resolve_for_read(self.locate(path)))

    def part(
        self, path: str, first: int | None, last: int | None, stop: threading.Event
    ) -> FilePart:
        """Return the lines `first` to `last` of a file, counted from 1, but at most `MAX_LINES`.
        None means from the start, or as many as allowed. Raises `NotText` for a binary file, and
        what `file` raises."""
        lines = self._raw_lines(path, stop)
        start = max(first or 1, 1)
        wanted = MAX_LINES if last is None else max(0, min(last - start + 1, MAX_LINES))
        # Only the shown part is decoded: a file with many lines is read quickly.
        shown = [_shown(line) for line in lines[start - 1 : start - 1 + wanted]]
        return FilePart(self.file(path), start, shown, len(lines))

    def all_lines(self, path: str, stop: threading.Event, limit: int = 20_000) -> list[str]:
        """Return the first `limit` lines of a file: more are not needed to rank it. Raises as
        `part` does."""
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
                    raise NotText(path, "it contains NUL bytes")
                data += chunk
        lines = bytes(data).split(b"\n")
        return lines if lines[-1] else lines[:-1]


def _shown(line: bytes) -> str:
    text = line[: MAX_LINE_SIZE * 4].decode("utf-8", "replace").rstrip("\r")
    cut = len(text) > MAX_LINE_SIZE or len(line) > MAX_LINE_SIZE * 4
    return clean(text[:MAX_LINE_SIZE]) + ("…" if cut else "")
