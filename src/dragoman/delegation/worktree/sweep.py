"""Remove the worktrees of killed processes, after saving their changes as patches.

Runs at the start of each delegation, under a lock. A worktree is removed only if its owner process
is known to be dead, and kept if that cannot be determined.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from dragoman.broker.lock import HeldLock, try_lock
from dragoman.config.safe_files import write_whole
from dragoman.delegation.worktree import records
from dragoman.delegation.worktree.patch import keep_patch, patch_of
from dragoman.delegation.worktree.records import UNFINISHED, WorktreeRecord
from dragoman.errors import DragomanError
from dragoman.transports.process.identity import ProcessState, state_of

LOCK: Final = ".sweeping"

REPORTED: Final = "left.txt"
"""File in a worktree's directory that says why it was not removed."""

UNFINISHED_AGE: Final = 3600.0
"""Seconds after which a directory without a record is removed. A process that is alive writes the
record at once."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Swept:
    """A worktree of a killed process. Its changes, if any, are saved."""

    id: str
    workspace: str
    patch: Path | None
    """The saved changes, if there were any."""


async def sweep(folder: Path, on_swept: Callable[[Swept], None]) -> None:
    """Remove every worktree whose owner is dead, after saving its changes in the directory
    `patches` next to `folder`. A worktree whose changes cannot be saved is kept. Does nothing if
    another process is sweeping.

    `on_swept` is called as soon as the changes in a worktree are saved, so that a caller that is
    cancelled later still knows the patch.
    """
    lock = _lock(folder)
    if lock is None:
        return
    try:
        for home, record in records.read_records(folder):
            if record is None:
                _remove_litter(home)
            elif state_of(record.owner) is ProcessState.DEAD:
                await _sweep_one(home, record, folder.parent / "patches", on_swept)
    finally:
        lock.release()


async def _sweep_one(
    home: Path, record: WorktreeRecord, patches: Path, on_swept: Callable[[Swept], None]
) -> None:
    if record.removing:
        if record.patch:
            # The process that saved it may have been killed before it reported it.
            on_swept(Swept(record.id, record.workspace, Path(record.patch)))
        await records.remove_now(home, msgspec.structs.replace(record, patch=""))
        return
    kept: Path | None = None
    if all(tree.base for tree in record.trees):
        # A worktree without a base was never completed, so it has no changes to save.
        try:
            data = await patch_of(record.trees)
            kept = keep_patch(patches, record.id, data) if data else None
        except OSError as error:
            # Such as a full disk for temporary files. A later sweep tries again.
            _report_once(home, error)
            return
        except DragomanError as error:
            if _is_there(record):
                _report_once(home, error)
                return
            # The worktree or its repository is gone: there is nothing to save.
    # Nothing is awaited in between, so a cancellation cannot lose the patch.
    on_swept(Swept(record.id, record.workspace, kept))
    if kept is not None:
        record = msgspec.structs.replace(record, patch=str(kept))
    await records.remove_now(home, record)


def _is_there(record: WorktreeRecord) -> bool:
    """Return whether the worktree and its repository still exist. The peer may have removed nested
    repositories, or the worktree's `.git` file."""
    outermost = record.trees[0]
    return Path(outermost.path).is_dir() and Path(outermost.common_folder).is_dir()


def _report_once(home: Path, error: Exception) -> None:
    """Log that a worktree is kept, once and not at every later sweep."""
    text = f"{home} is left as it is, because it cannot be read: {error}"
    if (home / REPORTED).exists():
        log.debug("%s", text)
        return
    log.warning("%s", text)
    with contextlib.suppress(OSError):
        write_whole(home / REPORTED, text.encode(errors="backslashreplace"))


def _lock(folder: Path) -> HeldLock | None:
    try:
        return try_lock(folder / LOCK) if folder.is_dir() else None
    except OSError:
        return None


def _remove_litter(home: Path) -> None:
    """Remove a directory that was never finished, once it is old: its owner was killed before it
    wrote the record."""
    try:
        old = time.time() - home.stat().st_mtime > UNFINISHED_AGE
    except OSError:
        return
    if home.name.startswith(UNFINISHED) and old:
        records.remove_tree(home)
