"""The items of the work screen: a summary of each session, or of a job without one, computed from
jobs.

No I/O. `live_state` reads the jobs and sends changes to browsers.
"""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from dragoman.runs.brief import without_brief

if TYPE_CHECKING:
    from dragoman.store.records import JobRecord
    from dragoman.store.values import Park

MAX_PROMPT: Final = 300
"""Maximum characters of a prompt in a list."""

GOOD: Final = frozenset({"ok"})
CALM: Final = frozenset({"cancelled"})
PARKING: Final = frozenset({"quota", "auth_required"})
"""Outcomes that park a peer. The work can continue when the peer is available again."""


def is_attempt(job: JobRecord) -> bool:
    """Return whether a job is an attempt of a delegation, rather than a whole delegation or a
    run."""
    return job.id.count("-") > 1


def with_delegations(jobs: list[JobRecord]) -> list[JobRecord]:
    """Return the jobs, which are sorted newest first, without the delegations that have attempts.
    The last attempt of a delegation, once ended, is shown with the delegation's state, outcome, end
    and failure: the check runs after the turn and may change them."""
    known = {job.id: job for job in jobs}
    last: dict[str, JobRecord] = {}
    for job in jobs:
        if is_attempt(job):
            parent = job.id.rpartition("-")[0]
            last[parent] = max(last.get(parent, job), job, key=lambda one: one.created_at)
    found = []
    for job in jobs:
        whole = known.get(job.id.rpartition("-")[0]) if is_attempt(job) else None
        if whole is not None and last[whole.id] is job and job.state == "ended":
            job = _as_delegation(job, whole)
        if job.id not in last:
            found.append(job)
    return found


def _as_delegation(job: JobRecord, parent: JobRecord) -> JobRecord:
    if parent.state != "ended":
        return replace(job, state=parent.state, outcome=None, ended_at=None)
    failure = parent.failure or job.failure
    if parent.outcome != job.outcome and failure is None:
        failure = {"message": "the check failed, or the patch could not be applied"}
    return replace(job, outcome=parent.outcome, ended_at=parent.ended_at, failure=failure)


def summary_of(
    id: str, jobs: list[JobRecord], *, waiting: bool, parked: Park | None = None
) -> dict[str, Any]:
    """Return the summary of a session, or of a job without one. `jobs` are its jobs, newest first;
    `waiting` is whether it has an open question. `parked` says until when its peer is parked, and
    why; it is None if the peer is not parked."""
    running = next((job for job in reversed(jobs) if job.state == "running"), None)
    queued = [job for job in jobs if job.state == "queued"]
    ended = [job for job in jobs if job.state == "ended"]
    last = max(ended, key=lambda job: job.ended_at or 0.0, default=None)
    if running is not None:
        state = "waiting" if waiting else "working"
    elif queued:
        state = "queued"
    elif last is None or last.outcome in CALM:
        state = "idle"
    else:
        state = "done" if last.outcome in GOOD else "failed"
        if last.outcome in PARKING and parked is not None:
            state = "parked"
    shown = running or (queued[-1] if queued else last)
    times = [job.ended_at or job.started_at or job.created_at for job in jobs]
    return {
        "id": id,
        "state": state,
        "queued": len(queued),
        "parked": {"until": parked.until, "why": parked.why}
        if parked is not None and state == "parked"
        else None,
        "job": None if shown is None else _job(shown),
        "cost": _cost(ended),
        "createdAt": min((job.created_at for job in jobs), default=0.0),
        "updatedAt": max(times, default=0.0),
    }


def _job(job: JobRecord) -> dict[str, Any]:
    failure = (job.failure or {}).get("message")
    return {
        "id": job.id,
        "delegation": job.id.rpartition("-")[0] if is_attempt(job) else None,
        "state": job.state,
        "outcome": job.outcome,
        "prompt": without_brief(job.prompt)[:MAX_PROMPT],
        "failure": None if failure is None else str(failure)[:MAX_PROMPT],
        "createdAt": job.created_at,
        "startedAt": job.started_at,
        "endedAt": job.ended_at,
    }


def _cost(jobs: list[JobRecord]) -> dict[str, Any] | None:
    """Return the sum of the jobs' costs in the unit of the first reported cost, without those in
    other units. None if there is no cost to add, or if the sum is infinite."""
    costs = [cost for job in jobs if isinstance(cost := (job.usage or {}).get("cost"), dict)]
    unit = next((cost.get("unit") for cost in costs), None)
    amounts = [
        cost["amount"]
        for cost in costs
        if cost.get("unit") == unit and isinstance(cost.get("amount"), int | float)
    ]
    total = sum(amounts)
    # An agent may report amounts whose sum is infinite, which JSON cannot represent.
    return {"amount": round(total, 6), "unit": unit} if amounts and isfinite(total) else None
