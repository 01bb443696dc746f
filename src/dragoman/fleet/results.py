"""Results of a submitter's jobs: read them from the server, and record each once in the ledger.

A file notes each submitted job until its result is in the ledger, so that a later command can
record what a killed one could not. `submitter` reads records and events,
`delegation.executed_records` builds the ledger records.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from dragoman.client.folders import make_private
from dragoman.decoders import convert_typed
from dragoman.delegation.executed_records import record_executed, reports_of
from dragoman.delegation.executor import ExecutedJob, LostAttempt
from dragoman.delegation.executor_run import require_executable
from dragoman.delegation.journal import Journal
from dragoman.delegation.request import DelegationRequest
from dragoman.delegation.result import Delegation
from dragoman.errors import FleetError, FleetRefused, FleetUnreachable
from dragoman.events.words import Outcome
from dragoman.fleet.connection import FleetConnection
from dragoman.fleet.objects import get_object
from dragoman.fleet.records import LOST, FleetJob, ObjectRef, new_job_id
from dragoman.fleet.submitter import pack_workspace, read_job, spec_of, submit, upload
from dragoman.runs.context import RunContext
from dragoman.runs.lineage import inherited
from dragoman.wire.messages import UNDECODABLE

PENDING: Final = "fleet-jobs"
"""Directory of the notes about jobs without a recorded result, in the state directory."""

COLLECT_TIMEOUT: Final = 5.0
"""Seconds for which a command records results of jobs that earlier commands submitted. The rest is
left to the next command."""

PENDING_AGE: Final = 31 * 24 * 3600.0
"""Seconds after which a note is removed. The server deletes a job after 3 days, or after the number
of days in `fleet up --keep`."""

MAX_RESULT_SIZE: Final = 64 * 1024 * 1024
"""Maximum bytes of a delegation result to decode."""

_NOTE: Final = re.compile(r"[A-Za-z0-9_-]{1,64}\.[A-Za-z0-9_-]{1,64}")


async def executed_job(
    connection: FleetConnection, record: FleetJob, *, with_patch: bool = True
) -> ExecutedJob:
    """Read the result of a finished job, and its patch unless `with_patch` is False. Raises
    `FleetError` if one of them is not on the server or cannot be read."""
    result = record.result
    assert result is not None
    delegation = None if result.delegation is None else await _read(connection, result.delegation)
    patch = b""
    if with_patch and result.patch is not None:
        patch = await get_object(connection, result.patch)
    ended_at = record.ended_at or time.time()
    return ExecutedJob(
        job=record.id,
        role=record.spec.role,
        started_at=record.attempts[-1].assigned_at if record.attempts else record.created_at,
        ended_at=ended_at,
        machine=result.worker,
        delegation=delegation,
        lost=tuple(
            LostAttempt(
                machine=one.worker,
                peer=one.peer or record.spec.peer or "",
                why=f"{one.worker} {one.why}",
                may_have_run=one.may_have_run,
                started_at=one.assigned_at,
                ended_at=one.ended_at or ended_at,
            )
            for one in record.attempts
            if one.end == "lost"
        ),
        outcome=_outcome(result.outcome),
        why=result.why,
        may_have_run=result.may_have_run,
        patch=patch,
    )


def _outcome(word: str) -> Outcome:
    if word == LOST:
        return Outcome.CRASHED
    try:
        return Outcome(word)
    except ValueError:
        return Outcome.UNKNOWN


async def _read(connection: FleetConnection, ref: ObjectRef) -> Delegation:
    if ref.size > MAX_RESULT_SIZE:
        raise FleetError("the job's result is too large to read")
    data = await get_object(connection, ref)
    try:
        return convert_typed(msgspec.json.decode(data), Delegation)
    except UNDECODABLE as error:
        raise FleetError(f"cannot decode the job's result: {error}") from error


# -- jobs whose result is not recorded yet


def note_submitted(state: Path, team: str, job: str) -> None:
    """Note that the result of a job has to be recorded."""
    make_private(state / PENDING)
    (state / PENDING / f"{team}.{job}").touch(mode=0o600)


def pending_jobs(state: Path, team: str, *, now: float) -> list[str]:
    """List the jobs of a team whose result is not recorded, oldest first. Removes notes that are
    older than `PENDING_AGE` or have an invalid name."""
    found: list[str] = []
    entries: list[tuple[float, Path]] = []
    try:
        for one in (state / PENDING).iterdir():
            # Another process may have recorded that result in the meantime.
            with contextlib.suppress(FileNotFoundError):
                entries.append((one.stat().st_mtime, one))
    except FileNotFoundError:
        return []
    for noted_at, entry in sorted(entries):
        of, _, job = entry.name.partition(".")
        if now - noted_at > PENDING_AGE or not _NOTE.fullmatch(entry.name):
            entry.unlink(missing_ok=True)
        elif of == team:
            found.append(job)
    return found


def forget_pending(state: Path, team: str, job: str) -> None:
    (state / PENDING / f"{team}.{job}").unlink(missing_ok=True)


async def submit_noted(
    connection: FleetConnection,
    request: DelegationRequest,
    place: RunContext,
    *,
    team: str,
    count: int = 1,
    needs: Sequence[str] = (),
    retry_lost: bool = False,
    on_stored: Callable[[str], None],
) -> None:
    """Submit a request as one or more jobs whose results are recorded later. `on_stored` is called
    with the id of each job when it is stored. Raises the errors of `require_executable`,
    `pack_workspace`, `upload` and `submit`."""
    fields = spec_of(request, needs=needs, retry_lost=retry_lost)
    await require_executable(
        request.role, place, where=f"fleet {team}", lineage=inherited(), now=time.time()
    )
    spec = await upload(connection, await pack_workspace(request.workspace), fields)
    jobs = [new_job_id() for _ in range(count)]
    for job in jobs:
        # Before it is submitted, so that the result is recorded even if this process is killed.
        note_submitted(place.paths.state, team, job)
    stored: list[str] = []

    def note_stored(job: str) -> None:
        stored.append(job)
        on_stored(job)

    try:
        await submit(connection, spec, jobs, on_stored=note_stored)
    except FleetError as error:
        # The first of the others may have been stored too.
        in_doubt = len(stored) + error.may_have_run
        for job in jobs[in_doubt:]:
            forget_pending(place.paths.state, team, job)
        raise


async def record_result(
    connection: FleetConnection,
    record: FleetJob,
    place: RunContext,
    *,
    team: str,
    on_notice: Callable[[str], None],
) -> None:
    """Record a finished job of this submitter in the ledger, unless it is already recorded, and
    remove its note. Does nothing if the job has no result yet, belongs to another submitter, or the
    ledger cannot be read. Raises `FleetError` if the result cannot be read."""
    if record.result is None or record.submitter != connection.name:
        return
    async with Journal(place, clock=time.time, on_notice=on_notice) as journal:
        known = await journal.read(
            lambda ledger: None if ledger is None else ledger.attempts(record.id)
        )
        if known is None:
            return
        if not known:
            executed = await executed_job(connection, record, with_patch=False)
            record_executed(
                journal,
                executed,
                reports_of(executed),
                known_peers=place.catalogue.names,
                now=time.time(),
            )
    forget_pending(place.paths.state, team, record.id)


async def collect_results(
    connection: FleetConnection,
    place: RunContext,
    *,
    team: str,
    on_notice: Callable[[str], None],
) -> None:
    """Record the jobs submitted from this machine that have ended in the meantime. What is left
    after `COLLECT_TIMEOUT`, or when the server cannot be used, is recorded by a later command. A
    job that cannot be recorded for another reason is reported to `on_notice` and not tried
    again."""
    give_up_at = time.monotonic() + COLLECT_TIMEOUT
    for job in pending_jobs(place.paths.state, team, now=time.time()):
        if time.monotonic() > give_up_at:
            return
        try:
            record = await read_job(connection, job)
            if record is not None:
                await record_result(connection, record, place, team=team, on_notice=on_notice)
        except (FleetUnreachable, FleetRefused):
            # A later command, perhaps with new credentials, can record them.
            return
        except FleetError as error:
            on_notice(f"could not record job {job}: {error}")
            forget_pending(place.paths.state, team, job)
