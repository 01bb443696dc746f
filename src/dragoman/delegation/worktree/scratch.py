"""Temporary directories for the files that git reads and writes, and removal of abandoned ones.

Each contains a lock that its process holds. Before a new one is created, those of killed processes
are removed: directories of this user with our names whose lock is free. All of this is done in
threads, because removing a large directory takes seconds. `sweep` removes worktrees.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import stat
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final, Literal, TypeAlias

from dragoman.broker.lock import HeldLock, try_lock
from dragoman.client.folders import make_private
from dragoman.delegation.worktree.records import remove_tree
from dragoman.errors import FileFailed
from dragoman.rpc.tasks import finish, in_thread

log = logging.getLogger(__name__)

Purpose: TypeAlias = Literal["branch", "copy", "diff", "fleet", "look", "pack", "patch", "send"]

LOCK: Final = "owner.lock"

FILES: Final = "files"

UNLOCKED_AGE: Final = 86400.0
"""Seconds after which a directory without a lock is removed. Its owner was killed before it created
the lock, or was a version of dragoman that created none; nothing that uses one takes a day."""

REMOVE_TIMEOUT: Final = 10.0
"""Maximum seconds to wait until directories are removed. The thread that removes them continues
after that."""

_NAMES: Final = re.compile(r"dragoman-(?:branch|copy|diff|fleet|look|pack|patch|send)-\w+")


@contextlib.asynccontextmanager
async def scratch_folder(purpose: Purpose) -> AsyncIterator[Path]:
    """Context manager: create a temporary directory, private to this user, and remove it at the
    end. Raises `FileFailed` if it cannot be created. If it cannot be removed in time, that is
    logged.
    """
    temporary = tempfile.gettempdir()
    await _without_failure("abandoned temporary files", temporary, sweep_scratch)
    created: list[_ScratchFolder] = []

    def create(_: threading.Event) -> None:
        try:
            created.append(_ScratchFolder(purpose))
        except OSError as error:
            where = str(error.filename or temporary)
            raise FileFailed(where, error.strerror or str(error), error.errno) from error

    try:
        await in_thread(temporary, create, changes_disk=True)
        yield created[0].path
    finally:
        for scratch in created:
            await finish(_without_failure("temporary files", str(scratch.path), scratch.remove))


async def _without_failure(what: str, path: str, remove: Callable[[threading.Event], None]) -> None:
    try:
        await in_thread(path, remove, changes_disk=True, timeout=REMOVE_TIMEOUT)
    except FileFailed as error:
        log.warning("%s could not be removed: %s", what, error)


class _ScratchFolder:
    def __init__(self, purpose: Purpose) -> None:
        self._home, self._lock = _new(f"dragoman-{purpose}-")
        self.path = self._home / FILES
        try:
            make_private(self.path)
        except BaseException:
            self.remove()
            raise

    def remove(self, _: object = None) -> None:
        if self._lock is not None:
            # Without its lock, the directory is too new for another process to remove it.
            self._lock.release()
        remove_tree(self._home)


def _new(prefix: str) -> tuple[Path, HeldLock | None]:
    """Create a directory and a lock in it that this process holds; the lock is None on a file
    system without locks."""
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


def sweep_scratch(stop: threading.Event) -> None:
    """Remove the temporary directories of processes that were killed, until `stop` is set."""
    if not hasattr(os, "getuid"):
        # Without user ids, the owner of a directory cannot be determined.
        return
    with contextlib.suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if stop.is_set():
                return
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
