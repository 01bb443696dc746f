"""Lists of workers and jobs, results, and patches that do not apply. `tests/fleet` follows real
jobs."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dragoman.cli.output.fleet_pages import (
    _result,
    _said,
    apply,
    watch,
    write_jobs,
    write_workers,
)
from dragoman.fleet import subjects, submitter
from dragoman.fleet.objects import put_object
from dragoman.fleet.records import (
    NOTICE,
    FleetAttempt,
    FleetJob,
    FleetResult,
    JobLine,
    JobSpec,
    ObjectRef,
    WorkerStatus,
    encode,
)
from dragoman.fleet.submitter import FleetEvent
from tests.aio import aio
from tests.unit.delegation.worktree.repositories import git, make
from tests.unit.fleet import test_submitter
from tests.unit.fleet.fakes import MemoryConnection

WORKER = WorkerStatus(
    name="w1",
    machine="box",
    slots=2,
    running=(),
    labels=("gpu",),
    peers={"codex": "ready", "gemini": "not installed"},
    draining=True,
    silent=1.0,
)
JOB = JobLine(
    id="f1",
    submitter="s1",
    role="review",
    prompt="look at it",
    state="queued",
    worker="",
    attempts=0,
    created_at=0.0,
    waiting="no worker is connected",
)


def test_workers_and_jobs_are_written_as_tables(capsys: pytest.CaptureFixture[str]) -> None:
    write_workers([WORKER], "text")
    write_jobs([JOB], "text")
    told = capsys.readouterr().out
    assert "0 of 2" in told and "draining" in told
    assert "codex, gemini (not installed)" in " ".join(told.split())
    assert "queued: no worker is connected" in told


def test_workers_and_jobs_are_written_as_json_objects(capsys: pytest.CaptureFixture[str]) -> None:
    write_workers([WORKER], "json")
    write_jobs([JOB], "json")
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["name"] == "w1" and second["waiting"] == "no worker is connected"


def test_an_empty_fleet_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    write_workers([], "text")
    write_jobs([], "text")
    told = capsys.readouterr().err
    assert "dragoman fleet worker" in told and "dragoman fleet submit" in told


def test_only_the_agents_messages_are_printed() -> None:
    event = {"type": "MessageDelta", "role": "agent", "text": "hello"}
    assert _said(FleetEvent(1, "w1", 1, event)) == "hello"
    assert _said(FleetEvent(1, "w1", 1, event | {"role": "user"})) == ""


def test_the_result_names_lost_attempts_and_how_to_apply_the_patch(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ref = ObjectRef(owner="w2", id="x", chunks=1, size=1, key="")
    job = FleetJob(
        id="f1",
        submitter="s1",
        spec=JobSpec(role="execute", prompt="x", bundle=ref),
        state="done",
        attempts=(
            FleetAttempt(number=1, worker="w1", assigned_at=1.0, end="lost", why="was lost"),
            FleetAttempt(number=2, worker="w2", assigned_at=2.0, end="done"),
        ),
        created_at=0.0,
        result=FleetResult(ok=True, outcome="ok", peer="codex", worker="w2", patch=ref),
    )
    assert _result(job, "text") == 0
    told = capsys.readouterr().err
    assert "ok by codex on w2" in told and "attempt 1 on w1: lost" in told
    assert "dragoman fleet apply f1" in told


@aio
async def test_unreadable_and_missing_events_of_a_followed_job_are_reported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submitter, "SETTLE_TIMEOUT", 0.0)
    memory = MemoryConnection("s1")
    await memory.store(subjects.job_record("f1"), encode(test_submitter.JOB))
    await memory.store(subjects.events("w2", "f1", 2), b"nonsense")
    assert await watch(memory.as_connection(), "f1", "text") == 0
    told = capsys.readouterr().err
    assert "dragoman: events of w2 cannot be read: invalid fleet data (EventBatch)" in told
    assert "dragoman: 4 events of f1 are missing\n" in told


@aio
async def test_text_and_notices_of_a_followed_job_keep_their_order_in_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def follow(reader: submitter.JobReader) -> AsyncIterator[FleetEvent]:
        for attempt, text in ((1, "half of"), (2, "the whole")):
            event = {"type": "MessageDelta", "role": "agent", "text": text}
            yield FleetEvent(attempt, f"w{attempt}", 1, event)
        yield FleetEvent(2, "w2", 2, {"type": NOTICE, "text": "its changes stay in /tmp/x"})
        reader.job = test_submitter.JOB

    monkeypatch.setattr(submitter.JobReader, "follow", follow)
    path = tmp_path / "log"
    with path.open("a") as out, path.open("a", buffering=1) as err:
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stderr", err)
        await watch(MemoryConnection("s1").as_connection(), "f1", "text")
    assert path.read_text().splitlines()[:5] == [
        "dragoman: attempt 1 on w1",
        "half of",
        "dragoman: attempt 2 on w2",
        "the whole",
        "dragoman: w2: its changes stay in /tmp/x",
    ]


@aio
async def test_a_patch_that_does_not_apply_names_the_conflict_and_where_it_is_saved(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAGOMAN_STATE_HOME", str(tmp_path / "state"))
    workspace = make(tmp_path / "work")
    (workspace / "a.txt").write_text("changed\n")
    patch = git(workspace, "diff").encode()
    (workspace / "a.txt").write_text("changed differently\n")
    memory = MemoryConnection("s1")
    ref = await put_object(memory.as_connection(), patch)
    job = FleetJob(
        id="f1",
        submitter="s1",
        spec=JobSpec(role="execute", prompt="x", bundle=ref),
        state="done",
        created_at=0.0,
        result=FleetResult(ok=True, outcome="ok", patch=ref),
    )
    await memory.store(subjects.job_record("f1"), encode(job))
    assert await apply(memory.as_connection(), "f1", workspace) == 1
    told = capsys.readouterr().err
    assert "conflict in a.txt: " in told
    assert f"nothing was changed; it is saved in {tmp_path / 'state' / 'patches'}" in told
    assert (workspace / "a.txt").read_text() == "changed differently\n"
