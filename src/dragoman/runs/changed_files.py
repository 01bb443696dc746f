"""Find the files that a turn changed in a workspace, and those that it was not allowed to change.

Cheap enough for every turn: it compares names, sizes and times without reading contents. git is run
only if something differs, to drop ignored files. `walk` records the states of files without git;
the number of files and the bytes that are read are limited, files near the root come first, and
symbolic links are never followed. `delegation.worktree.snapshot` is the thorough version for
delegated work.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import os
import stat
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct

from dragoman.catalogue.enforcement import unapproved
from dragoman.errors import SpawnError
from dragoman.events.parts import FileChange
from dragoman.paths import find_paths
from dragoman.policy.approver import Approver
from dragoman.rpc.tasks import check, in_thread

MAX_ENTRIES: Final = 50_000
"""Maximum number of files checked below one directory, and of directories read. Checking them takes
less than a second, and most projects have fewer."""

HASHED_FILE_SIZE: Final = 1024 * 1024
"""Files of at most this many bytes are hashed, so that a mere touch is not a change."""

HASHED_SIZE: Final = 64 * 1024 * 1024
"""Maximum total number of bytes to hash; further files are compared by size and times."""

CHECK_INTERVAL: Final = 512
"""Number of files and directories between two checks of the stop event."""


class FileState(Struct, frozen=True, gc=False):
    """State of one file."""

    mode: int
    size: int
    modified_at: int
    """Modification time in nanoseconds, from the file system."""
    changed_at: int
    """The inode change time, which no program can set."""
    inode: int
    digest: bytes = b""
    """Hash of the contents, or of a link's target; empty if it was not read."""


class FileStates(Struct, frozen=True):
    """States of the files below a directory, by path. `complete` is False if some were left out."""

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
    """Return the states of all files below `folder`; with `names`, only of these entries and of all
    files below them.

    Blocks. If `stop` is set meanwhile, it raises `rpc.tasks.Stopped`. `.git` is left out because it
    changes with every git command.
    """
    found: dict[str, FileState] = {}
    complete = True
    left_size = hashed_size
    folders = 0
    ahead = deque(names)
    for visited in itertools.count():
        if not ahead:
            break
        if visited % CHECK_INTERVAL == 0:
            check(stop)
        name = ahead.popleft()
        path = os.path.join(folder, name) if name else str(folder)
        try:
            info = os.lstat(path)
            if stat.S_ISDIR(info.st_mode):
                folders += 1
                if folders > max_entries:
                    complete = False
                    continue
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
    """Return whether a file is unchanged.

    A new time does not count as a change if the contents were read and are the same.
    """
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
        # If the file has become a FIFO since lstat, opening it returns at once.
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
        fd = os.open(path, flags | getattr(os, "O_BINARY", 0))
        with os.fdopen(fd, "rb") as file:
            return hashlib.blake2b(file.read(HASHED_FILE_SIZE + 1), digest_size=16).digest()
    except OSError:
        return b""


MAX_FILES: Final = 8_000
"""Maximum number of files to check, and of directories to read. Checking them takes at most 0.2 s.
Files near the root come first, deeper ones are skipped."""

MAX_NAMED: Final = 50
"""Maximum number of changed files listed. git checks each of them for being ignored."""

IGNORED_TIMEOUT: Final = 30.0
"""Timeout in seconds for git to check which of the changed files it ignores, which takes less than
a second. On a dead mount, or if an ignore file is a named pipe, each check would hang."""


class ChangeWatch(Struct, frozen=True, kw_only=True):
    """The state of a workspace before a turn."""

    folder: str
    marks: FileStates

    @classmethod
    async def take(cls, workspace: Path) -> ChangeWatch:
        folder = _real(workspace)
        return cls(folder=folder, marks=await _walk(folder))

    async def changed(self) -> tuple[str, ...]:
        """Return the files that have changed since, relative to the workspace, without those that
        git ignores. Of more than `MAX_NAMED` files, only the first are checked and returned."""
        before, after = self.marks, await _walk(self.folder)
        found = [
            name
            for name in sorted(before.files.keys() | after.files.keys())
            if _differs(name, before, after)
        ]
        found = without_own(self.folder, found)
        return tuple(await self._without_ignored(found)) if found else ()

    async def _without_ignored(self, names: list[str]) -> list[str]:
        # Imported here: most turns change nothing, and git takes a while to load.
        from dragoman.runs import git

        kept: list[str] = []
        left = names[:MAX_NAMED]
        with contextlib.suppress(SpawnError, TimeoutError):
            async with asyncio.timeout(IGNORED_TIMEOUT):
                repository, _ = await git.find_repository(Path(self.folder))
                while left and repository is not None:
                    if not await git.is_ignored(repository, Path(self.folder) / left[0]):
                        kept.append(left[0])
                    del left[0]
        return [*kept, *left]


class ViolationWatch(Struct, frozen=True, kw_only=True):
    """Records the state of a workspace before a turn and the answers given until then, to detect
    changes that were not allowed."""

    before: ChangeWatch
    approver: Approver
    workspace: Path
    ruled: int
    """Number of requests answered before the turn."""

    @classmethod
    async def take(cls, workspace: Path, approver: Approver) -> ViolationWatch:
        before = await ChangeWatch.take(workspace)
        ruled = approver.dropped + len(approver.rulings)
        return cls(before=before, approver=approver, workspace=workspace, ruled=ruled)

    async def violations(self) -> tuple[str, ...]:
        """Return the files that changed although no request to change them was granted. None are
        returned if an answer of the turn is no longer known: it may have granted the change."""
        changed = await self.before.changed()
        rulings = self.approver.rulings
        earlier = self.ruled - self.approver.dropped
        if earlier < 0:
            return ()
        return unapproved(
            changed,
            rulings[earlier:],
            workspace=self.workspace,
            earlier=rulings[:earlier],
        )


def without_own(folder: str, names: Iterable[str]) -> list[str]:
    """Return the files without those that this process has open, such as its output or a trace, and
    without those that `outside_own_folders` leaves out."""
    own = {(info.st_dev, info.st_ino) for info in _open_files()}
    found = []
    for name in outside_own_folders(folder, names):
        try:
            info = os.lstat(os.path.join(folder, name))
        except OSError:
            found.append(name)
            continue
        if (info.st_dev, info.st_ino) not in own:
            found.append(name)
    return found


def outside_own_folders(folder: str, names: Iterable[str]) -> list[str]:
    """Return the files without those in dragoman's state, cache and runtime directories. A
    workspace such as the home directory may contain them, and a broker writes there in every
    turn."""
    paths = find_paths()
    top = os.path.join(os.path.realpath(folder), "")
    own = tuple(
        os.path.join(os.path.realpath(each), "").removeprefix(top)
        for each in (paths.state, paths.cache, paths.runtime)
        if os.path.realpath(each).startswith(top)
    )
    return [name for name in names if not name.startswith(own)]


def by_others(files: tuple[FileChange, ...], workspace: Path) -> tuple[FileChange, ...]:
    """Return the changes of files outside dragoman's own directories."""
    kept = set(outside_own_folders(str(workspace), [one.path for one in files]))
    return tuple(one for one in files if one.path in kept)


def _real(folder: Path) -> str:
    return os.path.realpath(folder)


def _open_files() -> Iterator[os.stat_result]:
    try:
        numbers = [int(name) for name in os.listdir("/proc/self/fd")]
    except (OSError, ValueError):
        numbers = [0, 1, 2]
    for number in numbers:
        with contextlib.suppress(OSError):
            yield os.fstat(number)


def _differs(name: str, before: FileStates, after: FileStates) -> bool:
    old, new = before.files.get(name), after.files.get(name)
    if old is not None and new is not None:
        return not same(old, new)
    # The file is missing in one of the walks. That is a change only if this walk was complete:
    # otherwise the file may just be beyond its limit.
    return after.complete if new is None else before.complete


async def _walk(folder: str) -> FileStates:
    def work(stop: threading.Event) -> FileStates:
        return walk(Path(folder), stop, max_entries=MAX_FILES, hashed_size=0)

    return await in_thread(folder, work)
