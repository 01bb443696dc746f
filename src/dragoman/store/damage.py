"""Detect damaged SQLite files and set them aside under another name.

`find_damage` is the full check of ``dragoman doctor``. Opens files only for reading;
`store.database` creates the new file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dragoman.transports.file_lock import wait_for_lock

LOCK_TIMEOUT: Final = 10.0
"""Seconds to wait for another process that sets a file aside, which takes a few renames."""

MARK: Final = ".damaged-"
"""Precedes the time in the name of a file that was set aside."""

STAMP_FORMAT: Final = "%Y%m%d-%H%M%S"

COMPANIONS: Final = ("-wal", "-shm")
"""Suffixes of the files that SQLite keeps next to a database."""

SHOWN: Final = 3
"""Maximum number of problems reported per file."""

_CODES: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_PRIMARY: Final = 0xFF
_UNDECODABLE: Final = "Could not decode to UTF-8"


def is_damage(error: Exception) -> bool:
    """Return whether an error means that the file's content is not what was written."""
    if not isinstance(error, sqlite3.Error):
        return False
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & _PRIMARY
    # Text that is not UTF-8 is detected by Python's sqlite3 module, which sets no error code for
    # it.
    return code in _CODES or str(error).startswith(_UNDECODABLE)


def identity_of(path: Path) -> tuple[int, int] | None:
    """Return an identity that distinguishes a file from another one at the same path; None if the
    file cannot be examined."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def set_aside(path: Path, identity: tuple[int, int] | None) -> Path | None:
    """Move a damaged file and its companions aside. Returns the new path, or None if the file at
    `path` is no longer the one with this `identity`, because another process was faster. Raises
    `OSError`."""
    with _alone_in(path.parent):
        return _set_aside(path, identity)


def _set_aside(path: Path, identity: tuple[int, int] | None) -> Path | None:
    if identity is None or identity_of(path) != identity:
        return None
    stamp = time.strftime(STAMP_FORMAT)
    target = path.with_name(f"{path.name}{MARK}{stamp}")
    number = 1
    while os.path.exists(target):
        number += 1
        target = path.with_name(f"{path.name}{MARK}{stamp}-{number}")
    # The log is moved first: SQLite would apply an old log to a new file next to it.
    for suffix in COMPANIONS:
        companion = path.with_name(path.name + suffix)
        with contextlib.suppress(FileNotFoundError):
            os.replace(companion, target.with_name(target.name + suffix))
    os.replace(path, target)
    return target


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Context manager: let only one process at a time set files of a directory aside; a second one
    would move the new file.

    Not on Windows, where a file that another process has open cannot be moved.
    """
    if sys.platform == "win32":
        yield
        return
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if not wait_for_lock(fd, timeout=LOCK_TIMEOUT):
            raise TimeoutError(errno.ETIMEDOUT, f"another process holds the lock of {folder}")
        yield
    finally:
        os.close(fd)


def set_aside_at(path: Path) -> float:
    """Return the time in the name of a file that was set aside. If there is no valid time in it,
    return the file's mtime, which may be much earlier."""
    stamp = path.name.rpartition(MARK)[2][: len("YYYYmmdd-HHMMSS")]
    try:
        return time.mktime(time.strptime(stamp, STAMP_FORMAT))
    except (ValueError, OverflowError):
        return path.stat().st_mtime


def aside_of(path: Path) -> list[Path]:
    """Return the files set aside from this path, the oldest first; none if the directory cannot be
    read."""
    try:
        found = [
            each
            for each in path.parent.iterdir()
            if each.name.startswith(path.name + MARK) and not each.name.endswith(COMPANIONS)
        ]
    except OSError:
        return []
    return sorted(found)


def find_damage(path: Path) -> list[str]:
    """Return the problems found in a file, at most `SHOWN`. Empty if there are none, if there is no
    file, or if it cannot be read for a reason other than damage. Reads the whole file and changes
    nothing."""
    if not os.path.isfile(path):
        return []
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    except sqlite3.Error as error:
        return [str(error)]
    try:
        found = [
            str(problem)
            for (problem,) in connection.execute(f"PRAGMA quick_check({SHOWN})")
            if problem != "ok"
        ]
        if found:
            return found
        # The check above does not verify that text is valid UTF-8.
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        for (table,) in tables.fetchall():
            texts = [
                f'"{name}"'
                for _, name, kind, *_ in connection.execute(f'PRAGMA table_info("{table}")')
                if kind == "TEXT"
            ]
            if texts:
                for _ in connection.execute(f'SELECT {", ".join(texts)} FROM "{table}"'):
                    pass
    except sqlite3.Error as error:
        # A lock held by another process or an I/O error is not damage.
        return [str(error)] if is_damage(error) else []
    finally:
        connection.close()
    return []
