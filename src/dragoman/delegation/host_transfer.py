"""Send the files of a workspace to another machine, and fetch the changes made there as a patch.

Each call runs ``dragoman hosts transfer`` there over its own ssh connection and exchanges a line of
JSON and bytes in each direction. `host_receiver` is the other end; `worktree.bundle` packs,
`worktree.received_patch` applies.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from dragoman.broker.client.ssh_command import Host, explain_remote
from dragoman.broker.client.ssh_once import failure, run_on_host
from dragoman.broker.error_codec import revive
from dragoman.decoders import decode_typed
from dragoman.delegation.worktree.bundle import Bundle, pack, project_of
from dragoman.delegation.worktree.received_patch import MAX_PATCH_SIZE
from dragoman.delegation.worktree.scratch import scratch_folder
from dragoman.delegation.worktree.sent_tree import TREE_ID
from dragoman.errors import HostUnavailable, SpawnError, UsageError
from dragoman.wire.messages import UNDECODABLE

MARK: Final = b"dragoman-transfer: "
"""Prefix of the response line; a login shell may print other lines before it."""

ASK_TIMEOUT: Final = 60.0
"""Seconds for a request without files, including a login on a slow machine."""

TRANSFER_TIMEOUT: Final = 1800.0
"""Seconds to send or fetch files, even a large repository over a slow connection."""

HEAD_SIZE: Final = 1024 * 1024
"""Maximum number of bytes up to the end of the response line, including any output before it."""

CHUNK_SIZE: Final = 256 * 1024

Against = Literal["sent", "head"]


class TransferRequest(Struct, kw_only=True, omit_defaults=True):
    """A request to `dragoman hosts transfer` on the other machine. `what` decides which fields it
    has."""

    what: Literal["known", "receive", "result", "remove"]
    project: str = ""
    bundle: Bundle | None = None
    id: str = ""
    job: str = ""
    """A job that worked in the worktree, instead of `id`."""
    against: Against = "sent"


class TransferResponse(Struct, kw_only=True, omit_defaults=True):
    """The response of `dragoman hosts transfer`. The request decides which fields it has."""

    error: dict[str, Any] | None = None
    heads: list[str] = []
    id: str = ""
    workspace: str = ""
    bundle: Bundle | None = None
    size: int = 0
    """Size in bytes of the patch that follows."""
    digest: str = ""
    """SHA-256 of the patch."""


class SentWorkspace(Struct, frozen=True, kw_only=True):
    """A workspace that was sent to another machine: its id and its directory there."""

    id: str
    workspace: str
    """The directory to work in on the other machine."""
    bundle: Bundle


class HostResult(Struct, frozen=True, kw_only=True):
    """The changes made on the other machine."""

    id: str
    bundle: Bundle
    """The description of the bundle that was sent."""
    patch: bytes


async def send_workspace(
    host: Host, workspace: Path, *, included: Sequence[str] = ()
) -> SentWorkspace:
    """Send the repository of a directory, and create a worktree from it on the host.

    `included` are ignored files to send, from `worktree.bundle.ignored_files`. Raises
    `HostUnavailable` if the host cannot be reached, and `UsageError` if the directory cannot be
    sent, for example because it is not in a repository.
    """
    project = await project_of(workspace)
    asked, _ = await _exchange(host, TransferRequest(what="known", project=project))
    async with scratch_folder("send") as scratch:
        file = scratch / "workspace.bundle"
        bundle = await pack(workspace, file, known=asked.heads, included=included)
        request = TransferRequest(what="receive", bundle=bundle)
        made, _ = await _exchange(host, request, payload=_chunks(file), timeout=TRANSFER_TIMEOUT)
    if not TREE_ID.fullmatch(made.id) or not made.workspace.startswith("/"):
        raise HostUnavailable(host.name, "invalid response: no valid worktree id and path")
    return SentWorkspace(id=made.id, workspace=made.workspace, bundle=bundle)


async def fetch_result(
    host: Host, *, id: str = "", job: str = "", against: Against = "sent"
) -> HostResult:
    """Return the changes in a worktree that was sent, found by its id or by a job that worked in
    it. They are relative to the files as they were sent, or to the sender's HEAD (`against`)."""
    request = TransferRequest(what="result", id=id, job=job, against=against)
    made, patch = await _exchange(
        host, request, timeout=TRANSFER_TIMEOUT, limit_size=MAX_PATCH_SIZE + HEAD_SIZE
    )
    # The id becomes the name of a file here, and must not be a path.
    if not TREE_ID.fullmatch(made.id):
        raise HostUnavailable(host.name, "invalid response: no valid worktree id")
    if made.bundle is None or hashlib.sha256(patch).hexdigest() != made.digest:
        raise HostUnavailable(
            host.name, "the patch or its description arrived damaged", passing=True
        )
    return HostResult(id=made.id, bundle=made.bundle, patch=patch)


async def remove_workspace(host: Host, id: str) -> None:
    """Remove the worktree with this id on the host, without saving its changes."""
    await _exchange(host, TransferRequest(what="remove", id=id))


async def _exchange(
    host: Host,
    request: TransferRequest,
    *,
    payload: Iterable[bytes] = (),
    timeout: float = ASK_TIMEOUT,
    limit_size: int = HEAD_SIZE,
) -> tuple[TransferResponse, bytes]:
    def sent() -> Iterator[bytes]:
        yield msgspec.json.encode(request) + b"\n"
        yield from payload

    done = await run_on_host(
        host,
        [host.program, "hosts", "transfer"],
        timeout=timeout,
        limit_size=limit_size,
        input=sent(),
    )
    head, patch = _divide(done.output)
    if head is None:
        error = failure(host, done, timeout=timeout, limit_size=limit_size)
        if "No such command" in done.errors or "no such command" in done.errors:
            error = HostUnavailable(
                host.name,
                "dragoman there is too old to receive files and return changes",
                remedy=f"install this version there with `dragoman hosts bootstrap {host.name}`",
            )
        raise error
    if head.error is not None:
        told = revive(head.error)
        if told is None:
            raise HostUnavailable(host.name, "the host reported an error that cannot be decoded")
        if isinstance(told, SpawnError):
            # git is the only program that a transfer runs there.
            raise HostUnavailable(
                host.name,
                f"git cannot be used there: {told}",
                remedy="install git there, and put it on the PATH of remote commands",
            )
        raise explain_remote(host, told)
    if len(patch) < head.size:
        raise failure(host, done, timeout=timeout, limit_size=limit_size)
    return head, patch[: head.size]


def _divide(output: bytes) -> tuple[TransferResponse | None, bytes]:
    """Return the response and the bytes after its line, or None and no bytes if there is no
    response."""
    start = 0
    while (start := output.find(MARK, start)) >= 0:
        line, newline, rest = output[start + len(MARK) :].partition(b"\n")
        at_line_start = start == 0 or output[start - 1 : start] == b"\n"
        if newline and at_line_start:
            try:
                return decode_typed(line, TransferResponse), rest
            except UNDECODABLE:
                pass
        start += len(MARK)
    return None, b""


def _chunks(file: Path) -> Iterator[bytes]:
    with file.open("rb") as opened:
        while data := opened.read(CHUNK_SIZE):
            yield data


def check_same_repository(result: HostResult, project: str, *, has_head: bool) -> None:
    """Raise `UsageError` unless the changes belong to the repository that they would be applied to.

    `project` identifies that repository. Another clone is accepted as well if it has the commit
    that was sent (`has_head`).
    """
    if result.bundle.project != project and not has_head:
        raise UsageError(
            f"these changes are for another repository ({result.bundle.name}); change to its "
            "directory, or name the directory with --cwd"
        )
