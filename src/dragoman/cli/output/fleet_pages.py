"""Print the workers and jobs of a fleet, follow a job to its result, and apply its patch.

The output is text or JSON lines. `fleet.submitter` reads jobs and events from the server, and
`delegation.worktree.received_patch` applies a patch completely or not at all.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from dragoman.cli.exit_codes import ExitCode
from dragoman.cli.output.jsonl import write_json
from dragoman.cli.output.tables import write_list
from dragoman.cli.output.terminal import put_err, put_out
from dragoman.cli.output.times import span
from dragoman.errors import UnknownJob, UsageError

if TYPE_CHECKING:
    from dragoman.fleet.connection import FleetConnection
    from dragoman.fleet.records import FleetJob, JobLine, WorkerStatus
    from dragoman.fleet.submitter import FleetEvent

WORKER_HEAD: Final = ("worker", "machine", "jobs", "labels", "peers", "state")
JOB_HEAD: Final = ("job", "age", "state", "worker", "attempts", "role", "prompt")


def write_workers(workers: Sequence[WorkerStatus], format: str) -> None:
    write_list(
        workers,
        format,
        head=WORKER_HEAD,
        cells=lambda one: (
            one.name,
            one.machine,
            f"{len(one.running)} of {one.slots}",
            ", ".join(one.labels) or "-",
            ", ".join(_peer(name, state) for name, state in one.peers.items()) or "-",
            "draining" if one.draining else "ready",
        ),
        as_json=msgspec.to_builtins,
        name=lambda one: one.name,
        empty="No workers are connected. Start one with `dragoman fleet worker`.",
    )


def _peer(name: str, state: str) -> str:
    from dragoman.fleet.records import READY

    return name if state == READY else f"{name} ({state})"


def write_jobs(jobs: Sequence[JobLine], format: str) -> None:
    now = time.time()
    write_list(
        jobs,
        format,
        head=JOB_HEAD,
        cells=lambda one: (
            one.id,
            span(max(now - one.created_at, 0.0)),
            one.outcome or (f"{one.state}: {one.waiting}" if one.waiting else one.state),
            one.worker or "-",
            str(one.attempts),
            one.role,
            " ".join(one.prompt.split())[:60],
        ),
        as_json=msgspec.to_builtins,
        name=lambda one: one.id,
        empty="The fleet has no jobs. Submit one with `dragoman fleet submit ROLE PROMPT`.",
    )


def write_placement(
    workers: Sequence[WorkerStatus],
    team: str,
    *,
    needs: Sequence[str],
    peer: str | None,
    format: str,
) -> bool:
    """Print which workers could take a job, and why the others cannot. Returns False if none
    could."""
    from dragoman.fleet.schedule import lacking

    why = {
        one.name: lacking(needs, peer, one.labels, one.peers)
        or ("is draining" if one.draining else "")
        for one in workers
    }
    able = [one for one in workers if not why[one.name]]
    passed_over = {name: reason for name, reason in why.items() if reason}
    if format == "json":
        write_json(
            {
                "type": "FleetDecision",
                "team": team,
                "candidates": [msgspec.to_builtins(one) for one in able],
                "passed_over": [{"worker": one, "why": why[one]} for one in passed_over],
            }
        )
    elif format == "quiet":
        put_out(*(f"{one.name}\n" for one in able))
    else:
        found = "one of these workers" if able else "no worker can take this job"
        put_out(f"fleet {team}: {found}\n")
        for one in able:
            free = max(one.slots - len(one.running), 0)
            peers = ", ".join(one.peers)
            put_out(f"  {one.name}: {free} of {one.slots} slots free; peers: {peers}\n")
        for name, reason in passed_over.items():
            put_out(f"  {name} {reason}\n")
    return bool(able)


async def watch(connection: FleetConnection, job: str, format: str) -> int:
    """Print the events of a job as they arrive, until it ends, and then its result. Returns the
    exit code."""
    from dragoman.fleet.records import NOTICE
    from dragoman.fleet.submitter import JobReader

    attempt, open_line = 0, False

    def end_line() -> None:
        nonlocal open_line
        if open_line:
            put_out("\n")
            sys.stdout.flush()
            open_line = False

    def notice(text: str) -> None:
        end_line()
        put_err(f"dragoman: {text}\n")

    reader = JobReader(connection, job, on_notice=notice)
    async for one in reader.follow():
        if format == "json":
            write_json({"type": "FleetEvent", **msgspec.to_builtins(one)})
            continue
        if format != "text":
            continue
        if one.attempt != attempt:
            attempt = one.attempt
            notice(f"attempt {attempt} on {one.worker}")
        if one.event.get("type") == NOTICE:
            notice(f"{one.worker}: {one.event.get('text')}")
            continue
        text = _said(one)
        put_out(text)
        # The next event may take a while, and may be a notice on stderr.
        sys.stdout.flush()
        open_line = not text.endswith("\n") if text else open_line
    end_line()
    assert reader.job is not None
    return _result(reader.job, format)


def _said(one: FleetEvent) -> str:
    event: dict[str, Any] = one.event
    if event.get("type") == "MessageDelta" and event.get("role") == "agent":
        return str(event.get("text", ""))
    return ""


def _result(job: FleetJob, format: str) -> int:
    result = job.result
    assert result is not None
    if format == "json":
        write_json({"type": "FleetResult", **msgspec.to_builtins(job)})
    elif format == "quiet":
        put_out(f"{result.text}\n" if result.text else "")
    else:
        by = f" by {result.peer}" if result.peer else ""
        on = f" on {result.worker}" if result.worker else ""
        put_err(f"dragoman: {job.id}: {result.outcome}{by}{on}\n")
        if result.why:
            put_err(f"dragoman: {result.why}\n")
        for one in job.attempts:
            if one.end in ("lost", "refused"):
                put_err(f"dragoman: attempt {one.number} on {one.worker}: {one.end}: {one.why}\n")
        if result.patch is not None:
            put_err(
                f"dragoman: files were changed; apply the patch with "
                f"`dragoman fleet apply {job.id}`\n"
            )
    sys.stdout.flush()
    return ExitCode.OK if result.ok else ExitCode.FAILED


async def apply(connection: FleetConnection, job: str, workspace: Path) -> int:
    """Apply the patch of a finished job to a workspace, completely or not at all. Returns the exit
    code; a patch that does not apply is saved. Raises `UnknownJob` if the fleet has no such job,
    and `UsageError` if the job has not ended."""
    from dragoman.delegation.worktree.received_patch import apply_received
    from dragoman.fleet.objects import get_object
    from dragoman.fleet.submitter import LISTED, read_job
    from dragoman.paths import find_paths

    record = await read_job(connection, job)
    if record is None:
        raise UnknownJob(f"the fleet has no job {job}", remedy=LISTED)
    if record.result is None:
        raise UsageError(
            f"job {job} is not done yet", remedy=f"wait for it with `dragoman fleet watch {job}`"
        )
    if record.result.patch is None:
        put_err(f"dragoman: job {job} changed no files\n")
        return ExitCode.OK
    data = await get_object(connection, record.result.patch)
    applied = await apply_received(
        data, workspace, patches=find_paths().state / "patches", name=f"fleet-{job}"
    )
    for change in applied.files:
        put_out(f"{change.path}\n")
    if applied.ok:
        return ExitCode.OK
    for conflict in applied.conflicts:
        put_err(f"dragoman: conflict in {conflict.path}: {conflict.why}\n")
    put_err(
        f"dragoman: the patch does not apply; nothing was changed; it is saved in {applied.kept}\n"
    )
    return ExitCode.FAILED
