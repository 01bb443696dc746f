"""Find the files that a turn changed in a workspace, and those that it was not allowed to change.

Cheap enough for every turn: it compares names, sizes and times without reading contents. git is run
only if something differs, to drop ignored files. `delegation.worktree.snapshot` is the thorough
version for delegated work.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct

from dragoman.catalogue.enforcement import unapproved
from dragoman.client.services.worker_thread import in_thread
from dragoman.errors import SpawnError
from dragoman.policy.approver import Approver
from dragoman.runs import file_states
from dragoman.runs.file_states import FileStates

MAX_FILES: Final = 8_000
"""Files that are checked, those near the root first: 0.2 s at most. Deeper ones are not seen."""

MAX_NAMED: Final = 50
"""Changed files that are listed. git checks each of them for being ignored."""


class ChangeWatch(Struct, frozen=True, kw_only=True):
    """A workspace before a turn."""

    folder: str
    marks: FileStates

    @classmethod
    async def take(cls, workspace: Path) -> ChangeWatch:
        folder = _real(workspace)
        return cls(folder=folder, marks=await _walk(folder))

    async def changed(self) -> tuple[str, ...]:
        """The files that differ now, relative to the workspace, without those that git ignores."""
        before, after = self.marks, await _walk(self.folder)
        found = [
            name
            for name in sorted(before.files.keys() | after.files.keys())
            if _differs(name, before, after)
        ]
        found = without_own(self.folder, found)
        return tuple(await self._without_ignored(found)) if found else ()

    async def _without_ignored(self, names: list[str]) -> list[str]:
        # Not at the top: most turns change nothing, and git takes a while to load.
        from dragoman.runs import git

        try:
            repository, _ = await git.find_repository(Path(self.folder))
            if repository is None:
                return names[:MAX_NAMED]
            return [
                name
                for name in names[:MAX_NAMED]
                if not await git.is_ignored(repository, Path(self.folder) / name)
            ]
        except SpawnError:
            return names[:MAX_NAMED]


class ViolationWatch(Struct, frozen=True, kw_only=True):
    """A workspace before a turn, and the answers to the requests before it."""

    before: ChangeWatch
    approver: Approver
    workspace: Path
    ruled: int
    """How many requests were answered before the turn."""

    @classmethod
    async def take(cls, workspace: Path, approver: Approver) -> ViolationWatch:
        before = await ChangeWatch.take(workspace)
        ruled = len(approver.rulings)
        return cls(before=before, approver=approver, workspace=workspace, ruled=ruled)

    async def violations(self) -> tuple[str, ...]:
        """The files that have changed although no request for that was allowed."""
        rulings = self.approver.rulings
        return unapproved(
            await self.before.changed(),
            rulings[self.ruled :],
            workspace=self.workspace,
            earlier=rulings[: self.ruled],
        )


def without_own(folder: str, names: Iterable[str]) -> list[str]:
    """The files without those that this process has open itself, such as its output or a trace."""
    own = {(info.st_dev, info.st_ino) for info in _open_files()}
    found = []
    for name in names:
        try:
            info = os.lstat(os.path.join(folder, name))
        except OSError:
            found.append(name)
            continue
        if (info.st_dev, info.st_ino) not in own:
            found.append(name)
    return found


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
        return not file_states.same(old, new)
    # It may lie beyond the limit of the walk.
    return after.complete if new is None else before.complete


async def _walk(folder: str) -> FileStates:
    def walk(stop: threading.Event) -> FileStates:
        return file_states.walk(Path(folder), stop, max_entries=MAX_FILES, hashed_size=0)

    return await in_thread(folder, walk)
