"""Create a patch of a workspace's changes since its last commit, including untracked files.

Changes nothing, neither the user's index nor the objects of the repository.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from dragoman.delegation.worktree.patch import DIFF, EMPTY
from dragoman.delegation.worktree.scratch import scratch_folder
from dragoman.errors import IsolationFailed, UsageError
from dragoman.runs import git

MAX_SIZE: Final = 4 * 1024 * 1024
"""Maximum size of the patch, in bytes; files beyond it are omitted."""

PREFIXES: Final = ("--src-prefix=a/", "--dst-prefix=b/")


async def uncommitted(workspace: Path) -> tuple[bytes, bool]:
    """Return the patch for the top of the repository, and whether it is complete: it is not if it
    is too large, or if git could not read every file.

    Raises `UsageError` if the workspace is not in a git repository, and `IsolationFailed` if git
    fails.
    """
    folder = git.real_folder(workspace)
    repository, why = await git.find_repository(folder)
    if repository is None:
        raise UsageError(f"{folder} is not in a git repository: {why}")
    async with scratch_folder("diff") as scratch:
        env, staged = await git.stage_everything(
            repository, folder, scratch / "index", objects=scratch / "objects"
        )
        now = await git.demand(("write-tree",), cwd=repository.top, env=env)
        head = await git.ask(
            ("rev-parse", "--quiet", "--verify", "HEAD^{tree}"), cwd=repository.top
        )
        base = head.text
        if not head.ok:
            base = (await git.demand(EMPTY, cwd=repository.top, env=env)).text
        told = (*DIFF, "-p", *PREFIXES, base, now.text)
        answer = await git.ask(told, cwd=repository.top, env=env, limit_size=MAX_SIZE)
    if answer.cut:
        # The last file may be incomplete.
        return answer.output[: answer.output.rfind(b"\ndiff --git ") + 1], False
    if not answer.ok:
        doing = f"comparing {repository.top} with its last commit"
        raise IsolationFailed(doing, git.describe(answer))
    return answer.output, staged.ok
