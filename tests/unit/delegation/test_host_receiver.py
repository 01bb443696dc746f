"""The remote side of a transfer: every kind of request, and invalid ones."""

from __future__ import annotations

import io
import os
import time
from pathlib import Path

import msgspec
import pytest

from dragoman.broker.error_codec import revive
from dragoman.delegation import host_receiver
from dragoman.delegation.host_receiver import LEFT_AGE, PART, SENT, serve_transfer
from dragoman.delegation.host_transfer import MARK, TransferRequest, TransferResponse
from dragoman.delegation.worktree.bundle import pack
from dragoman.delegation.worktree.sent_tree import RECORD, SentTree
from dragoman.errors import DragomanError
from tests.aio import aio
from tests.unit.config.folders import paths_in
from tests.unit.delegation.worktree.repositories import make


async def ask(tmp_path: Path, request: TransferRequest | bytes, data: bytes = b"") -> tuple[
    TransferResponse, bytes
]:  # fmt: skip
    line = request if isinstance(request, bytes) else msgspec.json.encode(request)
    target = io.BytesIO()
    ok = await serve_transfer(io.BytesIO(line + b"\n" + data), target, paths_in(tmp_path))
    _, _, rest = target.getvalue().partition(b"\n" + MARK)
    head, _, patch = rest.partition(b"\n")
    response = msgspec.json.decode(head, type=TransferResponse)
    assert ok is (response.error is None)
    return response, patch


def problem(response: TransferResponse) -> DragomanError:
    error = revive(response.error)
    assert error is not None
    return error


@aio
async def test_a_bundle_becomes_a_worktree_and_its_changes_are_returned(tmp_path: Path) -> None:
    folder, file = make(tmp_path / "repo"), tmp_path / "it.bundle"
    bundle = await pack(folder, file)
    known = TransferRequest(what="known", project=bundle.project)
    assert (await ask(tmp_path, known))[0].heads == []
    data = file.read_bytes()
    made, _ = await ask(tmp_path, TransferRequest(what="receive", bundle=bundle), data)
    assert (await ask(tmp_path, known))[0].heads == [bundle.head]
    (Path(made.workspace) / "a.txt").write_text("changed\n")
    response, patch = await ask(tmp_path, TransferRequest(what="result", id=made.id))
    assert response.size == len(patch) and b"+changed" in patch and response.bundle == bundle
    await ask(tmp_path, TransferRequest(what="remove", id=made.id))
    gone, _ = await ask(tmp_path, TransferRequest(what="result", id=made.id))
    assert "no sent worktree" in str(problem(gone))
    left = sorted(path.name for path in (tmp_path / "state" / SENT).iterdir())
    assert left == ["repositories", "trees"]


@pytest.mark.parametrize(
    "line",
    [
        *(b"", b"{}", b'{"what": "delete"}', b'{"what": "receive"}', b'{"what": "\xff"}'),
        b'{"bundle": ' + b"[" * 50_000,
        b'{"other": ' + b"[" * 50_000,
    ],
    ids=lambda line: repr(line[:20]),
)
@aio
async def test_an_invalid_request_is_an_error(tmp_path: Path, line: bytes) -> None:
    response, _ = await ask(tmp_path, line)
    assert problem(response).error_class == "usage"


@aio
async def test_a_connection_that_ends_during_the_bundle_leaves_no_files(tmp_path: Path) -> None:
    file = tmp_path / "it.bundle"
    bundle = await pack(make(tmp_path / "repo"), file)
    request = TransferRequest(what="receive", bundle=bundle)
    response, _ = await ask(tmp_path, request, file.read_bytes()[:-5])
    assert "the connection ended" in str(problem(response))
    assert not list((tmp_path / "state" / SENT).iterdir())


@pytest.mark.parametrize("part", [b"", b"half a request", None])
@aio
async def test_a_link_that_is_dead_does_not_leave_a_process_that_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: bytes | None
) -> None:
    monkeypatch.setattr(host_receiver, "READ_TIMEOUT", 0.05)
    if part is None:
        bundle = await pack(make(tmp_path / "repo"), tmp_path / "it.bundle")
        request = TransferRequest(what="receive", bundle=bundle)
        part = msgspec.json.encode(request) + b"\nhalf of a bundle"
    read_end, write_end = os.pipe()
    os.write(write_end, part)
    target = io.BytesIO()
    with os.fdopen(read_end, "rb") as source, os.fdopen(write_end, "wb"):
        assert not await serve_transfer(source, target, paths_in(tmp_path))
    assert b"did not finish within" in target.getvalue()
    assert not list((tmp_path / "state").glob(f"{SENT}/*"))


@aio
async def test_a_bundle_of_a_process_that_was_killed_is_removed_some_day(tmp_path: Path) -> None:
    folder = tmp_path / "state" / SENT
    folder.mkdir(parents=True)
    for name, age in (("old", 2 * LEFT_AGE), ("new", 60.0)):
        (folder / f"{PART}{name}").touch()
        os.utime(folder / f"{PART}{name}", (time.time() - age,) * 2)
    file = tmp_path / "it.bundle"
    bundle = await pack(make(tmp_path / "repo"), file)
    await ask(tmp_path, TransferRequest(what="receive", bundle=bundle), file.read_bytes())
    assert [each.name for each in folder.glob(f"{PART}*")] == [f"{PART}new"]


@aio
async def test_the_patch_of_an_old_worktree_that_is_removed_is_logged_with_its_path(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "it.bundle"
    bundle = await pack(make(tmp_path / "repo"), file)
    receive = TransferRequest(what="receive", bundle=bundle)
    made, _ = await ask(tmp_path, receive, file.read_bytes())
    (Path(made.workspace) / "a.txt").write_text("changed\n")
    record = tmp_path / "state" / SENT / "trees" / made.id / RECORD
    sent = msgspec.json.decode(record.read_bytes(), type=SentTree)
    record.write_bytes(msgspec.json.encode(msgspec.structs.replace(sent, made_at=0.0)))
    await ask(tmp_path, receive, file.read_bytes())
    assert not record.exists()
    patch = tmp_path / "state" / "patches" / f"{made.id}.patch"
    assert b"+changed" in patch.read_bytes()
    assert f"are saved in {patch}" in caplog.text


@aio
async def test_an_unknown_job_is_an_error(tmp_path: Path) -> None:
    response, _ = await ask(tmp_path, TransferRequest(what="result", job="j-none"))
    assert "no job" in str(problem(response))
