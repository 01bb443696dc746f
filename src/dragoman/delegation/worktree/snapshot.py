"""Take snapshots of a workspace and compare them, to prove which files an attempt changed.

git hashes all files that are not ignored; `changed_files` records ignored files and directories
outside a repository. Commits, branches, index, hooks and configuration are compared too. Nothing in
the workspace or its repository is written, not even the index.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct

from dragoman.delegation.worktree.scratch import scratch_folder
from dragoman.errors import SpawnError, UsageError
from dragoman.events.parts import FileChange
from dragoman.events.words import FileOp
from dragoman.rpc.tasks import in_thread, together
from dragoman.runs import changed_files, git
from dragoman.runs.changed_files import FileStates
from dragoman.runs.git import Repository, find_repository

log: Final = logging.getLogger(__name__)

MAX_NESTED: Final = 32
"""Maximum number of nested repositories that are checked, submodules included."""

MAX_DEPTH: Final = 4
"""Maximum depth of nested repositories that are checked."""

MAX_IGNORED: Final = 20_000
"""Maximum number of files checked in ignored directories: caches and installed packages, which
matter least and are the most numerous."""

IGNORED_HASHED_SIZE: Final = 0
"""Maximum number of bytes read from files in ignored directories."""

_GITLINK: Final = b"160000 "


class Snapshot(Struct, frozen=True, kw_only=True):
    """A workspace at one moment. Made by `take`, compared by `changes`.

    Does not cover files marked `assume-unchanged`, or contents beyond the limits of
    `changed_files`. Filters that only the repository defines do not run; a file that needs one may
    count as changed.
    """

    workspace: str
    root: str
    """The top of the repository; outside of one, the workspace."""
    listing: bytes = b""
    """Every file that git does not ignore, with the hash of its contents."""
    single: FileStates = FileStates({})
    """The state of files that `changed_files` records: in a repository, those that are ignored
    individually, such as `.env`; without a repository, all files."""
    ignored: FileStates = FileStates({})
    """Files in ignored directories, such as caches."""
    facts: dict[str, str] = {}
    """Hashes of HEAD, branches, index, configuration and hooks, by display name."""
    nested: tuple[Snapshot, ...] = ()
    complete: bool = True
    """Whether every relevant file was seen."""
    notes: tuple[str, ...] = ()
    """Why it is not complete, as text."""
    taken_at: float = 0.0

    @classmethod
    async def take(cls, workspace: Path) -> Snapshot:
        """Take a snapshot of a workspace; without git if it is in no usable repository, or is
        ignored by it."""
        folder = git.real_folder(workspace)
        return await _take(folder, workspace=folder, depth=0)


class Changed(Struct, frozen=True, kw_only=True):
    """The differences between two snapshots. Paths are relative to the workspace."""

    files: tuple[FileChange, ...] = ()
    """Added, modified and deleted files."""
    ignored: tuple[FileChange, ...] = ()
    """The same for directories that the repository ignores, such as caches."""
    repository: tuple[str, ...] = ()
    """Other differences of the repository, such as its commits."""
    complete: bool = True
    """Whether other changes in the relevant files can be ruled out."""
    notes: tuple[str, ...] = ()


def changes(before: Snapshot, after: Snapshot) -> Changed:
    """Return the differences between two snapshots of the same workspace, the earlier one given
    first. Raises `UsageError` if the workspaces are not the same."""
    if before.workspace != after.workspace:
        both = f"{before.workspace} and {after.workspace}"
        raise UsageError(f"the snapshots are of different workspaces: {both}")
    files: dict[str, FileOp] = {}
    ignored: dict[str, FileOp] = {}
    facts: list[str] = []
    _compare(before, after, files, ignored, facts)
    return Changed(
        files=tuple(FileChange(path, files[path]) for path in sorted(files)),
        ignored=tuple(FileChange(path, ignored[path]) for path in sorted(ignored)),
        repository=tuple(facts),
        complete=before.complete and after.complete,
        notes=tuple(dict.fromkeys((*before.notes, *after.notes))),
    )


def _compare(
    before: Snapshot,
    after: Snapshot,
    files: dict[str, FileOp],
    ignored: dict[str, FileOp],
    facts: list[str],
) -> None:
    def name(path: str) -> str:
        return os.path.relpath(os.path.join(after.root, path), after.workspace).replace(os.sep, "/")

    if before.listing != after.listing:
        for path, op in _different_contents(before.listing, after.listing):
            files[name(path)] = op
    for path, op in _different_marks(before.single, after.single):
        # A file that is newly ignored was in the listing before.
        if files.setdefault(name(path), op) is not op:
            files[name(path)] = FileOp.MODIFY
    for path, op in _different_marks(before.ignored, after.ignored):
        ignored.setdefault(name(path), op)
    is_nested = after.root != after.workspace and after.root.startswith(after.workspace)
    where = f" of {name('.')}" if is_nested else ""
    for fact in sorted(before.facts.keys() | after.facts.keys()):
        if before.facts.get(fact) != after.facts.get(fact):
            facts.append(fact + where)
    nested_before = {one.root: one for one in before.nested}
    nested_after = {one.root: one for one in after.nested}
    for root in sorted(nested_before.keys() | nested_after.keys()):
        some = nested_before.get(root) or nested_after[root]
        nothing = Snapshot(workspace=some.workspace, root=root)
        _compare(
            nested_before.get(root, nothing),
            nested_after.get(root, nothing),
            files,
            ignored,
            facts,
        )


def _different_contents(before: bytes, after: bytes) -> Iterator[tuple[str, FileOp]]:
    # Most lines are equal. Comparing them as sets is a thousand times faster than parsing them.
    old_lines, new_lines = set(before.split(b"\0")), set(after.split(b"\0"))
    old = dict(_read_lines(old_lines - new_lines))
    new = dict(_read_lines(new_lines - old_lines))
    for path in old.keys() | new.keys():
        yield _text(path), _op(path in old, path in new)


def _read_lines(lines: set[bytes]) -> Iterator[tuple[bytes, bytes]]:
    for line in lines:
        what, _, path = line.partition(b"\t")
        # A nested repository has its own snapshot: its commit is one of its facts.
        if path and not what.startswith(_GITLINK):
            yield path, what


def _different_marks(before: FileStates, after: FileStates) -> Iterator[tuple[str, FileOp]]:
    for name in before.files.keys() | after.files.keys():
        old, new = before.files.get(name), after.files.get(name)
        if old is not None and new is not None and changed_files.same(old, new):
            continue
        if (old is None and not before.complete) or (new is None and not after.complete):
            # The file may be beyond the limit of the walk.
            continue
        yield _text(os.fsencode(name)), _op(old is not None, new is not None)


def _op(was: bool, is_now: bool) -> FileOp:
    if was and is_now:
        return FileOp.MODIFY
    return FileOp.DELETE if was else FileOp.ADD


def _text(path: bytes) -> str:
    """Return the path as text that is valid in JSON, whatever its bytes are."""
    return path.decode("utf-8", "backslashreplace")


async def _take(folder: Path, *, workspace: Path, depth: int) -> Snapshot:
    try:
        repository, why = await find_repository(folder)
        # For a broken submodule git would report the repository around it.
        if repository is not None and depth > 0 and repository.top != folder:
            repository, why = None, "its .git is not valid"
        if repository is not None and await git.is_ignored(repository, folder):
            repository = None
    except SpawnError as error:
        repository, why = None, str(error)
    if repository is not None:
        return await _take_repository(repository, folder, workspace=workspace, depth=depth)
    marks = await in_thread(str(folder), lambda stop: changed_files.walk(folder, stop))
    notes = () if marks.complete else (f"{folder} has more files than are checked",)
    if git.has_repository(folder):
        notes = (*notes, f"{folder} is a repository that git cannot read: {why}")
    return Snapshot(
        workspace=str(workspace),
        root=str(folder),
        single=marks,
        complete=marks.complete,
        notes=notes,
        taken_at=time.time(),
    )


async def _take_repository(
    repository: Repository, folder: Path, *, workspace: Path, depth: int
) -> Snapshot:
    top = repository.top
    notes: list[str] = []
    others = ("ls-files", "--others", "-z", "--full-name")
    async with scratch_folder("look") as scratch:
        env, staged = await git.stage_everything(
            repository,
            folder,
            scratch / "index",
            objects=scratch / "objects",
            env=await git.own_filters(repository),
        )
        (listed, left, ignored), facts = await together(
            together(
                git.ask(("ls-files", "--stage", "-z"), cwd=top, env=env),
                # What could not be staged: repositories without a commit, unreadable files.
                git.ask((*others, "--exclude-standard", "--directory"), cwd=folder, env=env),
                git.ask(
                    (*others, "--ignored", "--exclude-standard", "--directory"), cwd=folder, env=env
                ),
            ),
            _facts(repository),
        )
    for answer in (staged, listed, left, ignored):
        # What git says about single files while it stages is handled below.
        if not answer.ok and (answer is not staged or answer.cut or answer.exit_code is None):
            notes.append(f"git could not inspect all of {top}: {git.describe(answer)}")
    if staged.exit_code and "does not have a commit checked out" not in staged.errors:
        notes.append(f"git could not read all files of {top}: {git.describe(staged)}")
    links = [os.fsdecode(path) for path in git.links_of(listed.output)]
    unborn, unreadable = _left_over(top, left.output)
    if unreadable:
        notes.append(f"{top / unreadable[0]} cannot be read")
    single, folders = _split_ignored(ignored.output)
    nested, too_many = await _nested(
        [top / name for name in (*links, *unborn)], workspace=workspace, depth=depth
    )
    if too_many:
        notes.append(f"{top} has more repositories than are checked")

    def look(stop: threading.Event) -> tuple[FileStates, FileStates]:
        return (
            changed_files.walk(top, stop, names=single),
            changed_files.walk(
                top,
                stop,
                names=folders,
                max_entries=MAX_IGNORED,
                hashed_size=IGNORED_HASHED_SIZE,
            ),
        )

    single_marks, ignored_marks = await in_thread(str(top), look)
    if not single_marks.complete:
        notes.append(f"{top} has more ignored files than are checked")
    return Snapshot(
        workspace=str(workspace),
        root=str(top),
        listing=listed.output,
        single=single_marks,
        ignored=ignored_marks,
        facts=facts,
        nested=nested,
        complete=not notes and all(one.complete for one in nested),
        notes=(*notes, *(note for one in nested for note in one.notes)),
        taken_at=time.time(),
    )


async def _nested(
    folders: list[Path], *, workspace: Path, depth: int
) -> tuple[tuple[Snapshot, ...], bool]:
    there = [folder for folder in folders if git.has_repository(folder)]
    if not there:
        return (), False
    if depth >= MAX_DEPTH:
        return (), True
    taken = [
        await _take(folder, workspace=workspace, depth=depth + 1) for folder in there[:MAX_NESTED]
    ]
    return tuple(taken), len(there) > MAX_NESTED


async def _facts(repository: Repository) -> dict[str, str]:
    """Return hashes of the parts of a repository other than its files, for comparison."""
    refs, index = await together(
        git.ask(("for-each-ref", "--format=%(objectname) %(refname)"), cwd=repository.top),
        git.ask(("ls-files", "--stage", "-z"), cwd=repository.top),
    )

    def read(stop: threading.Event) -> dict[str, str]:
        common = repository.common_folder
        hooks = changed_files.walk(common / "hooks", stop)
        config = [
            _content(folder / name)
            for folder in {common, repository.git_folder}
            for name in ("config", "config.worktree", "info/attributes", "info/exclude")
        ]
        return {
            "HEAD": _content(repository.git_folder / "HEAD"),
            "the branches and tags": _hashed(refs.output),
            "the staging area": _hashed(index.output),
            "the configuration": _hashed("\0".join(sorted(config)).encode()),
            "the hooks": _hashed(
                repr(sorted((name, one.mode, one.digest) for name, one in hooks.files.items()))
                .encode()
            ),
        }  # fmt: skip

    return await in_thread(str(repository.git_folder), read)


def _left_over(top: Path, output: bytes) -> tuple[list[str], list[str]]:
    names = [os.fsdecode(name) for name in output.split(b"\0") if name]
    folders = [name.rstrip("/") for name in names if name.endswith("/")]
    repositories = [name for name in folders if git.has_repository(top / name)]
    # Anything else that git does not add, such as a FIFO, has no contents to compare.
    unreadable = [name for name in names if os.path.isfile(top / name)]
    return repositories, unreadable


def _split_ignored(output: bytes) -> tuple[list[str], list[str]]:
    """Split git's output into ignored files and ignored directories."""
    names = [os.fsdecode(name) for name in output.split(b"\0") if name]
    return (
        [name for name in names if not name.endswith("/")],
        [name.rstrip("/") for name in names if name.endswith("/")],
    )


def _content(path: Path) -> str:
    try:
        if not path.is_file():
            # Opening a named pipe would block forever.
            return ""
        return _hashed(path.read_bytes())
    except OSError:
        return ""


def _hashed(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
