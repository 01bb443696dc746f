"""`--send` and `--fetch`: send the workspace to another machine, and fetch the changes made there.

Asks before ignored files are sent, and prints what was done. `delegation.host_transfer` and
`delegation.worktree` pack and apply.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.cli.output.terminal import put_err, put_out
from dragoman.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman.broker.client.ssh_command import Host
    from dragoman.delegation.host_transfer import SentWorkspace
    from dragoman.delegation.worktree.bundle import Bundle
    from dragoman.delegation.worktree.patch import Applied

MAX_NAMED = 5
"""Maximum number of ignored files to name in a question."""


def send(host: Host, cwd: Path, *, ignored: bool, branch: str = "") -> SentWorkspace:
    """Send the workspace of `cwd` to a host. The ignored files that ``.worktreeinclude`` names are
    sent too if `ignored` is set or the user agrees. If `branch` is given, raises `UsageError`
    unless the result can later become a new branch of this name."""
    named = asyncio.run(_ignored_files(cwd, branch))
    # Outside of an event loop, which would not let Ctrl-C end the question.
    if named and not ignored:
        ignored = _agrees(host.name, named)
    return asyncio.run(_send(host, cwd, named if ignored else (), branch))


async def _ignored_files(cwd: Path, branch: str) -> tuple[str, ...]:
    """Check the branch, and return the ignored files that ``.worktreeinclude`` names."""
    from dragoman.delegation.worktree.bundle import ignored_files
    from dragoman.delegation.worktree.received_patch import check_branch

    if branch:
        await check_branch(cwd, branch)
    return await ignored_files(cwd)


async def _send(host: Host, cwd: Path, included: tuple[str, ...], branch: str) -> SentWorkspace:
    from dragoman.cli.output.escape import neutral
    from dragoman.delegation.host_transfer import remove_workspace, send_workspace

    sent = await send_workspace(host, cwd, included=included)
    if branch:
        try:
            _require_one_repository(sent.bundle)
        except UsageError:
            await remove_workspace(host, sent.id)
            raise
    size = sent.bundle.size
    amount = f"{size / 1e6:.1f} MB" if size >= 100_000 else f"{size / 1e3:.1f} kB"
    put_err(f"dragoman: sent {amount} to {host.name}: {neutral(sent.workspace)}\n")
    return sent


def _require_one_repository(bundle: Bundle) -> None:
    """Raise `UsageError` if one branch cannot hold the changes, because there are nested
    repositories."""
    if bundle.nested and bundle.head != bundle.sent_head:
        raise UsageError(
            "this repository contains others, and their changes can only be fetched as a patch: "
            "use --fetch, or `dragoman hosts fetch` without --fetch-branch"
        )


def _agrees(host: str, named: tuple[str, ...]) -> bool:
    """Return whether the user agrees to send ignored files. Without a terminal, print which files
    are not sent, and return False."""
    from dragoman.cli.output.escape import neutral
    from dragoman.cli.output.questions import confirm
    from dragoman.cli.output.terminal import is_interactive

    some = ", ".join(named[:MAX_NAMED]) + (", …" if len(named) > MAX_NAMED else "")
    files = f"{len(named)} ignored file{'s' if len(named) > 1 else ''} ({some})"
    if is_interactive():
        return confirm(f"Also send {neutral(files)} to {host}?", instead="--send-ignored")
    put_err(
        f"dragoman: not sent: {neutral(files)} in .worktreeinclude; send them with --send-ignored\n"
    )
    return False


async def fetch(
    host: Host,
    cwd: Path,
    *,
    id: str = "",
    job: str = "",
    branch: str = "",
    put: Callable[[str], None] = put_out,
) -> bool:
    """Fetch the changes made on a host, and apply them here or, with `branch`, create a branch with
    them.

    `id` is that of a sent workspace; if it is empty, `job` is the id of a job on the host. Returns
    False if the patch no longer applies; in this case nothing is changed, and the patch is saved.
    `put` prints the report.
    """
    from dragoman.delegation.host_transfer import check_same_repository, fetch_result
    from dragoman.delegation.worktree.bundle import project_of
    from dragoman.delegation.worktree.received_patch import apply_received, has_commit, make_branch
    from dragoman.paths import find_paths

    project = await project_of(cwd)
    result = await fetch_result(host, id=id, job=job, against="head" if branch else "sent")
    head = result.bundle.head
    check_same_repository(result, project, has_head=bool(head) and await has_commit(cwd, head))
    if not result.patch:
        put_err(f"dragoman: nothing has changed on {host.name}\n")
        return True
    if branch:
        _require_one_repository(result.bundle)
        message = f"Work on {host.name}\n\nMade by dragoman from {result.id}."
        commit = await make_branch(result.patch, cwd, branch=branch, head=head, message=message)
        put(f"branch {branch}: {commit[:12]}\n")
        return True
    patches = find_paths().state / "patches"
    applied = await apply_received(result.patch, cwd, patches=patches, name=result.id)
    put(_report(applied))
    return applied.ok


def _report(applied: Applied) -> str:
    """Return a text that says what was applied, or why nothing was."""
    from dragoman.cli.output.escape import neutral

    if applied.ok:
        lines = [f"{change.op.value:<7} {change.path}" for change in applied.files]
        many = "1 file" if len(applied.files) == 1 else f"{len(applied.files)} files"
        lines.append(f"applied changes to {many}")
    else:
        lines = [f"conflict {each.path}: {each.why}" for each in applied.conflicts]
        lines.append(f"nothing was applied; the patch is saved in {applied.kept}")
        lines.append(f"to merge it, run git apply --3way {applied.kept}")
    return "".join(f"{neutral(line)}\n" for line in lines)
