"""Check a patch from another machine, and apply it here like an isolated patch.

git checks every path and every line before it writes the first file, so a patch applies completely
or not at all. It refuses paths outside the repository, in `.git`, and behind symbolic links. A
patch can also become a branch, based on the commit that was sent. `sent_tree` creates the patch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from dragoman.delegation.worktree.bundle import COMMIT
from dragoman.delegation.worktree.isolation import IDENTITY
from dragoman.delegation.worktree.patch import Applied, apply_patch, keep_patch, stat_of
from dragoman.delegation.worktree.scratch import scratch_folder
from dragoman.errors import IsolationFailed, UsageError
from dragoman.events.parts import FileChange
from dragoman.events.words import FileOp
from dragoman.runs import git
from dragoman.runs.git import Repository

MAX_PATCH_SIZE: Final = git.OUTPUT_SIZE
"""Maximum size of a patch, in bytes: the limit of git's output on the machine that creates it."""

GITLINK: Final = b"160000"


async def apply_received(data: bytes, workspace: Path, *, patches: Path, name: str) -> Applied:
    """Apply a patch to the repository of a workspace. If there are conflicts, they are returned,
    the patch is saved in `patches`, and nothing is changed."""
    if not data:
        return Applied(ok=True)
    repository = await _find(workspace)
    files = await _checked(data)
    return await apply_patch(data, repository.top, files=files, patches=patches, name=name)


async def keep_received(
    data: bytes, workspace: Path, *, patches: Path, name: str
) -> tuple[Path, Path]:
    """Check a patch and save it as `name` in `patches`, without applying it. Returns its path, and
    the directory in which it applies."""
    repository = await _find(workspace)
    await _checked(data)
    return keep_patch(patches, name, data), repository.top


async def make_branch(data: bytes, workspace: Path, *, branch: str, head: str, message: str) -> str:
    """Create a branch with one commit: a patch applied to the commit `head`. Returns the commit.

    The files and the index of the workspace do not change. Raises `UsageError` if the branch exists
    or its name is invalid, or if the repository does not have the commit `head`. If `head` is
    empty, the new commit has no parent. Raises `IsolationFailed` if the patch is unusable or does
    not apply.
    """
    repository = await _find(workspace)
    top = repository.top
    ref = await check_branch(workspace, branch)
    if head and not COMMIT.fullmatch(head):
        raise UsageError(f"the id of the sent commit is invalid: {head[:80]!r}")
    if head and not await has_commit(top, head):
        raise UsageError(f"the sent commit {head} is no longer in {top}")
    await _checked(data)
    async with scratch_folder("branch") as scratch:
        env = {**repository.env, "GIT_INDEX_FILE": str(scratch / "index")}
        await git.demand(
            ("read-tree", head) if head else ("read-tree", "--empty"), cwd=top, env=env
        )
        if data:
            kept = keep_patch(scratch, "received", data)
            told = ("apply", "--cached", "--whitespace=nowarn", str(kept))
            answer = await git.ask(told, cwd=top, env=env)
            if not answer.ok:
                raise IsolationFailed(f"creating the branch {branch}", git.describe(answer))
        tree = (await git.demand(("write-tree",), cwd=top, env=env)).text
    parent = ("-p", head) if head else ()
    made = await git.demand(("commit-tree", tree, *parent, "-m", message), cwd=top, env=IDENTITY)
    # The empty old value means that the branch must not exist.
    await git.demand(("update-ref", "-m", "dragoman", ref, made.text, ""), cwd=top, env=IDENTITY)
    return made.text


async def check_branch(workspace: Path, branch: str) -> str:
    """Return the full reference for the name of a new branch. Creates nothing. Raises `UsageError`
    if the branch exists or its name is invalid."""
    top = (await _find(workspace)).top
    named = await git.ask(("check-ref-format", "--branch", branch), cwd=top)
    if not named.ok or named.text != branch:
        raise UsageError(f"not a valid branch name: {branch!r}")
    ref = f"refs/heads/{branch}"
    if (await git.ask(("rev-parse", "--quiet", "--verify", ref), cwd=top)).ok:
        raise UsageError(f"the branch {branch} already exists; choose another name")
    return ref


async def has_commit(folder: Path, commit: str) -> bool:
    """Return whether the repository of a directory has the commit with this full id."""
    if not COMMIT.fullmatch(commit):
        return False
    return (await git.ask(("cat-file", "-e", f"{commit}^{{commit}}"), cwd=folder)).ok


async def _find(workspace: Path) -> Repository:
    folder = git.real_folder(workspace)
    repository, why = await git.find_repository(folder)
    if repository is None:
        raise UsageError(f"{folder} is not in a git repository, which the changes need: {why}")
    return repository


async def _checked(data: bytes) -> tuple[FileChange, ...]:
    """Return the files that a patch changes. Raises `IsolationFailed` if the patch is too large,
    changes the commit of a submodule, or cannot be read by git."""
    if not data:
        return ()
    if len(data) > MAX_PATCH_SIZE:
        raise IsolationFailed("reading the patch", f"larger than {MAX_PATCH_SIZE >> 20} MiB")
    headers = _headers(data)
    async with scratch_folder("patch") as scratch:
        stat = await stat_of(keep_patch(scratch, "received", data))
    if not stat or len(stat) != len(headers):
        raise IsolationFailed("reading the patch", "not a git patch")
    if any(GITLINK in line for lines in headers for line in lines):
        raise IsolationFailed("reading the patch", "it changes the commit of a submodule")
    return tuple(FileChange(one.path, _op(lines)) for one, lines in zip(stat, headers, strict=True))


def _headers(data: bytes) -> list[list[bytes]]:
    """Return the header lines of each file's part of a patch."""
    found: list[list[bytes]] = []
    inside = False
    for line in data.split(b"\n"):
        # A line of a hunk begins with another character, and a line of a binary patch contains no
        # space.
        if line.startswith(b"diff --git "):
            found.append([])
            inside = True
        elif inside and line.startswith((b"@@ ", b"--- ", b"GIT binary patch")):
            inside = False
        elif inside:
            found[-1].append(line)
    return found


def _op(lines: list[bytes]) -> FileOp:
    if any(line.startswith(b"new file mode ") for line in lines):
        return FileOp.ADD
    if any(line.startswith(b"deleted file mode ") for line in lines):
        return FileOp.DELETE
    return FileOp.MODIFY
