"""Keep a record of each worktree and its owner process on disk; remove a worktree without git.

The record lets another process remove the worktree after its owner was killed. `isolation` creates
worktrees; `sweep` checks whether the owner is alive and saves the patch first.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from dragoman.client.folders import make_private
from dragoman.config.safe_files import write_whole
from dragoman.decoders import decode_typed
from dragoman.errors import FileFailed
from dragoman.rpc.tasks import finish, in_thread
from dragoman.transports.process.identity import ProcessIdentity
from dragoman.wire.messages import UNDECODABLE

log: Final = logging.getLogger(__name__)

RECORD: Final = "owner.json"
UNFINISHED: Final = ".new-"
"""Name prefix of a directory that has no record, and thus no worktree, yet."""

REMOVE_TIMEOUT: Final = 60.0
"""Seconds to wait for the removal of a worktree. A later sweep removes what is left."""

MAX_SIZE: Final = 1024 * 1024
"""Maximum size of a record, in bytes: a record has a few hundred per repository, so a larger file
is not a record."""


class Tree(Struct, frozen=True, kw_only=True):
    """One repository in a worktree: the workspace's own, or one nested in it."""

    top: str
    """Its directory in the workspace."""
    common_folder: str
    path: str
    """Its directory in the worktree."""
    git_folder: str = ""
    """Its git directory, recorded when its files were copied; empty until then, and for a
    repository that was created in the worktree later."""
    prefix: str = ""
    """Its path below the outermost repository, with a trailing slash; empty for the outermost."""
    base: str = ""
    """The tree hash of all files when the worktree was made; empty until it exists."""


class WorktreeRecord(Struct, frozen=True, kw_only=True):
    """The record of one worktree and of the process that owns it."""

    id: str
    workspace: str
    owner: ProcessIdentity
    trees: tuple[Tree, ...] = ()
    """The repositories, outermost first."""
    made_at: float = 0.0
    removing: bool = False
    """Whether its removal has begun. If so, its changes are saved or not needed, and the files that
    are left do not show them."""
    patch: str = ""
    """Path of the patch with its changes, if the next sweep is to report it."""


def make_folder(folder: Path, record: WorktreeRecord) -> Path:
    """Create the directory of a worktree together with its record, atomically, and return its
    path."""
    make_private(folder)
    fresh = Path(tempfile.mkdtemp(prefix=UNFINISHED, dir=folder))
    try:
        write_whole(fresh / RECORD, msgspec.json.encode(record))
        made = folder / record.id
        os.rename(fresh, made)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    return made


def write_record(folder: Path, record: WorktreeRecord) -> None:
    """Replace a record atomically."""
    write_whole(folder / RECORD, msgspec.json.encode(record))


def read_records(folder: Path) -> Iterator[tuple[Path, WorktreeRecord | None]]:
    """Yield the directory of each worktree with its record, or with None if the record is
    unreadable."""
    try:
        entries = sorted(path for path in folder.iterdir() if path.is_dir())
    except OSError:
        return
    for entry in entries:
        yield entry, read_record(entry)


def read_record(folder: Path) -> WorktreeRecord | None:
    """Return the record in a worktree's directory, or None if it is missing or unreadable."""
    try:
        with (folder / RECORD).open("rb") as file:
            return decode_typed(file.read(MAX_SIZE), WorktreeRecord)
    except (OSError, *UNDECODABLE):
        return None


def remove(folder: Path, record: WorktreeRecord) -> bool:
    """Remove a worktree from its repositories and from disk. Returns True if nothing is left.

    Blocking. The record says that the removal has begun, and is removed last, so that an
    interrupted removal is repeated.
    """
    # Without room on the disk for the new record, the removal makes some.
    with contextlib.suppress(OSError):
        write_record(folder, msgspec.structs.replace(record, removing=True))
    for tree in reversed(record.trees):
        _forget(tree)
        remove_tree(Path(tree.path))
    for entry in _entries(folder):
        if entry.name != RECORD:
            remove_tree(entry)
    if [entry.name for entry in _entries(folder)] in ([], [RECORD]):
        shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


async def remove_now(folder: Path, record: WorktreeRecord) -> bool:
    """Remove a worktree in a thread, even if the caller is cancelled. If something is left, logs
    that and returns False; a sweep tries again."""
    # Every later delegation tries again, and must not warn each time.
    level = logging.DEBUG if record.removing else logging.WARNING
    try:
        whole = await finish(
            in_thread(
                str(folder),
                lambda _: remove(folder, record),
                changes_disk=True,
                timeout=REMOVE_TIMEOUT,
            )
        )
    except (FileFailed, OSError) as error:
        log.log(level, "the worktree cannot be removed: %s", error)
        return False
    if not whole:
        log.log(level, "the worktree %s could not be removed completely", folder)
    return whole


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _forget(tree: Tree) -> None:
    """Remove a worktree from its repository's list of worktrees.

    Only this path's entry is removed: `git worktree prune` would also remove the user's worktrees
    on disks that are not mounted at the moment.
    """
    worktrees = Path(tree.common_folder) / "worktrees"
    wanted = os.path.join(tree.path, ".git")
    for entry in _entries(worktrees):
        try:
            points_to = os.fsdecode((entry / "gitdir").read_bytes()).rstrip("\n")
        except OSError:
            # git was killed before it wrote this path. The name is unique to this worktree.
            points_to = wanted if entry.name == os.path.basename(tree.path) else ""
        if points_to == wanted:
            remove_tree(entry)
    with contextlib.suppress(OSError):
        worktrees.rmdir()  # As git does when the last worktree is removed.


def remove_tree(path: Path) -> None:
    """Remove a file or a directory, even if it is write-protected. What cannot be removed stays."""

    def retry(function: Callable[..., Any], name: str, _: Any) -> None:
        with contextlib.suppress(OSError):
            os.chmod(os.path.dirname(name), stat.S_IRWXU)
            if not os.path.islink(name):
                os.chmod(name, stat.S_IRWXU)
            function(name)

    if path.is_symlink() or path.is_file():
        with contextlib.suppress(OSError):
            path.unlink()
        return
    shutil.rmtree(path, onerror=retry)
    if path.exists():
        # A directory that could not be opened was skipped with its contents.
        shutil.rmtree(path, ignore_errors=True)
