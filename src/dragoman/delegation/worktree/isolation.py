"""Isolation: a git worktree in which an attempt works without touching the user's workspace.

Copies committed, staged, changed and untracked files, submodules included, but no ignored files. It
isolates files only: branches and configuration are shared, and a command can write anywhere.
`patch` makes and applies the patch; `records` and `sweep` remove the worktree, even after a crash.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from dragoman.delegation.worktree import records
from dragoman.delegation.worktree.patch import (
    MAX_TREES,
    Applied,
    apply,
    capture,
    files_of,
    keep_patch,
    patch_of,
    patch_path,
)
from dragoman.delegation.worktree.records import Tree, WorktreeRecord
from dragoman.delegation.worktree.scratch import scratch_folder
from dragoman.errors import DragomanError, IsolationFailed, UsageError
from dragoman.events.parts import FileChange
from dragoman.rpc.tasks import finish
from dragoman.runs import git
from dragoman.runs.git import CHECKOUT_TIMEOUT, Repository
from dragoman.transports.process.identity import own_identity

MAX_DEPTH: Final = 4
"""Maximum depth of nested repositories that are copied."""

TOO_NESTED: Final = "there are too many nested repositories, or they are nested too deeply"
"""Why a workspace beyond `MAX_DEPTH` or `MAX_TREES` is not copied or sent."""

ADD_TRIES: Final = 10
ADD_INTERVAL: Final = 0.1
"""How often to try to create a worktree, and the seconds between the tries."""

_INCOMPLETE: Final = re.compile(r"^failed to read .*/worktrees/[^/]+/")

IDENTITY: Final = {
    "GIT_AUTHOR_NAME": "dragoman",
    "GIT_AUTHOR_EMAIL": "dragoman@localhost",
    "GIT_COMMITTER_NAME": "dragoman",
    "GIT_COMMITTER_EMAIL": "dragoman@localhost",
}
"""Identity of commits that are on no branch."""

log = logging.getLogger(__name__)


class Isolation:
    """Async context manager: a git worktree for one job.

    ```
    async with Isolation(workspace, folder=state / "worktrees") as isolation:
        ...  # work in isolation.workspace
        applied = await isolation.apply()
    ```

    The worktree is removed at the end of the block. If the block raises before `apply` has a
    result, the changes so far are saved as a patch first; if that fails, the worktree is kept.
    Nothing is applied unless `apply` is called.
    """

    def __init__(self, workspace: Path, *, folder: Path) -> None:
        """`folder` is the directory of the worktrees. Patches are saved in the directory `patches`
        next to it."""
        self.id = secrets.token_hex(6)
        self._asked = workspace
        self._folder = folder
        self._patches = folder.parent / "patches"
        self._record: WorktreeRecord | None = None
        self._home: Path | None = None
        self._workspace: Path | None = None
        self.kept: Path | None = None
        """Path of the saved patch, if the block raised and there were changes."""
        self.applied: Applied | None = None
        """The result of `apply`, even if its caller was cancelled."""

    @property
    def workspace(self) -> Path:
        """The directory in the worktree that corresponds to the workspace."""
        if self._workspace is None:
            raise UsageError("the worktree exists only within `async with`")
        return self._workspace

    # -- entering and leaving

    async def __aenter__(self) -> Self:
        if self._record is not None:
            raise UsageError("a worktree can be entered only once")
        workspace = git.real_folder(self._asked)
        repository, why = await git.find_repository(workspace)
        if repository is None:
            raise UsageError(f"{workspace} cannot be isolated without a git repository: {why}")
        if await git.is_ignored(repository, workspace):
            raise UsageError(
                f"{workspace} is ignored by its repository, so nothing would be copied"
            )
        record = WorktreeRecord(
            id=self.id, workspace=str(workspace), owner=own_identity(), made_at=time.time()
        )
        try:
            self._home = records.make_folder(self._folder, record)
            self._record = record
            path = self._home / f"{repository.top.name or 'root'}-{self.id}"
            await self._copy(repository, workspace, path, prefix="", depth=0)
            self._workspace = path / workspace.relative_to(repository.top)
            # git does not check out an empty directory.
            os.makedirs(self._workspace, exist_ok=True)
        except OSError as error:
            await self._remove()
            raise IsolationFailed(f"copying {workspace}", str(error)) from error
        except BaseException:
            await self._remove()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # Changes that were applied, or saved because of a conflict, need no other patch.
        await finish(self._leave(save=error is not None and self.applied is None))

    async def _leave(self, *, save: bool) -> None:
        try:
            kept = await self.save() if save else None
            if kept is not None:
                self.kept = kept
                log.warning("the changes in the worktree are saved in %s", kept)
        except (DragomanError, OSError) as problem:
            # Keep the directory rather than lose work; a sweep tries again.
            log.warning("the changes in %s cannot be saved: %s", self._home, problem)
            return
        await self._remove()

    async def _remove(self) -> None:
        home, record = self._home, self._record
        if home is None or record is None:
            return
        # If this process is killed during the removal, a sweep reports the patch.
        await records.remove_now(home, msgspec.structs.replace(record, patch=self._saved()))
        self._home = self._workspace = None

    def _saved(self) -> str:
        """Return the path of the patch if it is on disk, or an empty string."""
        path = patch_path(self._patches, self.id)
        return str(path) if os.path.exists(path) else ""

    # -- creating the worktree

    async def _copy(
        self, repository: Repository, folder: Path, path: Path, *, prefix: str, depth: int
    ) -> None:
        """Create worktrees of a repository and of those nested in it, with their current files."""
        tree = Tree(
            top=str(repository.top),
            common_folder=str(repository.common_folder),
            path=str(path),
            prefix=prefix,
        )
        self._note(tree)
        # A file that needs a filter defined only by the repository cannot be copied faithfully.
        filters = await git.own_filters(repository, refuse=True)
        async with scratch_folder("copy") as scratch:
            captured = await capture(repository, folder, scratch, env=filters)
        base, staged = captured.everything, captured.staged
        head = await git.ask(("rev-parse", "--quiet", "--verify", "HEAD"), cwd=repository.top)
        commit = head.text
        if not head.ok:
            # A worktree needs a commit. This one is on no branch.
            made = await git.demand(
                ("commit-tree", base, "-m", "everything"), cwd=repository.top, env=IDENTITY
            )
            commit = staged = made.text
        await add_worktree(path, commit, cwd=repository.top)
        made_here, why = await git.find_repository(path)
        if made_here is None:
            raise IsolationFailed(f"inspecting {path}", why)
        # A worktree may have its own settings, and includes that apply to its path only.
        filters = await git.own_filters(made_here, refuse=True)
        await git.demand(
            ("read-tree", "--reset", "-u", base), cwd=path, env=filters, timeout=CHECKOUT_TIMEOUT
        )
        # The files match the workspace. The index must match too: a reviewer asks git what is
        # committed and what is not.
        await git.demand(("read-tree", staged or commit), cwd=path)
        await git.ask(("update-index", "-q", "--refresh"), cwd=path)
        await _remember(path, base, commit)
        self._note(msgspec.structs.replace(tree, base=base, git_folder=str(made_here.git_folder)))
        for name in captured.nested:
            await self._copy_nested(repository.top / name, path / name, prefix + name, depth)

    async def _copy_nested(self, top: Path, path: Path, prefix: str, depth: int) -> None:
        if not git.has_repository(top):
            return
        if depth >= MAX_DEPTH or (self._record and len(self._record.trees) >= MAX_TREES):
            raise IsolationFailed(f"copying {top}", TOO_NESTED)
        repository, why = await git.find_repository(top)
        if repository is None or repository.top != top:
            raise IsolationFailed(f"copying {top}", why or "its .git is not valid")
        await self._copy(repository, top, path, prefix=prefix + "/", depth=depth + 1)

    def _note(self, tree: Tree) -> None:
        """Record one repository of the worktree: before its copy is created, and again after."""
        assert self._record is not None and self._home is not None
        others = tuple(one for one in self._record.trees if one.path != tree.path)
        self._record = msgspec.structs.replace(self._record, trees=(*others, tree))
        records.write_record(self._home, self._record)

    # -- the changes

    async def patch(self) -> bytes:
        """Return the changes in the worktree so far, as a patch for the top of the repository.

        Includes commits made in the worktree, but no ignored files.
        """
        return await patch_of(self._trees())

    async def files(self) -> tuple[FileChange, ...]:
        """Return the files that the patch changes."""
        return await files_of(self._trees())

    @property
    def top(self) -> str:
        """The top of the repository that the patch is for."""
        return self._trees()[0].top

    async def save(self) -> Path | None:
        """Save the patch to a file, and return its path; None if nothing changed."""
        data = await self.patch()
        return keep_patch(self._patches, self.id, data) if data else None

    async def apply(self) -> Applied:
        """Apply the patch to the workspace, completely or not at all.

        Changes made in the workspace in the meantime stay. If they conflict with the patch, the
        conflicts are returned, the workspace is not changed, and the patch is saved to a file.
        """

        async def work() -> Applied:
            self.applied = await apply(self._trees(), self._patches, self.id)
            return self.applied

        # A cancelled caller must still be able to say whether the workspace was changed.
        return await finish(work())

    def _trees(self) -> tuple[Tree, ...]:
        if self._record is None or self._workspace is None:
            raise UsageError("the worktree exists only within `async with`")
        return self._record.trees


async def add_worktree(
    path: Path, commit: str, *, cwd: Path, env: Mapping[str, str] | None = None
) -> None:
    """Create a git worktree without its files. This is repeated if another process is creating one
    in the same repository, because git fails if it reads the incomplete files of the other one."""
    told = ("worktree", "add", "--quiet", "--detach", "--no-checkout", str(path), commit)
    for left in reversed(range(ADD_TRIES)):
        try:
            await git.demand(told, cwd=cwd, env=env, timeout=CHECKOUT_TIMEOUT)
            return
        except IsolationFailed as error:
            if not left or not _INCOMPLETE.search(error.problem):
                raise
        await asyncio.sleep(ADD_INTERVAL)


async def _remember(path: Path, base: str, commit: str) -> None:
    """Keep `git gc` from removing the tree that the patch is compared with.

    An entry in the worktree's reflog protects it for a month from any `git gc` of the repository,
    and disappears with the worktree. A shared reference would be visible to the user, and a
    per-worktree reference would be ignored by gc.
    """
    told = ("commit-tree", base, "-p", commit, "-m", "the files as they were")
    seen = (await git.demand(told, cwd=path, env=IDENTITY)).text
    for target in (seen, commit):
        await git.demand(
            ("update-ref", "--no-deref", "--create-reflog", "-m", "dragoman", "HEAD", target),
            cwd=path,
            env=IDENTITY,
        )
