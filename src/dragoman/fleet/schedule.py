"""Decisions of the coordinator: assign jobs, hold leases, accept results, end lost attempts. Also
builds its replies with lists of jobs and workers.

No I/O: `coordinator` does that. Each decision returns the job record to write. The caller writes it
by revision and then calls `applied`; a decision that could not be written has no effect. Time is an
argument: `now` comes from a monotonic clock, `at` from the wall clock, for the records.

A lease is the running attempt in the job's record. Its expiry is kept only in memory and starts
anew with each coordinator, so a lease never expires earlier than the worker assumes.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct, structs

from dragoman.broker.error_codec import describe
from dragoman.errors import FleetError
from dragoman.fleet.records import (
    LOST,
    READY,
    SHOWN_PROMPT_SIZE,
    AttemptEnd,
    AttemptEnded,
    Beat,
    BeatReply,
    CoordinatorReply,
    FleetAttempt,
    FleetJob,
    FleetLimits,
    FleetResult,
    JobLine,
    JobSpec,
    ListQuestion,
    ObjectRef,
    PeerDetails,
    WorkerStatus,
    decode,
    encode,
    job_line,
)

MAX_ATTEMPTS: Final = 5
"""Maximum number of attempts of a job, including refused and lost ones."""

MARGIN: Final = 0.25
"""How much longer the coordinator waits than the worker, as a share of the lease."""

MAX_ROUND: Final = 500
"""Maximum number of assignments in one round, so that heartbeats are answered in between."""

REFUSED: Final = "refused"
"""Outcome of a job that exceeded its submitter's limit or is invalid."""

MAX_WHY_SIZE: Final = 2000
"""Maximum number of characters of a worker's reason in a record."""

MAX_NEEDS: Final = 32
"""Maximum number of labels and peers that a job may need."""

MAX_WORD_SIZE: Final = 200
"""Maximum number of characters in a role, peer, tier, model or label."""

MAX_WAITING_SIZE: Final = 500
"""Maximum number of characters, in a list, of the reason why a job waits."""

MAX_LISTED: Final = 500

MAX_REPLY_SIZE: Final = 768 * 1024
"""Maximum number of bytes of the entries in one reply. The server accepts 1 MiB."""


class AttemptFacts(Struct, frozen=True, kw_only=True):
    """Facts about a lost attempt, from what is stored about it."""

    started: bool
    """Whether a peer may have been prompted."""
    acted: str = ""
    """What it did, or may have done, outside its worktree; empty if nothing."""
    peer: str = ""
    """The peer that it prompted last; empty if unknown."""


class Lease(Struct):
    """The worker that may run a job's current attempt, and until when."""

    worker: str
    attempt: int
    until: float


class Worker(Struct):
    """A worker that sends heartbeats."""

    name: str
    beat: Beat
    seen_at: float
    details: dict[str, PeerDetails] | None = None
    assigned: int = 0
    """Number of assigned jobs that its heartbeat may not list yet."""


class Schedule:
    """Jobs, leases and workers of one team."""

    def __init__(
        self,
        *,
        epoch: int,
        lease: float,
        limits: FleetLimits = FleetLimits(),  # noqa: B008
    ) -> None:
        self.epoch = epoch
        self.lease = lease
        self.limits = limits
        self.jobs: dict[str, FleetJob] = {}
        self.leases: dict[str, Lease] = {}
        self.workers: dict[str, Worker] = {}
        self._queue: dict[str, None] = {}
        self._waiting_of: Counter[str] = Counter()
        self.drained: set[str] = set()
        """Workers that get no more jobs; the caller stores the set."""

    # -- state

    def load(self, jobs: Iterable[FleetJob], now: float) -> None:
        """Load the stored records at the start."""
        for job in sorted(jobs, key=lambda one: (one.created_at, one.id)):
            self.applied(job, now)

    def applied(self, job: FleetJob, now: float) -> None:
        """Apply a job record that was written: update the job, the queue and the leases."""
        self.jobs[job.id] = job
        if self._queue.pop(job.id, job) is None:
            self._waiting_of[job.submitter] -= 1
        current = job.current
        if current is None:
            self.leases.pop(job.id, None)
            if job.state == "queued":
                self._queue[job.id] = None
                self._waiting_of[job.submitter] += 1
            return
        held = self.leases.get(job.id)
        if held is None or held.attempt != current.number:
            self.leases[job.id] = Lease(current.worker, current.number, self._until(now))

    def _until(self, now: float) -> float:
        return now + self.lease * (1 + MARGIN)

    def forget(self, job_id: str) -> None:
        """Forget a finished job."""
        job = self.jobs.get(job_id)
        if job is not None and job.state == "done":
            del self.jobs[job_id]

    # -- messages from submitters

    def submitted(
        self, job_id: str, submitter: str, spec: JobSpec, *, at: float
    ) -> FleetJob | None:
        """Return the record of a new job, which is refused if it is invalid or over a limit; None
        if it is already known."""
        why = _problem(spec)
        if self._waiting_of[submitter] >= self.limits.waiting:
            why = f"{submitter} has reached the limit of {self.limits.waiting} waiting jobs"
        if why:
            return self.refused(job_id, submitter, why, spec=spec, at=at)
        if job_id in self.jobs:
            return None
        return FleetJob(id=job_id, submitter=submitter, spec=spec, created_at=at)

    def refused(
        self, job_id: str, submitter: str, why: str, *, spec: JobSpec | None = None, at: float
    ) -> FleetJob | None:
        """Return the record of a refused job; None if the job is already known. The record is
        small, so that many of them do not fill the stream."""
        if job_id in self.jobs:
            return None
        kept = JobSpec(
            role="" if spec is None else spec.role[:SHOWN_PROMPT_SIZE],
            prompt="" if spec is None else spec.prompt[:SHOWN_PROMPT_SIZE],
            bundle=ObjectRef(owner="", id="", chunks=0, size=0, key=""),
        )
        job = FleetJob(id=job_id, submitter=submitter, spec=kept, created_at=at)
        return _done(job, _without_result(job, REFUSED, why[:MAX_WHY_SIZE]), at)

    def cancel(self, job_id: str, by: str, *, at: float) -> FleetJob | None:
        """Return the changed record of a job that `by` cancels. None if the job is unknown, has
        ended, was already cancelled, or was submitted by someone else. A running job is only marked
        as cancelled; it ends when its worker reports or is lost."""
        job = self.jobs.get(job_id)
        if job is None or job.submitter != by or job.state == "done" or job.cancelled:
            return None
        job = structs.replace(job, cancelled=True)
        if job.state == "running":
            return job
        return _done(job, _without_result(job, "cancelled", "cancelled by its submitter"), at)

    # -- messages from workers

    def beat(self, name: str, beat: Beat, now: float) -> BeatReply:
        """Process a heartbeat, renew the leases that the worker still has, and return the reply."""
        known = self.workers.get(name)
        if known is None or known.beat.boot != beat.boot:
            known = self.workers[name] = Worker(name, beat, now)
        if beat.details is not None:
            known.details = beat.details
            beat = structs.replace(beat, details=None)
        known.beat, known.seen_at = beat, now
        listed = {one.job for one in beat.running}
        held, cancelled = [], []
        for one in beat.running:
            lease = self.leases.get(one.job)
            if lease is None or lease.worker != name or lease.attempt != one.attempt:
                continue
            if now >= lease.until:
                # It has expired and is about to be ended, so it must not be renewed.
                continue
            lease.until = self._until(now)
            held.append(one)
            if self.jobs[one.job].cancelled:
                cancelled.append(one.job)
        known.assigned = sum(
            1 for job, lease in self.leases.items() if lease.worker == name and job not in listed
        )
        return BeatReply(
            epoch=self.epoch,
            lease=self.lease,
            held=tuple(held),
            cancelled=tuple(cancelled),
            drain=name in self.drained,
            tell_details=known.details is None,
            limits=self.limits,
        )

    def ended(
        self, worker: str, job_id: str, attempt: int, ended: AttemptEnded, *, at: float
    ) -> FleetJob | None:
        """Return the record of a job, changed by a worker's report; None if the report is stale. A
        refused job is queued again, unless it was cancelled or has no attempts left."""
        job = self.jobs.get(job_id)
        current = None if job is None else job.current
        if job is None or current is None:
            return None
        if current.worker != worker or current.number != attempt:
            return None
        if ended.result is not None:
            end: AttemptEnd = "cancelled" if ended.result.outcome == "cancelled" else "done"
            job = _attempt_over(job, end, ended.result.why, at)
            result = structs.replace(ended.result, worker=worker, attempt=attempt)
            return _done(job, result, at)
        job = _attempt_over(job, "refused", ended.refused, at, may_have_run=False)
        return self._again(job, f"{worker} refused it: {ended.refused}", at)

    def acted(self, worker: str, job_id: str, attempt: int, acted: str) -> FleetJob | None:
        """Return the record of a job, changed to say what its running attempt did outside the
        worktree; None if nothing changes."""
        job = self.jobs.get(job_id)
        current = None if job is None else job.current
        if job is None or current is None or current.acted or not acted:
            return None
        if current.worker != worker or current.number != attempt:
            return None
        last = structs.replace(current, acted=acted[:MAX_WHY_SIZE])
        return structs.replace(job, attempts=(*job.attempts[:-1], last))

    # -- time

    def expired(self, now: float) -> list[FleetJob]:
        """Return the running jobs whose lease has expired."""
        return [self.jobs[job] for job, lease in self.leases.items() if now >= lease.until]

    def lost(self, job_id: str, facts: AttemptFacts, *, at: float) -> FleetJob | None:
        """Return the record of a job, changed because the worker of its running attempt is lost;
        None if no attempt is running. The job is queued again if it has attempts left and was not
        cancelled; without `retry_lost`, only if the lost attempt cannot have acted outside its
        worktree."""
        job = self.jobs.get(job_id)
        current = None if job is None else job.current
        if job is None or current is None:
            return None
        what = "was lost" if facts.started else "was lost before it prompted a peer"
        job = _attempt_over(job, "lost", what, at, peer=facts.peer, may_have_run=facts.started)
        why = f"{current.worker} {what}"
        if facts.started and facts.acted and not job.spec.retry_lost:
            why = f"{why}; not run again: {facts.acted}"
            return _done(job, _without_result(job, LOST, why), at)
        return self._again(job, why, at)

    def _again(self, job: FleetJob, why: str, at: float) -> FleetJob:
        if job.cancelled:
            return _done(job, _without_result(job, "cancelled", "cancelled by its submitter"), at)
        if len(job.attempts) >= MAX_ATTEMPTS:
            why = f"{why}; that was attempt {len(job.attempts)} of {MAX_ATTEMPTS}"
            return _done(job, _without_result(job, LOST, why), at)
        return structs.replace(job, state="queued")

    # -- assignment

    def assignments(self, now: float, *, at: float) -> list[FleetJob]:
        """Choose workers for up to `MAX_ROUND` queued jobs, in the order of the queue: for each job
        the suitable worker with the most free slots. Return the changed records of these jobs."""
        free = [
            (-slots, worker.name)
            for worker in self.workers.values()
            if (slots := self._free(worker, now)) > 0
        ]
        heapq.heapify(free)
        given: list[FleetJob] = []
        # Needs that no free worker has: many waiting jobs may have the same ones.
        lacking_now: set[tuple[tuple[str, ...], str | None]] = set()
        for job_id in self._queue:
            if not free or len(given) >= MAX_ROUND:
                break
            job, passed = self.jobs[job_id], []
            wanted = (job.spec.needs, job.spec.peer)
            if wanted in lacking_now:
                continue
            while free:
                slots, name = heapq.heappop(free)
                if not self._obstacle(job, self.workers[name]):
                    given.append(_assigned(job, name, at))
                    if slots + 1 < 0:
                        heapq.heappush(free, (slots + 1, name))
                    break
                passed.append((slots, name))
            else:
                if not any(one.end == "refused" for one in job.attempts):
                    lacking_now.add(wanted)
            for entry in passed:
                heapq.heappush(free, entry)
        return given

    def _free(self, worker: Worker, now: float) -> int:
        if worker.name in self.drained or worker.beat.draining or now - worker.seen_at > self.lease:
            return 0
        beat = worker.beat
        return beat.slots - len(beat.running) + beat.reported - worker.assigned

    def has_work_for(self, name: str, now: float) -> bool:
        """Return whether a job is queued and the worker has a free slot."""
        return bool(self._queue) and self._free(self.workers[name], now) > 0

    def sent(self, worker: str) -> None:
        """Count the slot of a written assignment as used until a heartbeat lists the job."""
        known = self.workers.get(worker)
        if known is not None:
            known.assigned += 1

    def _obstacle(self, job: FleetJob, worker: Worker) -> str:
        """Return why a worker cannot take a job; empty if it can."""
        beat = worker.beat
        if lacks := lacking(job.spec.needs, job.spec.peer, beat.labels, beat.peers):
            return lacks
        for one in job.attempts:
            if one.worker == worker.name and one.end == "refused":
                return f"refused it: {one.why}"
        return ""

    # -- lists

    def job_lines(self, now: float) -> tuple[JobLine, ...]:
        """List the newest jobs, newest first."""
        newest = sorted(self.jobs.values(), key=lambda one: one.created_at, reverse=True)
        return tuple(
            job_line(job, waiting=self._waiting(job, now) if job.state == "queued" else "")
            for job in newest[:MAX_LISTED]
        )

    def _waiting(self, job: FleetJob, now: float) -> str:
        live = [one for one in self.workers.values() if now - one.seen_at <= self.lease]
        if not live:
            return "no worker is connected"
        reasons = {one.name: self._obstacle(job, one) for one in live}
        if all(reasons.values()):
            told = "; ".join(f"{name} {why}" for name, why in sorted(reasons.items())[:5])
            return told[:MAX_WAITING_SIZE]
        return "all suitable workers are busy"

    def worker_lines(self, now: float) -> tuple[WorkerStatus, ...]:
        """List the workers that sent a heartbeat within the lease time or still hold a lease."""
        holding = {lease.worker for lease in self.leases.values()}
        return tuple(
            WorkerStatus(
                name=one.name,
                machine=one.beat.machine,
                slots=one.beat.slots,
                running=one.beat.running,
                labels=one.beat.labels,
                peers=one.beat.peers,
                details=one.details or {},
                draining=one.name in self.drained or one.beat.draining,
                silent=max(now - one.seen_at, 0.0),
                version=one.beat.version,
            )
            for one in sorted(self.workers.values(), key=lambda one: one.name)
            if now - one.seen_at <= self.lease or one.name in holding
        )


def jobs_reply(schedule: Schedule, now: float) -> CoordinatorReply:
    """Return the reply with the newest jobs, as many as fit."""
    lines = schedule.job_lines(now)
    return CoordinatorReply(jobs=lines[: _fitting(lines)])


def workers_reply(schedule: Schedule, data: bytes, now: float) -> CoordinatorReply:
    """Return the reply with the workers after the one that the request names, as many as fit.
    `data` is the request, which may be empty."""
    try:
        after = decode(data, ListQuestion).after if data else ""
    except FleetError as error:
        return CoordinatorReply(error=str(error), failure=describe(error))
    lines = [one for one in schedule.worker_lines(now) if one.name > after]
    count = _fitting(lines)
    return CoordinatorReply(workers=tuple(lines[:count]), more=count < len(lines))


def _fitting(lines: Sequence[Struct]) -> int:
    """Return how many entries of a list fit into one reply; at least one."""
    size = 0
    for count, line in enumerate(lines):
        size += len(encode(line)) + 1
        if size > MAX_REPLY_SIZE:
            return max(count, 1)
    return len(lines)


def lacking(
    needs: Sequence[str], peer: str | None, labels: Iterable[str], peers: Mapping[str, str]
) -> str:
    """Return why a worker with these labels and peers cannot take a job with these needs: what it
    lacks, or which peer it cannot use now. Empty if it can."""
    offered = {*labels, *peers}
    missing = [need for need in needs if need not in offered]
    if missing:
        return f"has no {', '.join(missing)}"
    if peer is not None and peer not in peers:
        return f"has no peer {peer}"
    for name in (*needs, peer or ""):
        state = peers.get(name, READY)
        if state != READY:
            return f"cannot use {name} now: {state}"
    return ""


def _problem(spec: JobSpec) -> str:
    """Return why a job is invalid; empty if it is valid. Its needs are compared with every worker,
    so their number is limited."""
    if len(spec.needs) > MAX_NEEDS:
        return f"it needs {len(spec.needs)} labels and peers; the maximum is {MAX_NEEDS}"
    words = (spec.role, *spec.needs, spec.peer or "", spec.tier or "", spec.model or "")
    if max(map(len, words)) > MAX_WORD_SIZE:
        return f"a role, peer, tier, model or label is longer than {MAX_WORD_SIZE} characters"
    return ""


def _assigned(job: FleetJob, worker: str, at: float) -> FleetJob:
    attempt = FleetAttempt(number=len(job.attempts) + 1, worker=worker, assigned_at=at)
    return structs.replace(job, state="running", attempts=(*job.attempts, attempt))


def _attempt_over(
    job: FleetJob,
    end: AttemptEnd,
    why: str,
    at: float,
    *,
    peer: str = "",
    may_have_run: bool = True,
) -> FleetJob:
    last = structs.replace(
        job.attempts[-1],
        end=end,
        why=why[:MAX_WHY_SIZE],
        ended_at=at,
        peer=peer,
        may_have_run=may_have_run,
    )
    return structs.replace(job, attempts=(*job.attempts[:-1], last))


def _done(job: FleetJob, result: FleetResult, at: float) -> FleetJob:
    return structs.replace(job, state="done", result=result, ended_at=at)


def _without_result(job: FleetJob, outcome: str, why: str) -> FleetResult:
    last = job.attempts[-1] if job.attempts else None
    return FleetResult(
        ok=False,
        outcome=outcome,
        why=why,
        worker="" if last is None else last.worker,
        attempt=0 if last is None else last.number,
        may_have_run=last is not None and last.may_have_run,
    )
