"""The sessions that scout remembers, one file each.

They are stored in the user's state directory, never in a workspace, as JSON lines: the first for
the session, then one appended per turn. An unreadable line is skipped: another process may be
writing it. The oldest files are removed when there are many.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from dragoman.client.folders import make_private
from dragoman.decoders import decode_typed
from dragoman.wire.messages import UNDECODABLE

MAX_SESSIONS: Final = 200
"""Maximum number of sessions to keep."""

MAX_FILE_SIZE: Final = 4 * 1024 * 1024
"""Maximum size of one session, in bytes: some hundred turns. Later ones are not remembered."""

MAX_ANSWER_SIZE: Final = 64 * 1024
"""Maximum number of characters of an answer to keep."""

PAGE_SIZE: Final = 50
"""Number of sessions per page of the list."""

VARIABLE: Final = "DRAGOMAN_STATE_HOME"

_ID: Final = re.compile(r"[0-9a-f]{8,64}")
"""The form of our ids. Anything else is not used as a file name."""


class Head(msgspec.Struct):
    """The first line of a session's file."""

    id: str
    cwd: str


class RememberedTurn(msgspec.Struct):
    """A stored turn of a session."""

    question: str
    answer: str
    answered: bool = True
    keep: bool = True
    """Whether the answer is worth saving. Replies about saving are not."""


class Remembered(msgspec.Struct):
    """A session with its turns."""

    id: str
    cwd: str
    title: str | None
    updated_at: float
    entries: list[RememberedTurn]


def state_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Return the directory of scout's stored sessions, inside dragoman's state directory, whose
    path the environment variable `VARIABLE` can set."""
    environ = os.environ if environ is None else environ
    given = environ.get(VARIABLE)
    if given:
        base = Path(os.path.abspath(os.path.expanduser(given)))
    else:
        from platformdirs import PlatformDirs

        base = PlatformDirs("dragoman", appauthor=False).user_state_path
    return base / "scout"


def title_of(question: str) -> str:
    """Return the title of a session, from its first question."""
    words = " ".join(question.split())
    return words if len(words) <= 80 else f"{words[:79]}…"


class SessionFiles:
    """The files of all sessions. Blocking: call it in a thread if needed.

    Only `delete` raises because of the disk: a session that cannot be stored continues.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._given = folder

    @property
    def folder(self) -> Path:
        if self._given is None:
            self._given = state_folder()
        return self._given

    def begin(self, session_id: str, cwd: str) -> bool:
        """Store a new session. Returns False if it could not be stored."""
        try:
            make_private(self.folder)
        except OSError:
            return False
        self._prune()
        return self._append(session_id, Head(session_id, cwd), os.O_CREAT | os.O_EXCL)

    def add(self, session_id: str, entry: RememberedTurn) -> bool:
        """Store a turn. Returns False if it could not be stored."""
        short = msgspec.structs.replace(entry, answer=entry.answer[:MAX_ANSWER_SIZE])
        return self._append(session_id, short, 0)

    def load(self, session_id: str) -> Remembered | None:
        """Return a session with its turns; None if there is none with that id, or it cannot be
        read."""
        path = self._path(session_id)
        return None if path is None else self._read(path)

    def listed(self, cwd: str | None = None) -> list[Remembered]:
        """Return all sessions that can be read, or those of a directory, latest first."""
        found = [known for path in self._files() if (known := self._read(path)) is not None]
        if cwd is not None:
            wanted = os.path.normpath(cwd)
            found = [known for known in found if os.path.normpath(known.cwd) == wanted]
        return sorted(found, key=lambda known: (-known.updated_at, known.id))

    def delete(self, session_id: str) -> None:
        """Delete a session; an unknown one is not an error. Raises `OSError` if its file cannot be
        deleted."""
        path = self._path(session_id)
        if path is not None:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                path.unlink()

    def _path(self, session_id: str) -> Path | None:
        return self.folder / f"{session_id}.jsonl" if _ID.fullmatch(session_id) else None

    def _files(self) -> list[Path]:
        try:
            return [path for path in self.folder.iterdir() if path.suffix == ".jsonl"]
        except OSError:
            return []

    def _append(self, session_id: str, line: Head | RememberedTurn, flags: int) -> bool:
        path = self._path(session_id)
        if path is None:
            return False
        data = msgspec.json.encode(line) + b"\n"
        try:
            fd = os.open(path, os.O_WRONLY | os.O_APPEND | flags, 0o600)
        except OSError:
            return False
        try:
            if os.fstat(fd).st_size + len(data) > MAX_FILE_SIZE:
                return False
            # One call, so that lines of two processes do not mix.
            return os.write(fd, data) == len(data)
        except OSError:
            return False
        finally:
            os.close(fd)

    def _read(self, path: Path) -> Remembered | None:
        try:
            with path.open("rb") as file:
                data = file.read(MAX_FILE_SIZE + 1)
                updated_at = os.fstat(file.fileno()).st_mtime
        except OSError:
            return None
        first, *rest = data.split(b"\n")
        try:
            head = decode_typed(first, Head)
        except UNDECODABLE:
            return None
        if head.id != path.stem:
            return None
        entries: list[RememberedTurn] = []
        for line in rest:
            with contextlib.suppress(*UNDECODABLE):
                entries.append(decode_typed(line, RememberedTurn))
        title = title_of(entries[0].question) if entries else None
        return Remembered(head.id, head.cwd, title, updated_at, entries)

    def _prune(self) -> None:
        """Remove the oldest sessions to make room for one more."""
        files = self._files()
        if len(files) < MAX_SESSIONS:
            return
        aged: list[tuple[float, Path]] = []
        for path in files:
            with contextlib.suppress(OSError):
                aged.append((path.stat().st_mtime, path))
        aged.sort()
        for _, path in aged[: len(aged) - MAX_SESSIONS + 1]:
            with contextlib.suppress(OSError):
                path.unlink()


def timestamp(at: float) -> str:
    """Return a Unix time in the format of the protocol: ISO 8601, in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
