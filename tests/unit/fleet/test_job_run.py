"""Running a job on a worker: a job never gets more than the worker's own settings allow."""

from __future__ import annotations

import dataclasses
import errno
import os
import stat
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from dragoman.errors import IsolationFailed, NoPeer, UsageError
from dragoman.fleet import job_run
from dragoman.fleet.job_run import (
    LEFT_AGE,
    OWNER,
    WorkerLimits,
    failed_attempt,
    job_folder,
    narrowed_permissions,
    refusal,
    remove_leftovers,
    removed,
    require_no_secret,
    unpacked,
    worker_context,
    worker_secrets,
)
from dragoman.fleet.records import NOTICE, AttemptEnded, JobSpec, ObjectRef
from dragoman.runs.context import RunContext
from dragoman.runs.run_values import CancelHandle
from dragoman.store.ledger.ledger import ledger_path
from dragoman.transports.process.identity import own_identity
from tests.aio import aio
from tests.integration.delegated_peers import bench_in
from tests.unit.fleet.fakes import MemoryConnection
from tests.unit.fleet.test_event_publisher import WORKSPACE, batches, publisher, said


def spec(**more: object) -> JobSpec:
    bundle = ObjectRef(owner="s1", id="x", chunks=1, size=1, key="")
    return JobSpec(role="execute", prompt="x", bundle=bundle, **more)  # type: ignore[arg-type]


def place(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str, *peers: str) -> RunContext:
    monkeypatch.setenv("DRAGOMAN_CONFIG_HOME", str(folder / "config"))
    (folder / "config").mkdir(exist_ok=True)
    (folder / "config" / "config.toml").write_text(text)
    return worker_context(folder, WorkerLimits(peers=peers))


def test_a_job_can_ask_for_fewer_permissions_but_never_for_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = place(tmp_path, monkeypatch, 'permissions = "approve-reads"\n')
    assert narrowed_permissions("approve-all", reads) is None
    assert narrowed_permissions("deny-all", reads) == "deny-all"
    assert narrowed_permissions(None, reads) is None
    everything = place(tmp_path, monkeypatch, 'permissions = "approve-all"\n')
    assert narrowed_permissions("approve-all", everything) == "approve-all"


def test_the_permissions_of_the_strictest_peer_are_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mixed = place(
        tmp_path,
        monkeypatch,
        'permissions = "approve-all"\nenabled_peers = ["codex", "gemini"]\n'
        '[peers.gemini]\npermissions = "approve-reads"\n',
    )
    assert narrowed_permissions("approve-all", mixed) is None


def test_jobs_may_use_only_the_peers_named_by_the_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = place(tmp_path, monkeypatch, 'enabled_peers = ["codex", "gemini"]\n', "codex", "x")
    assert found.config.settings.enabled_peers == ("codex",)
    assert refusal(spec(peer="gemini"), found, WorkerLimits()) != ""
    assert refusal(spec(peer="codex"), found, WorkerLimits()) == ""


def test_a_job_with_a_check_command_is_refused_unless_checks_are_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = place(tmp_path, monkeypatch, "")
    assert "--allow-checks" in refusal(spec(check="make test"), found, WorkerLimits())
    assert refusal(spec(check="make test"), found, WorkerLimits(checks=True)) == ""


@aio
async def test_only_old_job_directories_are_removed(tmp_path: Path) -> None:
    folder = job_folder(tmp_path, "f1", 1)
    folder.mkdir(parents=True)
    await remove_leftovers(tmp_path, now=folder.stat().st_mtime + 60)
    assert folder.is_dir()
    await remove_leftovers(tmp_path, now=folder.stat().st_mtime + 2 * LEFT_AGE)
    assert not folder.exists()


@aio
async def test_a_job_without_a_repository_description_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="invalid description"):
        await unpacked(spec(), b"", folder=tmp_path / "job")


@aio
async def test_a_worker_without_room_for_the_repository_refuses_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, data: bytes, **options: Any) -> None:
        # The event loop must not be blocked.
        assert threading.current_thread() is not threading.main_thread()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(job_run, "write_whole", full)
    packed = {
        name: "" for name in ("project", "name", "subfolder", "head", "sent_head", "sent", "staged")
    }
    job = msgspec.structs.replace(spec(), packed={**packed, "object_format": "sha1"})
    with pytest.raises(IsolationFailed, match="No space left"):
        await unpacked(job, b"", folder=tmp_path / "job")


@aio
async def test_directories_of_dead_processes_are_removed_and_those_of_running_ones_stay(
    tmp_path: Path,
) -> None:
    mine, dead = job_folder(tmp_path, "f1", 1), job_folder(tmp_path, "f2", 1)
    for folder in (mine, dead):
        folder.mkdir(parents=True)
    me = own_identity()
    (mine / OWNER).write_bytes(msgspec.json.encode(me))
    (dead / OWNER).write_bytes(msgspec.json.encode(dataclasses.replace(me, started="1")))
    await remove_leftovers(tmp_path, now=mine.stat().st_mtime + 2 * LEFT_AGE)
    assert mine.is_dir() and not dead.exists()


@aio
async def test_write_protected_directories_of_a_job_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = job_folder(tmp_path, "f1", 1)
    cache = folder / "cache"
    cache.mkdir(parents=True)
    (cache / "module.go").touch()
    cache.chmod(0o500)
    unlink = os.unlink

    def checked(path: Any, *, dir_fd: int | None = None) -> None:
        # As for any user but root.
        found = os.stat(os.path.dirname(path)) if dir_fd is None else os.fstat(dir_fd)
        if not found.st_mode & stat.S_IWUSR:
            raise PermissionError(errno.EACCES, "Permission denied", path)
        unlink(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", checked)
    await removed(folder)
    assert not folder.exists()


@aio
async def test_a_job_directory_that_cannot_be_removed_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(job_run, "remove_tree", lambda folder: None)
    await removed(tmp_path)
    assert f"the job directory {tmp_path} could not be removed completely" in caplog.text


@aio
async def test_directories_that_another_worker_removes_at_the_same_time_are_not_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, left = job_folder(tmp_path, "f1", 1), job_folder(tmp_path, "f2", 1)
    left.mkdir(parents=True)
    now = left.stat().st_mtime + 2 * LEFT_AGE
    monkeypatch.setattr(Path, "glob", lambda path, pattern: iter([gone, left]))
    await remove_leftovers(tmp_path, now=now)
    assert not left.exists()


@pytest.mark.parametrize("job", ["/etc/x", "../x", "a/b", "", ".", "a b", "x" * 65])
def test_a_job_id_cannot_name_a_directory_elsewhere(tmp_path: Path, job: str) -> None:
    with pytest.raises(UsageError, match="not a job id"):
        job_folder(tmp_path, job, 1)


def test_secrets_are_those_of_the_peers_of_the_settings_and_of_the_fleet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-catalogue")
    monkeypatch.setenv("ACCESS_CARD", "handed-to-the-peer")
    monkeypatch.setenv("COLOUR", "not-a-secret-at-all")
    text = 'enabled_peers = ["codex"]\n[peer.codex]\nenv = ["ACCESS_CARD"]\n'
    found = worker_secrets(place(tmp_path, monkeypatch, text), "seed-of-the-fleet")
    assert {"sk-of-the-catalogue", "handed-to-the-peer", "seed-of-the-fleet"} <= set(found)
    assert "not-a-secret-at-all" not in found


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        ("+key = sk-0123456789abcdef", True),
        ("+MIIEvQIBADANBgkqhkiG9w0BAQEFAASC", True),
        # The submitter has it already.
        (" key = sk-0123456789abcdef", False),
        ("-key = sk-0123456789abcdef", False),
        ("+a short one", False),
        ("+-----BEGIN PRIVATE KEY-----", False),
        ("+nothing", False),
    ],
)
def test_a_patch_that_adds_a_secret_of_the_worker_is_not_sent(line: str, refused: bool) -> None:
    key = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n"
    secrets = ("sk-0123456789abcdef", "short", key)
    patch = f"diff --git a/x b/x\n@@ -1 +1 @@\n{line}\n".encode()
    if refused:
        with pytest.raises(IsolationFailed, match="a secret of this machine"):
            require_no_secret(patch, secrets)
    else:
        require_no_secret(patch, secrets)


@aio
async def test_an_error_before_any_event_lets_another_worker_run_the_job() -> None:
    out = publisher(MemoryConnection())
    assert failed_attempt(out, "no peer", 1.0) == AttemptEnded(refused="no peer")


@aio
async def test_an_error_after_a_peer_was_prompted_ends_the_job() -> None:
    out = publisher(MemoryConnection())
    out.add(said("hello"), WORKSPACE)
    out.finish()
    await out.run()
    ended = failed_attempt(out, "the patch is too large", 1.0)
    assert not ended.refused and ended.result is not None
    assert (ended.result.outcome, ended.result.events) == ("failed", 1)
    assert ended.result.may_have_run


@aio
async def test_a_notice_of_a_job_is_published_and_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench = bench_in(tmp_path)
    bench.settings()
    bench.state.mkdir()
    ledger_path(bench.state).write_bytes(b"junk" * 4096)
    monkeypatch.setattr(job_run, "worker_context", lambda folder, limits: bench.place())
    sent: Any = SimpleNamespace(workspace=str(bench.work))
    out = publisher(memory := MemoryConnection())
    with pytest.raises(NoPeer):
        await job_run.run_job(
            spec(fallback="peers"),
            sent,
            limits=WorkerLimits(),
            cancel=CancelHandle(),
            on_event=lambda event: None,
            on_told=out.tell,
        )
    out.finish()
    await out.run()
    [notice] = [told for batch in batches(memory) for told in batch.events]
    assert notice["type"] == NOTICE and "damaged" in notice["text"]
    logged = [one for one in caplog.records if one.name == "dragoman.fleet"]
    assert [one.getMessage() for one in logged] == [notice["text"]]
    # No peer was prompted, so another worker may still run the job.
    assert failed_attempt(out, "no peer", 1.0) == AttemptEnded(refused="no peer")
