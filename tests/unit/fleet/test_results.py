"""Results of jobs: read from the server, and recorded once in the submitter's ledger."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from dragoman.delegation.executed_records import reports_of
from dragoman.delegation.request import DelegationRequest
from dragoman.errors import FleetError, FleetFull, FleetRefused, FleetUnreachable
from dragoman.events.words import Outcome
from dragoman.fleet import results, subjects
from dragoman.fleet.objects import put_object
from dragoman.fleet.records import FleetJob, FleetResult, encode
from dragoman.fleet.results import (
    PENDING,
    PENDING_AGE,
    collect_results,
    executed_job,
    note_submitted,
    pending_jobs,
    submit_noted,
)
from dragoman.fleet.submitter import PackedWorkspace
from dragoman.runs.context import RunContext
from dragoman.store.ledger import AttemptRecord, Ledger, ledger_path
from tests.aio import aio
from tests.unit.delegation.executed import delegation, report
from tests.unit.fleet.fakes import MemoryConnection
from tests.unit.fleet.test_submitter import JOB
from tests.unit.runs.contexts import place_in


async def finished(memory: MemoryConnection, data: bytes | None = None) -> FleetJob:
    """Store a job whose first worker was lost, with its result."""
    worker = MemoryConnection("w2")
    worker.messages = memory.messages
    whole = msgspec.json.encode(delegation(report())) if data is None else data
    ref = await put_object(worker.as_connection(), whole)
    patch = await put_object(worker.as_connection(), b"patch")
    result = FleetResult(ok=True, outcome="ok", worker="w2", attempt=2, delegation=ref, patch=patch)
    job = structs.replace(JOB, result=result, ended_at=5.0)
    await memory.store(subjects.job_record(job.id), encode(job))
    return job


def attempts(place: RunContext) -> list[AttemptRecord]:
    with Ledger.open(ledger_path(place.paths.state), read_only=True) as ledger:
        return ledger.attempts("f1")


@aio
async def test_a_result_has_the_delegation_the_patch_and_the_lost_attempts() -> None:
    memory = MemoryConnection("s1")
    job = await executed_job(memory.as_connection(), await finished(memory))
    assert job.delegation == delegation(report())
    assert (job.machine, job.patch) == ("w2", b"patch")
    assert [one.machine for one in job.lost] == ["w1"]


@aio
async def test_a_lost_job_counts_as_crashed_and_an_unknown_outcome_as_unknown() -> None:
    memory = MemoryConnection("s1")
    for word, outcome in (("lost", Outcome.CRASHED), ("new word", Outcome.UNKNOWN)):
        job = structs.replace(JOB, result=FleetResult(ok=False, outcome=word))
        assert (await executed_job(memory.as_connection(), job)).outcome is outcome


@pytest.mark.parametrize("may_have_run", [False, True])
@aio
async def test_a_job_without_a_delegation_says_whether_it_may_have_run(may_have_run: bool) -> None:
    memory = MemoryConnection("s1")
    lost = structs.replace(JOB.attempts[0], may_have_run=may_have_run)
    ended = FleetResult(ok=False, outcome="failed", worker="w2", may_have_run=may_have_run)
    record = structs.replace(JOB, attempts=(lost,), result=ended)
    job = await executed_job(memory.as_connection(), record)
    assert [one.may_have_run for one in reports_of(job)] == [may_have_run, may_have_run]


@aio
async def test_an_undecodable_delegation_raises_a_fleet_error() -> None:
    memory = MemoryConnection("s1")
    job = await finished(memory, b'{"job": 1}')
    with pytest.raises(FleetError, match="cannot decode"):
        await executed_job(memory.as_connection(), job)


@aio
async def test_jobs_that_have_ended_are_recorded_once(tmp_path: Path) -> None:
    place, memory = place_in(tmp_path), MemoryConnection("s1")
    note_submitted(place.paths.state, "red", "f1")

    async def collect() -> None:
        await collect_results(
            memory.as_connection(), place, team="red", on_notice=lambda text: None
        )

    await collect()
    assert pending_jobs(place.paths.state, "red", now=0.0) == ["f1"]
    await finished(memory)
    await collect()
    assert [(one.number, one.machine) for one in attempts(place)] == [(1, "w1"), (2, "w2")]
    assert pending_jobs(place.paths.state, "red", now=0.0) == []
    note_submitted(place.paths.state, "red", "f1")
    await collect()
    assert len(attempts(place)) == 2


@aio
@pytest.mark.parametrize("error", [FleetUnreachable, FleetRefused])
async def test_a_job_that_cannot_be_read_now_is_recorded_later(
    tmp_path: Path, error: type[FleetError]
) -> None:
    place, memory = place_in(tmp_path), MemoryConnection("s1")
    await finished(memory)
    note_submitted(place.paths.state, "red", "f1")
    for memory.fail_reads in (error("not now"), None):
        await collect_results(memory.as_connection(), place, team="red", on_notice=print)
    assert len(attempts(place)) == 2


@aio
async def test_jobs_of_other_submitters_are_not_recorded(tmp_path: Path) -> None:
    place, memory = place_in(tmp_path), MemoryConnection("s2")
    await finished(memory)
    note_submitted(place.paths.state, "red", "f1")
    await collect_results(memory.as_connection(), place, team="red", on_notice=print)
    assert attempts(place) == []


@pytest.mark.parametrize(
    ("failure", "kept"),
    [
        (FleetFull("full"), 0),
        (FleetUnreachable("no answer", may_have_run=True), 1),
        (FleetUnreachable("no answer"), 0),
    ],
)
@aio
async def test_jobs_that_were_certainly_not_submitted_leave_no_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: FleetError, kept: int
) -> None:
    async def packed(workspace: Path) -> PackedWorkspace:
        return PackedWorkspace(b"bundle", {})

    async def allowed(*args: object, **more: object) -> None: ...

    monkeypatch.setattr(results, "pack_workspace", packed)
    monkeypatch.setattr(results, "require_executable", allowed)
    place, memory = place_in(tmp_path), MemoryConnection("s1")
    memory.fail, memory.fails = failure, "submit."
    request = DelegationRequest(role="review", prompt="x", workspace=tmp_path)
    with pytest.raises(type(failure)):
        await submit_noted(
            memory.as_connection(), request, place, team="red", count=3, on_stored=print
        )
    assert len(pending_jobs(place.paths.state, "red", now=0.0)) == kept


def test_notes_are_per_team_and_old_or_unknown_ones_are_removed(tmp_path: Path) -> None:
    for team, job in (("red", "f1"), ("blue", "f2"), ("red", "f3")):
        note_submitted(tmp_path, team, job)
    (tmp_path / PENDING / "strange").touch()
    old = tmp_path / PENDING / "red.f3"
    os.utime(old, (0, 0))
    now = (tmp_path / PENDING / "red.f1").stat().st_mtime
    assert pending_jobs(tmp_path, "red", now=max(now, PENDING_AGE + 1)) == ["f1"]
    assert sorted(one.name for one in (tmp_path / PENDING).iterdir()) == ["blue.f2", "red.f1"]


def test_a_note_that_vanishes_while_the_notes_are_listed_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / PENDING
    folder.mkdir()
    for name in ("red.f1", "red.f2"):
        (folder / name).touch()
    listed = list(folder.iterdir())
    monkeypatch.setattr(Path, "iterdir", lambda self: iter(listed))
    (folder / "red.f1").unlink()
    assert pending_jobs(tmp_path, "red", now=0.0) == ["f2"]
