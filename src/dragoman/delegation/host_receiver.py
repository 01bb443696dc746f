"""Serve one file transfer on the remote machine: ``dragoman hosts transfer``.

Reads a request and possibly a bundle from stdin, and writes a response and possibly a patch to
stdout. `host_transfer` is the other end and defines the messages; `worktree.sent_tree` does the
work.
"""

from __future__ import annotations

import hashlib
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import BinaryIO, Final

import msgspec

from dragoman.broker.error_codec import describe
from dragoman.client.folders import make_private
from dragoman.decoders import decode_typed
from dragoman.delegation.host_transfer import (
    CHUNK_SIZE,
    HEAD_SIZE,
    MARK,
    TransferRequest,
    TransferResponse,
)
from dragoman.delegation.worktree.bundle import MAX_BUNDLE_SIZE, Bundle
from dragoman.delegation.worktree.sent_tree import (
    SentTree,
    known_heads,
    read_sent,
    remove_old,
    remove_sent,
    result_patch,
    unpack,
)
from dragoman.errors import DragomanError, FileFailed, IsolationFailed, UsageError
from dragoman.paths import Paths
from dragoman.runs import git
from dragoman.runs.jobs import find_job, job_id_of
from dragoman.wire.messages import UNDECODABLE

READ_TIMEOUT: Final = 120.0
"""Seconds in which more of a request has to arrive. If the link dies, sshd may not notice for
hours, and this process would wait as long."""

WRITE_TIMEOUT: Final = 1800.0
"""Seconds to send a response with its patch."""

LEFT_AGE: Final = 86400.0
"""Seconds after which a bundle that was not received completely is removed."""

PART: Final = ".receive-"
"""Prefix of the file name of a bundle that is being received."""

SENT: Final = "sent"
"""Directory, in the state directory, of the worktrees that other machines have sent."""


async def serve_transfer(source: BinaryIO, target: BinaryIO, paths: Paths) -> bool:
    """Read a request from `source`, carry it out, and write the response to `target`. Returns False
    if the request failed; in this case the response says why."""
    patch = b""
    try:
        request = _read_request(source)
        response, patch = await _serve(request, source, paths)
    except DragomanError as error:
        response = TransferResponse(error=describe(error))
    except OSError as error:
        failed = FileFailed(str(paths.state), error.strerror or str(error), error.errno)
        response = TransferResponse(error=describe(failed))
    with _limit(WRITE_TIMEOUT):
        # The line break ends any output of a login shell that does not end with one.
        target.write(b"\n" + MARK + msgspec.json.encode(response) + b"\n" + patch)
        target.flush()
    return response.error is None


@contextmanager
def _limit(seconds: float) -> Iterator[None]:
    """Context manager: raise `IsolationFailed` if the block, a read or a write, takes longer than
    `seconds`."""

    def over(number: int, frame: FrameType | None) -> None:
        raise IsolationFailed(
            "the transfer", f"a read or write did not finish within {seconds:g} s"
        )

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _read_request(source: BinaryIO) -> TransferRequest:
    with _limit(READ_TIMEOUT):
        line = source.readline(HEAD_SIZE)
    try:
        return decode_typed(line, TransferRequest)
    except UNDECODABLE as error:
        raise UsageError(f"invalid transfer request: {error}") from error


async def _serve(
    request: TransferRequest, source: BinaryIO, paths: Paths
) -> tuple[TransferResponse, bytes]:
    folder = paths.state / SENT
    match request.what:
        case "known":
            heads = await known_heads(folder, request.project)
            return TransferResponse(heads=list(heads)), b""
        case "receive":
            if request.bundle is None:
                raise UsageError("invalid transfer request: the bundle is missing")
            sent = await _receive(request.bundle, source, folder, paths)
            return TransferResponse(id=sent.id, workspace=sent.workspace), b""
        case "result":
            sent = await _sent_tree(request, folder, paths)
            patch = await result_patch(sent, against=request.against)
            digest = hashlib.sha256(patch).hexdigest()
            response = TransferResponse(
                id=sent.id, bundle=sent.bundle, size=len(patch), digest=digest
            )
            return response, patch
        case "remove":
            await remove_sent(folder, await _sent_tree(request, folder, paths))
            return TransferResponse(), b""


async def _receive(bundle: Bundle, source: BinaryIO, folder: Path, paths: Paths) -> SentTree:
    if bundle.size < 0:
        raise UsageError(f"invalid transfer request: a bundle of {bundle.size} bytes")
    if bundle.size > MAX_BUNDLE_SIZE:
        raise UsageError(f"the bundle is larger than {MAX_BUNDLE_SIZE >> 20} MiB")
    make_private(folder)
    await remove_old(folder, patches=paths.state / "patches")
    _remove_left(folder)
    with tempfile.NamedTemporaryFile(prefix=PART, dir=folder) as file:
        left = bundle.size
        while left:
            with _limit(READ_TIMEOUT):
                data = source.read(min(left, CHUNK_SIZE))
            if not data:
                raise IsolationFailed("receiving the bundle", "the connection ended")
            file.write(data)
            left -= len(data)
        file.flush()
        return await unpack(Path(file.name), bundle, folder=folder)


def _remove_left(folder: Path) -> None:
    """Remove the bundles that killed processes were receiving, once they are old enough."""
    for file in folder.glob(f"{PART}*"):
        with suppress(OSError):
            if time.time() - file.stat().st_mtime > LEFT_AGE:
                file.unlink()


async def _sent_tree(request: TransferRequest, folder: Path, paths: Paths) -> SentTree:
    if not request.job:
        return read_sent(folder, request.id)
    job = await find_job(job_id_of(request.job, paths=paths), paths=paths)
    if job.state != "ended":
        raise UsageError(
            f"job {job.id} is still running; wait for it with `dragoman jobs watch {job.id}`"
        )
    # A job's root is the top of its worktree, and the directory above it is named by the id.
    root, trees = git.real(Path(job.root)), git.real(folder / "trees")
    if not root.is_relative_to(trees) or root == trees:
        raise UsageError(
            f"job {job.id} did not work on sent files, but in {job.root}: its changes are there"
        )
    return read_sent(folder, root.relative_to(trees).parts[0])
