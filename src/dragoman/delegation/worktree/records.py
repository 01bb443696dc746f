"""Owner record of a worktree on disk, and removal of a worktree without git.

The record lets another process remove the worktree after its owner was killed. `isolation` creates
worktrees; `sweep` checks whether the owner is alive and saves the patch first.
"""

from __future__ import annotations

import contextlib
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
from dragoman.config.files import write_whole
from dragoman.transports.process.identity import ProcessIdentity

RECORD: Final = "owner.json"
UNFINISHED: Final = ".new-"
"""How the name of a folder begins that has no record yet, and so no worktree."""

MAX_SIZE: Final = 1024 * 1024
"""A record has some hundred bytes for each repository; what is larger is none."""


class Tree(Struct, frozen=True, kw_only=True):
    """One repository in a copy: the workspace's own, or one nested in it."""

    top: str
    """Its folder in the workspace."""
    common_folder: str
    path: str
    """Its folder in the copy."""
    git_folder: str = ""
    """Its own folder of git; empty for one that was made in the copy, which is not trusted."""
    prefix: str = ""
    """Where it lies below the outermost one, with a slash at the end; empty for that itself."""
    base: str = ""
    """The hash of all files as they were when the copy was made; empty until it is there."""


class WorktreeRecord(Struct, frozen=True, kw_only=True):
    """One copy, and the process that answers for it."""

    id: str
    workspace: str
    owner: ProcessIdentity
    trees: tuple[Tree, ...] = ()
    """The outermost first."""
    made_at: float = 0.0


def make_folder(folder: Path, record: WorktreeRecord) -> Path:
    """A folder for a copy, which is there with its record or not at all."""
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
    """Replace a record in one step."""
    write_whole(folder / RECORD, msgspec.json.encode(record))


def read_records(folder: Path) -> Iterator[tuple[Path, WorktreeRecord | None]]:
    """Every folder of a copy, with its record; None where there is none that can be read."""
    try:
        entries = sorted(path for path in folder.iterdir() if path.is_dir())
    except OSError:
        return
    for entry in entries:
        yield entry, _read_record(entry / RECORD)


def _read_record(path: Path) -> WorktreeRecord | None:
    try:
        with path.open("rb") as file:
            return msgspec.json.decode(file.read(MAX_SIZE), type=WorktreeRecord)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def remove(folder: Path, record: WorktreeRecord) -> bool:
    """Remove a copy from its repositories and from the disk; whether nothing is left of it.

    Blocking. The record goes last, so that a removal that is interrupted is done again.
    """
    for tree in reversed(record.trees):
        _forget(tree)
        remove_tree(Path(tree.path))
    for entry in _entries(folder):
        if entry.name != RECORD:
            remove_tree(entry)
    if [entry.name for entry in _entries(folder)] in ([], [RECORD]):
        shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _forget(tree: Tree) -> None:
    """Take a worktree off its repository's list.

    Only the entry of this very path: `git worktree prune` would also forget those of the user
    whose disk is not mounted just now.
    """
    worktrees = Path(tree.common_folder) / "worktrees"
    wanted = os.path.join(tree.path, ".git")
    for entry in _entries(worktrees):
        try:
            points_to = os.fsdecode((entry / "gitdir").read_bytes()).rstrip("\n")
        except OSError:
            # git was killed before it had written where this one lies. Its name is ours alone.
            points_to = wanted if entry.name == os.path.basename(tree.path) else ""
        if points_to == wanted:
            remove_tree(entry)
    with contextlib.suppress(OSError):
        worktrees.rmdir()  # As git does, when it was the last.


def remove_tree(path: Path) -> None:
    """Remove a file or a folder, also where a program took the right to write away from itself."""

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
        # A folder that could not be opened was passed over with its contents.
        shutil.rmtree(path, ignore_errors=True)
