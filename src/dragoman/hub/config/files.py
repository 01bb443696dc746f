"""Reading and writing small files so that nobody is surprised.

Owns three promises: a file is read once, as bytes, and only if it is an ordinary file of a sane
size; a write replaces it whole or not at all; two writers take turns. It does not know what is in
the files.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from dragoman.errors import ConfigInvalid, DragomanError, FileFailed

MAX_FILE_SIZE: Final = 1024 * 1024
"""No settings are larger; a file of gigabytes in a checkout shall not be read into memory."""

LOCK_TIMEOUT: Final = 5.0
"""Seconds to wait for another writer. A write takes milliseconds, so this one hangs."""

LOCK_INTERVAL: Final = 0.02


def read_file(
    path: Path,
    *,
    max_size: int = MAX_FILE_SIZE,
    invalid: Callable[[str, str], DragomanError] = ConfigInvalid,
) -> bytes | None:
    """The bytes of an ordinary file; None if there is none. `invalid` makes the error for another.

    Opened without blocking: a named pipe in a checkout would hold us for ever.
    """
    try:
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise invalid(str(path), f"it cannot be read: {error.strerror}") from error
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise invalid(str(path), "it is no ordinary file")
        with os.fdopen(fd, "rb", closefd=False) as file:
            data = file.read(max_size + 1)
    except OSError as error:
        raise invalid(str(path), f"it cannot be read: {error.strerror}") from error
    finally:
        os.close(fd)
    if len(data) > max_size:
        raise invalid(str(path), f"it has more than {max_size} bytes")
    return data


def write_file(path: Path, data: bytes, *, mode: int | None = None) -> None:
    """Replace a file whole, or leave it as it was. Its folder is made if need be.

    A link is followed, so that the file it leads to is replaced and not the link. The file keeps
    its mode unless one is given; a new one is for its owner alone.
    """
    target = Path(os.path.realpath(path))
    try:
        if mode is None:
            try:
                mode = stat.S_IMODE(os.stat(target).st_mode)
            except FileNotFoundError:
                mode = 0o600
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh = target.with_name(f".{target.name}.{os.urandom(6).hex()}")
        fd = os.open(
            fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600
        )
        try:
            with os.fdopen(fd, "wb") as file:
                if hasattr(os, "fchmod"):
                    os.fchmod(fd, mode)
                file.write(data)
                file.flush()
                os.fsync(fd)
            os.replace(fresh, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(fresh)
            raise
    except OSError as error:
        raise FileFailed(str(path), error.strerror or str(error), error.errno) from error


@contextlib.contextmanager
def locked(path: Path, *, timeout: float = LOCK_TIMEOUT) -> Iterator[None]:
    """Be the only one who changes a file. The lock is a file beside it and stays there.

    The lock belongs to the open file, so the death of its holder releases it.
    """
    target = Path(os.path.realpath(path))
    lock = target.with_name(f".{target.name}.lock")
    try:
        lock.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fd = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise FileFailed(str(lock), error.strerror or str(error), error.errno) from error
    try:
        deadline = time.monotonic() + timeout
        while not _try_lock(fd):
            if time.monotonic() >= deadline:
                raise FileFailed(str(path), f"another program has changed it for {timeout:g} s")
            time.sleep(LOCK_INTERVAL)
        yield
    finally:
        os.close(fd)


def _try_lock(fd: int) -> bool:
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
