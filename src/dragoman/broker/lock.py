"""Lock files: try, hold, release, and check whether a living process holds one.

The operating system holds the lock (flock, msvcrt), so it is released however the process ends; a
file without a holder means nothing. The text in the file identifies the last holder. A file is
removed only while its lock is held, and `try_lock` checks afterwards that the path still names the
locked file: otherwise two processes could hold "the same" lock on two files.

An open console that can answer questions is also marked by a lock that it holds.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import msgspec

from dragoman.decoders import decode_typed
from dragoman.transports.file_lock import RETRY_INTERVAL, take_lock
from dragoman.transports.process.identity import ProcessIdentity, own_identity
from dragoman.wire.messages import UNDECODABLE

if TYPE_CHECKING:
    from dragoman.broker.endpoint import Endpoint
    from dragoman.paths import Paths

MAX_TEXT_SIZE: Final = 4096
"""Maximum number of bytes read from the text that the lock's holder wrote."""


class HeldLock:
    """A lock that this process holds until it is released, or until the process ends."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._fd = fd

    @property
    def held(self) -> bool:
        return self._fd >= 0

    @property
    def in_place(self) -> bool:
        """Whether the path still names the file. Otherwise other processes cannot see that the lock
        is held."""
        return self._fd >= 0 and _is_file(self._fd, self.path)

    def fileno(self) -> int:
        """Return the descriptor of the locked file. A child process that inherits it also holds the
        lock, until the child ends. If a child may still hold it, call `release` with
        ``remove=False``."""
        return self._fd

    def write(self, text: bytes) -> None:
        """Replace the text in the file, by which others identify the holder."""
        os.ftruncate(self._fd, 0)
        os.lseek(self._fd, 0, os.SEEK_SET)
        os.write(self._fd, text)

    def release(self, *, remove: bool = True) -> None:
        """Release the lock. With `remove`, also remove the file if the path still names it.
        Idempotent."""
        if self._fd < 0:
            return
        remove = remove and self.in_place
        fd, self._fd = self._fd, -1
        try:
            if remove and sys.platform != "win32":
                with contextlib.suppress(OSError):
                    os.unlink(self.path)
        finally:
            # Closing releases the lock too.
            os.close(fd)
        if remove and sys.platform == "win32":
            # On Windows an open file cannot be removed. A file that another process has locked
            # since then stays.
            with contextlib.suppress(OSError):
                os.unlink(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def try_lock(path: Path) -> HeldLock | None:
    """Take the lock without waiting, or return None if it is held. Raises `OSError` if the file
    cannot be created or opened."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        try:
            if not take_lock(fd):
                os.close(fd)
                return None
            if _is_file(fd, path):
                return HeldLock(path, fd)
        except BaseException:
            os.close(fd)
            raise
        # The previous holder removed the file between our open and our lock: this lock is on a
        # deleted file.
        os.close(fd)


async def lock_within(path: Path, *, timeout: float) -> HeldLock | None:
    """Take the lock, or return None if it is still held after `timeout` seconds. Raises `OSError`
    if the file cannot be created or opened."""
    give_up_at = time.monotonic() + timeout
    while True:
        lock = try_lock(path)
        if lock is not None or time.monotonic() >= give_up_at:
            return lock
        await asyncio.sleep(RETRY_INTERVAL)


def is_held(path: Path) -> bool:
    """Return whether a living process holds the lock. Raises `OSError` if the file exists but
    cannot be opened."""
    try:
        fd = os.open(path, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
    except FileNotFoundError:
        return False
    try:
        return not take_lock(fd, shared=True)
    finally:
        os.close(fd)


def read_text(path: Path) -> bytes:
    """Return the text that the last holder wrote; empty if the file cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_TEXT_SIZE)
    except OSError:
        return b""


def _is_file(fd: int, path: Path) -> bool:
    try:
        found = os.stat(path, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return False
    return os.path.samestat(os.fstat(fd), found)


# -- the holder of a broker's name


def holder_of(text: bytes) -> ProcessIdentity | None:
    """Return the process whose identity is the text of a lock file, or None if the text is not an
    identity."""
    try:
        return decode_typed(text, ProcessIdentity)
    except UNDECODABLE:
        return None


async def lock_for_life(endpoint: Endpoint, *, timeout: float) -> HeldLock | None:
    """Take the lock of a broker's name for this process, and write the process's identity to it.

    Returns None if another process still holds the lock after `timeout` seconds.
    """
    lock = await lock_within(endpoint.lock, timeout=timeout)
    if lock is not None:
        lock.write(msgspec.json.encode(own_identity()))
    return lock


# -- consoles


def mark_console(paths: Paths) -> HeldLock | None:
    """Mark this process as a console that answers questions. Returns the lock, which the caller
    releases at the end, or None if it is held already. Raises `BrokerUnavailable` or `OSError` if
    the process cannot be marked."""
    from dragoman.broker.endpoint import consoles_folder, make_private

    folder = consoles_folder(paths.runtime)
    make_private(folder)
    return try_lock(folder / f"{os.getpid()}-{os.urandom(4).hex()}.lock")
