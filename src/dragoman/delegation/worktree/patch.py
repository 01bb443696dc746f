"""Create the patch of a worktree and apply it to the workspace, completely or not at all.

Covers nested repositories, including those created inside the worktree. `isolation` creates the
worktree.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from dragoman.client.folders import make_private
from dragoman.config.safe_files import write_whole
from dragoman.delegation.worktree.records import Tree
from dragoman.delegation.worktree.scratch import scratch_folder
from dragoman.errors import FileFailed, IsolationFailed
from dragoman.events.parts import FileChange
from dragoman.events.words import FileOp
from dragoman.rpc.tasks import finish
from dragoman.runs import git
from dragoman.runs.git import Repository
from dragoman.transports.process.query import ProgramOutput

MAX_TREES: Final = 32
"""Maximum number of repositories in a worktree, submodules included."""

DIFF: Final = (
    "diff-tree", "-r", "--no-renames", "--no-ext-diff", "--no-textconv", "--ignore-submodules=all",
)  # fmt: skip

EMPTY: Final = ("hash-object", "-t", "tree", os.devnull)
"""The git command that prints the hash of an empty tree."""

_OPS: Final = {b"A": FileOp.ADD, b"D": FileOp.DELETE}

_UNBORN: Final = re.compile(r"error: '(.+)/' does not have a commit checked out$")
"""git's message when it refuses to add a repository without commits to another one."""


class Conflict(Struct, frozen=True):
    """A file that the patch does not apply to, and git's reason."""

    path: str
    why: str


class FileStat(Struct, frozen=True):
    """Number of lines that a patch adds to and removes from a file; None for a binary file."""

    path: str
    added: int | None
    removed: int | None


_UNREMOVED: Final = "unable to unlink"
"""git's warning for a file that a patch deletes and that it cannot remove."""


class Applied(Struct, frozen=True, kw_only=True):
    """Result of applying a patch. Unless ok, the workspace is unchanged."""

    ok: bool
    files: tuple[FileChange, ...] = ()
    """What the patch changes, relative to the top of the repository."""
    conflicts: tuple[Conflict, ...] = ()
    kept: str | None = None
    """Path of the patch, if it could not be applied."""
    stat: tuple[FileStat, ...] = ()
    """The diffstat of that patch."""


async def apply(trees: Sequence[Tree], patches: Path, name: str) -> Applied:
    """Apply the changes of a worktree to the workspace. The patch is kept as `name` in the
    directory `patches` until it is applied."""
    data = await patch_of(trees)
    if not data:
        return Applied(ok=True)
    return await apply_patch(
        data, Path(trees[0].top), files=await files_of(trees), patches=patches, name=name
    )


async def apply_patch(
    data: bytes, top: Path, *, files: tuple[FileChange, ...], patches: Path, name: str
) -> Applied:
    """Apply a patch at the top of a repository, or return the conflicts. `files` are those that it
    changes; the patch is kept as `name` in the directory `patches` until it is applied. Raises
    `IsolationFailed` with `may_have_run` if only a part may have been applied."""
    # git checks every file before it writes the first one, and must not be interrupted then. A
    # patch that was applied must not be kept, even if the caller was cancelled.
    return await finish(_apply_patch(data, top, files, patches, name))


async def _apply_patch(
    data: bytes, top: Path, files: tuple[FileChange, ...], patches: Path, name: str
) -> Applied:
    kept = keep_patch(patches, name, data)
    answer = await git.ask(("apply", "--whitespace=nowarn", str(kept)), cwd=top)
    if answer.ok and _UNREMOVED in answer.errors:
        # git changes the other files, and exits with code 0.
        problem = f"{git.describe(answer)}; the other changes were applied, and the patch is {kept}"
        error = IsolationFailed(f"applying the patch to {top}", problem)
        error.may_have_run = True
        raise error
    if answer.ok:
        with contextlib.suppress(OSError):
            os.unlink(kept)
        return Applied(ok=True, files=files)
    if answer.exit_code != 1:
        problem = f"{git.describe(answer)}; some files may be changed, and the patch is {kept}"
        error = IsolationFailed(f"applying the patch to {top}", problem)
        error.may_have_run = True
        raise error
    conflicts = _conflicts(answer, [change.path for change in files])
    stat = await stat_of(kept)
    return Applied(ok=False, files=files, conflicts=conflicts, kept=str(kept), stat=stat)


async def stat_of(patch: Path) -> tuple[FileStat, ...]:
    """Return the diffstat of a patch; empty if git cannot read it."""
    answer = await git.ask(("apply", "--numstat", "-z", str(patch)), cwd=patch.parent)
    if not answer.ok:
        return ()
    found = []
    for entry in answer.output.split(b"\0"):
        added, _, rest = entry.partition(b"\t")
        removed, tab, name = rest.partition(b"\t")
        if tab:
            counts = (int(each) if each.isdigit() else None for each in (added, removed))
            found.append(FileStat(name.decode("utf-8", "backslashreplace"), *counts))
    return tuple(found)


async def patch_of(trees: Sequence[Tree], *, env: Mapping[str, str] | None = None) -> bytes:
    """Return the changes in a worktree, as one patch for the top of the outermost repository.

    `env` has additional environment variables for git.
    """
    pieces: list[bytes] = []
    for tree, now in await _now(trees, env or {}):
        paths = (f"--src-prefix=a/{tree.prefix}", f"--dst-prefix=b/{tree.prefix}")
        told = (*DIFF, "-p", "--binary", "--full-index", *paths, tree.base, now)
        own = {**(env or {}), **_env(tree)}
        pieces.append((await git.demand(told, cwd=_place(tree), env=own)).output)
    return b"".join(pieces)


async def files_of(trees: Sequence[Tree]) -> tuple[FileChange, ...]:
    found: list[FileChange] = []
    for tree, now in await _now(trees, {}):
        told = (*DIFF, "--name-status", "-z", tree.base, now)
        parts = (await git.demand(told, cwd=_place(tree), env=_env(tree))).output.split(b"\0")
        for status, name in zip(parts[::2], parts[1::2], strict=False):
            path = tree.prefix + name.decode("utf-8", "backslashreplace")
            found.append(FileChange(path, _OPS.get(status, FileOp.MODIFY)))
    return tuple(found)


async def _now(trees: Sequence[Tree], extra: Mapping[str, str]) -> list[tuple[Tree, str]]:
    """Return the changed repositories of a worktree, each with the tree hash of its current files.

    A repository that was created in the worktree is included with all its files: the repository
    around it does not track them, and they would be lost. All files of a nested repository that was
    removed count as deleted.
    """
    found: list[tuple[Tree, str]] = []
    known = {tree.path for tree in trees}
    ahead = list(trees)
    while ahead:
        tree = ahead.pop(0)
        path = Path(tree.path)
        if _was_removed(tree):
            found.append((tree, (await git.demand(EMPTY, cwd=_place(tree), env=_env(tree))).text))
            continue
        repository = await _repository(tree)
        # The peer may have put filters into the configuration that all worktrees share. They do not
        # run; the files are read unchanged.
        env = {**extra, **await git.own_filters(repository, env=extra)}
        async with scratch_folder("copy") as scratch:
            now = await capture(repository, repository.top, scratch, staged=False, env=env)
        empty = await git.demand(EMPTY, cwd=path, env={**extra, **repository.env})
        if now.everything != (tree.base or empty.text):
            changed = msgspec.structs.replace(tree, base=tree.base or empty.text)
            found.append((changed, now.everything))
        for name in now.nested:
            inner = str(path / name)
            if inner not in known and git.has_repository(path / name):
                known.add(inner)
                if len(known) > MAX_TREES:
                    raise IsolationFailed(
                        f"inspecting {inner}", "there are too many nested repositories"
                    )
                fresh = Tree(top="", common_folder="", path=inner, prefix=f"{tree.prefix}{name}/")
                ahead.append(fresh)
    return found


async def _repository(tree: Tree) -> Repository:
    """Return the repository of a worktree. Its `.git` file is not trusted, because the peer may
    have changed it: the recorded git directory is used."""
    path = Path(tree.path)
    if tree.git_folder:
        if not git.is_folder(path) or not git.is_folder(Path(tree.git_folder)):
            raise IsolationFailed(f"inspecting {path}", "it is no longer a worktree")
        common = Path(tree.common_folder)
        return Repository(git.real(path), Path(tree.git_folder), common, pinned=True)
    repository, why = await git.find_repository(path)
    if repository is None or repository.top != git.real(path):
        raise IsolationFailed(f"inspecting {path}", why or "it is no longer a worktree")
    return repository


def _was_removed(tree: Tree) -> bool:
    """Return whether the directory of a nested repository was removed from the worktree, but not
    its git directory."""
    was_nested = bool(tree.prefix and tree.git_folder) and git.is_folder(Path(tree.git_folder))
    return was_nested and not git.is_folder(Path(tree.path))


def _place(tree: Tree) -> Path:
    """Return the directory in which to run git for a repository of the worktree."""
    return Path(tree.git_folder if _was_removed(tree) else tree.path)


def _env(tree: Tree) -> dict[str, str]:
    if not tree.git_folder:
        return {}
    return {"GIT_DIR": tree.git_folder, "GIT_WORK_TREE": tree.path}


@dataclass(frozen=True, slots=True)
class Captured:
    """The state of a repository's files, stored as git trees."""

    everything: str
    """The tree hash of the current state of all files."""
    staged: str
    """The tree hash of the index; empty if it has conflicts, or was not requested."""
    nested: tuple[str, ...]
    """Paths of nested repositories."""


async def capture(
    repository: Repository,
    folder: Path,
    scratch: Path,
    *,
    staged: bool = True,
    env: Mapping[str, str] | None = None,
    objects: Path | None = None,
) -> Captured:
    """Store the current files of a repository as a git tree: all tracked ones, and the untracked
    ones in `folder`.

    The contents go into the directory `objects` if it is given, and into the repository otherwise.
    `env` has additional environment variables for git. Raises `IsolationFailed` if a file cannot be
    read.
    """
    index = scratch / "index"
    env, answer = await git.stage_everything(repository, folder, index, env=env, objects=objects)
    lines = answer.errors.splitlines()
    unborn = [match[1] for line in lines if (match := _UNBORN.match(line))]
    # Newer versions of git report each of them twice.
    expected = {f"error: unable to index file '{name}/'" for name in unborn}
    complaints = [
        line.removeprefix("error: ")
        for line in lines
        if line.startswith(("error: ", "fatal: "))
        and not _UNBORN.match(line)
        and line not in expected
    ]
    if answer.cut or answer.exit_code is None or complaints:
        # A copy without some of the files would look as if they had been deleted.
        doing = f"reading the files of {repository.top}"
        problem = complaints[0] if complaints else git.describe(answer)
        raise git.filter_failure(answer, doing, env) or IsolationFailed(doing, problem)
    everything = (await git.demand(("write-tree",), cwd=repository.top, env=env)).text
    listed = await git.demand(("ls-files", "--stage", "-z"), cwd=repository.top, env=env)
    nested = [os.fsdecode(name) for name in git.links_of(listed.output)] + unborn
    if not staged:
        return Captured(everything, "", tuple(nested))
    git.copy_index(repository, scratch / "staged")
    # With conflicts in the index there is no such tree; HEAD is used instead.
    own = {**env, "GIT_INDEX_FILE": str(scratch / "staged")}
    tree = await git.ask(("write-tree",), cwd=repository.top, env=own)
    return Captured(everything, tree.text if tree.ok else "", tuple(nested))


def _conflicts(answer: ProgramOutput, files: Sequence[str]) -> tuple[Conflict, ...]:
    """Return the conflicts that git reports for a patch."""
    told: dict[str, str] = {}
    for line in answer.errors.splitlines():
        text = line.removeprefix("error: ").removeprefix("patch failed: ")
        for path in files if text != line else ():
            if text.startswith(f"{path}:"):
                why = text[len(path) + 1 :].strip()
                # git reports a line number for a file first, and the reason in a later line.
                told[path] = told.get(path, "") if why.isdigit() else why
    if not told:
        return (Conflict(".", git.describe(answer)),)
    return tuple(Conflict(path, why or "its content has changed") for path, why in told.items())


def patch_path(folder: Path, name: str) -> Path:
    """Return the path at which `keep_patch` saves a patch."""
    return folder / f"{name}.patch"


def keep_patch(folder: Path, name: str, data: bytes) -> Path:
    """Write a patch atomically to a private file, and return its path. Raises `FileFailed` if it
    cannot be written."""
    try:
        make_private(folder)
        path = patch_path(folder, name)
        write_whole(path, data, sync=True)
    except OSError as error:
        raise FileFailed(str(folder), error.strerror or str(error), error.errno) from error
    return path
