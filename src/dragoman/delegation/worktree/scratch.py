"""Temporary directories for the files that git reads and writes, and removal of abandoned ones.

Each contains a lock that its process holds. Before a new one is created, those of killed processes
are removed: directories of this user with our names whose lock is free. `sweep` removes worktrees.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal, TypeAlias

from dragoman.broker.lock import HeldLock, try_lock
from dragoman.client.folders import make_private
from dragoman.delegation.worktree.records import remove_tree

Purpose: TypeAlias = Literal["branch", "copy", "diff", "fleet", "look", "pack", "patch", "send"]

LOCK: Final = "owner.lock"

FILES: Final = "files"

UNLOCKED_AGE: Final = 86400.0
"""Seconds after which a directory without a lock is removed. Its owner was killed before it created
the lock, or was a version of dragoman that created none; nothing that uses one takes a day."""

_NAMES: Final = re.compile(r"dragoman-(?:branch|copy|diff|fleet|look|pack|patch|send)-\w+")


class ScratchFolder:
    """A new temporary directory, private to this user."""

    def __init__(self, purpose: Purpose) -> None:
        sweep_scratch()
        self._home, self._lock = _new(f"dragoman-{purpose}-")
        self.path = self._home / FILES
        try:
            make_private(self.path)
        except BaseException:
            self.remove()
            raise

    def remove(self) -> None:
        """Remove the directory with everything in it."""
        if self._lock is not None:
            # Without its lock, the directory is too new for another process to remove it.
            self._lock.release()
        remove_tree(self._home)


@contextlib.contextmanager
def scratch_folder(purpose: Purpose) -> Iterator[Path]:
    """Context manager: create a temporary directory, and remove it at the end."""
    scratch = ScratchFolder(purpose)
    try:
        yield scratch.path
    finally:
        scratch.remove()


def _new(prefix: str) -> tuple[Path, HeldLock | None]:
    """Create a directory with a held lock; without one on a file system that has no locks."""
    while True:
        home = Path(tempfile.mkdtemp(prefix=prefix))
        try:
            lock = try_lock(home / LOCK)
        except FileNotFoundError:
            lock = None
        except OSError:
            return home, None
        except BaseException:
            remove_tree(home)
            raise
        if lock is not None:
            return home, lock
        # Another process took the lock as soon as its file existed, and removes the directory.


def sweep_scratch() -> None:
    """Remove the temporary directories of processes that were killed."""
    if not hasattr(os, "getuid"):
        # Without user ids, the owner of a directory cannot be determined.
        return
    with contextlib.suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if _NAMES.fullmatch(entry.name):
                with contextlib.suppress(OSError):
                    _remove_abandoned(Path(entry.path))


def _remove_abandoned(home: Path) -> None:
    info = home.lstat()
    # Only this user can write into such a directory, so nothing in it is replaced meanwhile.
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid() or info.st_mode & 0o077:
        return
    if not os.path.lexists(home / LOCK):
        if time.time() - info.st_mtime > UNLOCKED_AGE:
            remove_tree(home)
        return
    lock = try_lock(home / LOCK)
    if lock is not None:
        with lock:
            remove_tree(home)
