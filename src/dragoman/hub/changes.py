"""Files that are changed together: all of them, or none.

Owns the replacement of a file that belongs to somebody else, with its mode, its owner and the link
it is reached by, and the memory of what was there before. It does not know what is in the files.
Settings have their own, simpler writer in `hub.config.files`.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import secrets
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from dragoman.errors import FileFailed, UsageError
from dragoman.hub.config.files import read_file

NEW_FILE_MODE = 0o600


@dataclass(frozen=True, slots=True)
class Change:
    """One file, before and after. None: there was, or is, no file."""

    path: Path
    before: bytes | None
    after: bytes | None

    def diff(self) -> str:
        """The change as a unified diff, for people."""
        name = str(self.path)
        lines = difflib.unified_diff(
            _lines(self.before),
            _lines(self.after),
            "/dev/null" if self.before is None else name,
            "/dev/null" if self.after is None else name,
            lineterm="",
        )
        return "".join(f"{line}\n" for line in lines)


class Changes:
    """Changes of files, taken back if the block they are made in ends with an exception.

    ```
    with Changes() as changes:
        changes.write(path, data)
        check_everything()
    ```
    """

    def __init__(self) -> None:
        self._before: dict[Path, bytes | None] = {}

    def write(self, path: Path, data: bytes, *, expected: bytes | None = None) -> None:
        """Replace a file, or make it.

        `expected` is what the caller read; if somebody has changed the file since then, nothing is
        written.
        """
        current = self.watch(path)
        if expected is not None and current != expected:
            raise UsageError(f"{path} was changed by another program meanwhile; try again")
        if current != data:
            replace_file(path, data)

    def watch(self, path: Path) -> bytes | None:
        """Remember a file that is about to be changed by others; its content now."""
        current = read_file(path)
        self._before.setdefault(path, current)
        return current

    def made(self) -> list[Change]:
        """What is different now, file by file."""
        now = [Change(path, before, read_file(path)) for path, before in self._before.items()]
        return [change for change in now if change.before != change.after]

    def undo(self) -> None:
        """Put everything back, the last first; what cannot be put back is named at the end."""
        failed: list[str] = []
        for path, before in reversed(self._before.items()):
            try:
                if read_file(path) == before:
                    continue
                if before is None:
                    path.unlink(missing_ok=True)
                else:
                    replace_file(path, before)
            except (OSError, FileFailed, UsageError) as error:
                failed.append(f"{path} ({error})")
        self._before.clear()
        if failed:
            raise FileFailed(
                failed[0], "it could not be put back as it was; look at " + ", ".join(failed)
            )

    def __enter__(self) -> Changes:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # An interrupt takes the changes back as well as an error does.
        if error is not None:
            self.undo()


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file whole, or leave it as it was.

    A link is followed. The file keeps its mode and its owner; where the owner cannot be kept by
    replacing it (it is somebody else's, or has a second name), it is written in place.
    """
    target = Path(os.path.realpath(path))
    try:
        try:
            info = os.stat(target)
        except FileNotFoundError:
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            _replace(target, data, None)
            return
        if not os.access(target, os.W_OK):
            # Replacing would work, for that takes the right to write to the folder only.
            raise FileFailed(str(path), "it is read-only")
        if info.st_nlink > 1 or not _replace(target, data, info):
            _write_in_place(target, data)
    except OSError as error:
        raise FileFailed(str(path), error.strerror or str(error), error.errno) from error


def _replace(target: Path, data: bytes, info: os.stat_result | None) -> bool:
    """Put a fresh file in the place of another; False if that would change its owner."""
    fresh = target.with_name(f".{target.name}.{secrets.token_hex(6)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    fd = os.open(fresh, flags, NEW_FILE_MODE)
    try:
        with os.fdopen(fd, "wb") as file:
            if info is not None and not _dress(fd, info):
                os.unlink(fresh)
                return False
            file.write(data)
            file.flush()
            os.fsync(fd)
        os.replace(fresh, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(fresh)
        raise
    return True


def _dress(fd: int, info: os.stat_result) -> bool:
    """Give a fresh file the owner and the mode of the one it will replace."""
    if not hasattr(os, "fchown"):
        return True
    mine = os.fstat(fd)
    if (mine.st_uid, mine.st_gid) != (info.st_uid, info.st_gid):
        try:
            os.fchown(fd, info.st_uid, info.st_gid)
        except PermissionError:
            return False
    os.fchmod(fd, stat.S_IMODE(info.st_mode))
    return True


def _write_in_place(target: Path, data: bytes) -> None:
    with target.open("r+b") as file:
        file.write(data)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())


def show(changes: Iterable[Change]) -> str:
    """Several changes as one diff."""
    return "".join(change.diff() for change in changes)


def _lines(data: bytes | None) -> list[str]:
    """Lines for a diff. Line ends other than a newline stay visible as they are."""
    if data is None:
        return []
    lines = data.decode("utf-8", "replace").split("\n")
    if lines[-1]:
        lines[-1] += "\n\\ No newline at end of file"
    else:
        lines.pop()
    return lines
