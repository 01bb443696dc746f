"""Walk a directory and record the state of each file (mode, size, times, digest), without git.

The number of files and the bytes that are read are limited; files near the root come first.
Symbolic links are recorded and never followed. `delegation.worktree.snapshot` handles repositories.
"""

from __future__ import annotations

import hashlib
import os
import stat
import threading
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from msgspec import Struct

from dragoman.client.services.worker_thread import check

MAX_ENTRIES: Final = 50_000
"""Files that are checked in one directory: under a second, and more than most projects have."""

HASHED_FILE_SIZE: Final = 1024 * 1024
"""Up to this size the contents of a file are hashed, so that a mere touch is not a change."""

HASHED_SIZE: Final = 64 * 1024 * 1024
"""Total bytes to read; a file beyond that is compared by size and times."""

CHECK_INTERVAL: Final = 512
"""Files between two checks of the stop event."""


class FileState(Struct, frozen=True, gc=False):
    """State of one file."""

    mode: int
    size: int
    modified_at: int
    """In nanoseconds, as the file system has it."""
    changed_at: int
    """When the file's entry was last changed, which no program can set."""
    inode: int
    digest: bytes = b""
    """Of the contents, or of a link's target; empty where it was not looked at."""


class FileStates(Struct, frozen=True):
    """States of the files of a directory, by path."""

    files: dict[str, FileState]
    complete: bool = True


def walk(
    folder: Path,
    stop: threading.Event,
    *,
    names: Iterable[str] = ("",),
    max_entries: int = MAX_ENTRIES,
    hashed_size: int = HASHED_SIZE,
) -> FileStates:
    """Record every file below `folder`, or below those of its entries that are named.

    Blocking; `stop` ends it. `.git` is left out: it changes with every git command.
    """
    found: dict[str, FileState] = {}
    complete = True
    left_size = hashed_size
    ahead = deque(names)
    while ahead:
        name = ahead.popleft()
        path = os.path.join(folder, name) if name else str(folder)
        try:
            info = os.lstat(path)
            if stat.S_ISDIR(info.st_mode):
                ahead.extend(
                    f"{name}/{entry}" if name else entry
                    for entry in sorted(os.listdir(path))
                    if entry != ".git"
                )
                continue
        except FileNotFoundError:
            continue
        except OSError:
            complete = False
            continue
        if len(found) >= max_entries:
            return FileStates(found, False)
        if len(found) % CHECK_INTERVAL == 0:
            check(stop)
        digest = b""
        if stat.S_ISLNK(info.st_mode) or info.st_size <= min(HASHED_FILE_SIZE, left_size):
            digest = _digest(path, info)
            left_size -= info.st_size
        found[name] = FileState(
            info.st_mode,
            info.st_size,
            info.st_mtime_ns,
            info.st_ctime_ns,
            info.st_ino,
            digest,
        )
    return FileStates(found, complete)


def same(before: FileState, after: FileState) -> bool:
    """Whether a file is unchanged: a new time on the same contents does not count."""
    if before == after:
        return True
    if before.mode != after.mode or before.size != after.size:
        return False
    return bool(before.digest) and before.digest == after.digest


def _digest(path: str, info: os.stat_result) -> bytes:
    try:
        if stat.S_ISLNK(info.st_mode):
            return os.fsencode(os.readlink(path))
        if not stat.S_ISREG(info.st_mode):
            return b""
        # If it has become a FIFO since lstat, opening it returns at once.
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
        fd = os.open(path, flags | getattr(os, "O_BINARY", 0))
        with os.fdopen(fd, "rb") as file:
            return hashlib.blake2b(file.read(HASHED_FILE_SIZE + 1), digest_size=16).digest()
    except OSError:
        return b""
