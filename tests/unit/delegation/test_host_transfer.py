"""Files to another machine and back, with a fake ssh that runs the command locally."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import msgspec
import pytest

from dragoman.broker.client.ssh_command import Host
from dragoman.config.schema import HostSettings
from dragoman.delegation.host_transfer import (
    HostResult,
    check_same_repository,
    fetch_result,
    remove_workspace,
    send_workspace,
)
from dragoman.delegation.worktree.bundle import pack
from dragoman.errors import HostUnavailable, UsageError
from tests.aio import aio
from tests.unit.broker.client.fake_ssh import fake_ssh
from tests.unit.delegation.worktree.repositories import git, make, tree


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """A host that is this machine, with its own directories and a shell that prints other lines."""
    far = tmp_path / "far"
    program = tmp_path / "dragoman"
    names = ("CONFIG_HOME", "DATA_HOME", "CACHE_HOME", "STATE_HOME", "RUNTIME_DIR")
    lines = [f"export DRAGOMAN_{name}='{far / name.lower()}'" for name in names]
    lines += [
        "printf 'Welcome! dragoman-transfer: {'",
        f"exec '{sys.executable}' -m dragoman \"$@\"",
    ]
    program.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    program.chmod(0o755)
    fake_ssh(tmp_path, monkeypatch)
    return Host("box", HostSettings(dragoman=str(program)))


@aio
async def test_uncommitted_changes_are_sent_and_the_result_is_fetched(
    tmp_path: Path, host: Host
) -> None:
    folder = make(tmp_path / "repo")
    (folder / "a.txt").write_text("dirty\n")
    sent = await send_workspace(host, folder)
    assert tree(Path(sent.workspace)) == tree(folder)
    (Path(sent.workspace) / "new").write_bytes(b"\0new\n")
    result = await fetch_result(host, id=sent.id)
    assert b"new" in result.patch and b"dirty" not in result.patch
    assert b"+dirty" in (await fetch_result(host, id=sent.id, against="head")).patch
    again = await send_workspace(host, folder)
    assert again.bundle.base == (sent.bundle.head,) and again.id != sent.id
    await remove_workspace(host, sent.id)
    with pytest.raises(UsageError, match="no sent worktree"):
        await fetch_result(host, id=sent.id)


@aio
async def test_a_host_without_git_is_named(tmp_path: Path, host: Host) -> None:
    program = tmp_path / "dragoman"
    folder = make(tmp_path / "repo")
    program.write_text(program.read_text().replace("exec ", f"PATH={tmp_path} exec "))
    with pytest.raises(HostUnavailable, match="box: git cannot be used there") as caught:
        await send_workspace(host, folder)
    assert "install git there" in caught.value.remedy


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("echo 'Permission denied (publickey)' >&2; exit 255", "password"),
        ("echo 'dragoman: No such command transfer' >&2; exit 2", "too old to receive files"),
        ("echo dragoman-transfer: broken", "the command failed there"),
        (
            "printf 'dragoman-transfer: {\"x\": %050000d\\n' 0 | tr 0 '['",
            "the command failed there",
        ),
        ("printf 'dragoman-transfer: {\"size\": 5}\\nab'", "the command failed there"),
    ],
)
@aio
async def test_an_invalid_response_is_an_error_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, words: str
) -> None:
    fake_ssh(tmp_path, monkeypatch, body)
    with pytest.raises(HostUnavailable, match=words):
        await fetch_result(Host("box", HostSettings()), id="0" * 16)


@pytest.mark.parametrize("id", ["../../../evil", "", "0" * 15 + "\\n", "x" * 16])
@aio
async def test_an_id_from_the_host_cannot_name_a_file_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, id: str
) -> None:
    file = tmp_path / "it.bundle"
    bundle = msgspec.json.encode(await pack(make(tmp_path / "repo"), file)).decode()
    digest = hashlib.sha256(b"").hexdigest()
    head = f'{{"id": "{id}", "workspace": "/x", "digest": "{digest}", "bundle": {bundle}}}'
    (tmp_path / "answer").write_text(f"dragoman-transfer: {head}\n")
    fake_ssh(tmp_path, monkeypatch, f"cat {tmp_path}/answer")
    box = Host("box", HostSettings())
    with pytest.raises(HostUnavailable, match="no valid worktree id"):
        await fetch_result(box, id="0" * 16)
    with pytest.raises(HostUnavailable, match="no valid worktree id and path"):
        await send_workspace(box, tmp_path / "repo")


@aio
async def test_changes_of_another_repository_are_rejected(tmp_path: Path, host: Host) -> None:
    folder = make(tmp_path / "repo")
    sent = await send_workspace(host, folder)
    result = HostResult(id=sent.id, bundle=sent.bundle, patch=b"")
    check_same_repository(result, sent.bundle.project, has_head=False)
    check_same_repository(result, "other", has_head=True)
    with pytest.raises(UsageError, match="for another repository"):
        check_same_repository(result, "other", has_head=False)
    assert git(folder, "status", "--porcelain") == ""
