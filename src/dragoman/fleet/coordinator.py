"""The coordinator of a team: accepts submissions, assigns jobs, renews leases, records results.

All its state is in the streams, so it can be killed and restarted at any time. If several
coordinators run, one of them leads (`leadership`). `schedule` makes the decisions; this module
reads, writes by revision and sends. Any failure ends the session, and the next one starts from the
stored state.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

from msgspec import Struct, structs
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import TimeoutError as NatsTimeout
from nats.js import JetStreamContext

from dragoman.broker.error_codec import describe
from dragoman.errors import (
    DragomanError,
    FleetConflict,
    FleetError,
    FleetFull,
    FleetRefused,
    FleetUnreachable,
    UsageError,
)
from dragoman.fleet import subjects
from dragoman.fleet.attempt_facts import read_facts
from dragoman.fleet.connection import RETRY_INTERVAL, FleetConnection
from dragoman.fleet.join_requests import JoinRequests
from dragoman.fleet.leadership import Leadership
from dragoman.fleet.records import (
    AttemptActed,
    AttemptEnded,
    Beat,
    CoordinatorReply,
    DrainedWorkers,
    DrainQuestion,
    FleetJob,
    FleetLimits,
    FleetResult,
    JobAssignment,
    JobQuestion,
    JobSpec,
    WorkerStatus,
    decode,
    encode,
)
from dragoman.fleet.schedule import Schedule, jobs_reply, workers_reply
from dragoman.fleet.streams import (
    FILTERS,
    SUBMISSIONS,
    ensure_streams,
    read_all,
    stream_reader,
    take_inbox,
)
from dragoman.fleet.team import Access, FleetFolder
from dragoman.rpc.tasks import TaskOwner, cancellable, settle

log = logging.getLogger(__name__)

DRAINED: Final = "$KV.fleet.drained"
FETCH_TIMEOUT: Final = 1.0
LOAD_TIMEOUT: Final = 600.0
"""Seconds to load all records: a million of them on a busy machine."""

HOLD_INTERVAL: Final = 10.0
"""Seconds after which an inbox message is delivered again if its record did not fit into the
stream."""

ORDER_INTERVAL: Final = 0.5
"""Seconds after which a cancellation that was read before its job is delivered again."""

RESERVE: Final = 0.25
"""Share of the job record stream that is reserved for the jobs in it: their records grow with each
attempt and with the result."""

WORKERS_LISTED: Final = "`dragoman fleet workers` lists the workers"

MAX_SUBMISSION_SIZE: Final = 512 * 1024
MAX_RECORD_SIZE: Final = 900 * 1024
"""Maximum bytes of a record. The server accepts messages of up to 1 MiB, and a record that it
rejects would stop the coordinator."""

MAX_BEAT_SIZE: Final = 64 * 1024

MAX_DONE: Final = 2000
"""Maximum number of finished jobs to keep in memory, for the job list."""


class CoordinatorOptions(Struct, frozen=True, kw_only=True):
    lease: float = 15.0
    """Seconds without a heartbeat after which a worker counts as lost."""
    ttl: float = 6.0
    """Seconds without a renewal after which another coordinator takes over."""
    disk_size: int = -1
    replicas: int = 1
    limits: FleetLimits = FleetLimits()


def clock() -> float:
    """Return a monotonic time in seconds. It includes suspend time if the system has such a
    clock."""
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boottime is None else time.clock_gettime(boottime)


def why_full(limits: FleetLimits) -> str:
    """Return the message that says that the server is full and for how long it keeps records."""
    days = limits.keep_days
    kept = "1 day" if days == 1 else f"{days:g} days"
    return f"the fleet's server is full: it keeps the records of jobs for {kept}"


class Coordinator:
    """Coordinates the jobs of one team until cancelled, or until the server refuses the
    credentials. Reconnects, and waits while another coordinator leads."""

    def __init__(
        self,
        access: Access,
        options: CoordinatorOptions,
        *,
        folder: FleetFolder | None = None,
        team: str = "",
        on_notice: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`folder` is the fleet directory. Without it, join requests are not answered."""
        self._access = access
        self._options = options
        self._folder = folder
        self._team = team
        self._on_notice = on_notice
        self._told = ""
        self._leads = False

    async def run(self) -> None:
        while True:
            try:
                async with FleetConnection(self._access) as connection:
                    await ensure_streams(
                        connection.client.jetstream(),
                        self._options.disk_size,
                        replicas=self._options.replicas,
                        keep_days=self._options.limits.keep_days,
                    )
                    if self._folder is not None:
                        await JoinRequests(
                            connection, self._folder, team=self._team, leads=lambda: self._leads
                        ).start()
                    await self._lead(connection)
            except FleetRefused:
                raise
            except (FleetError, NatsError, OSError) as error:
                if str(error) != self._told:
                    self._told = str(error)
                    self._on_notice(f"restarting the coordinator of team {self._team}: {error}")
                await asyncio.sleep(RETRY_INTERVAL)

    async def _lead(self, connection: FleetConnection) -> None:
        leadership = Leadership(connection, ttl=self._options.ttl, clock=clock)
        await leadership.acquire()
        session = CoordinatorSession(connection, leadership, self._options)
        tasks = TaskOwner("the coordinator")
        try:
            # Renew while loading too: loading many records may take longer than the time to live.
            keeping = tasks.start(leadership.keep(), "leadership")
            await _first_of(keeping, tasks.start(session.load(), "load"))
            self._told, self._leads = "", True
            self._on_notice(f"coordinating team {self._team}")
            parts = (tasks.start(work, "session") for work in session.parts())
            await _first_of(keeping, *parts)
        finally:
            self._leads = False
            try:
                await tasks.aclose()
            finally:
                try:
                    await leadership.release()
                except FleetError as error:
                    log.info("could not release the leadership: %s", error)


class CoordinatorSession:
    """The work of a coordinator during one term of leadership."""

    def __init__(
        self,
        connection: FleetConnection,
        leadership: Leadership,
        options: CoordinatorOptions,
    ) -> None:
        self._connection = connection
        self._leadership = leadership
        self._options = options
        self._jetstream: JetStreamContext = connection.client.jetstream()
        self._schedule = Schedule(
            epoch=leadership.epoch, lease=options.lease, limits=options.limits
        )
        self._revisions: dict[str, int] = {}
        self._drained_revision = 0
        self._room = asyncio.Event()
        """Set while new jobs are accepted; cleared while the job record stream is almost full."""
        self._room.set()
        self._done: dict[str, None] = {}
        self._told_workers: tuple[WorkerStatus, ...] | None = None
        """The workers at the last notification to submitters; None before the first one."""
        self._lock = asyncio.Lock()
        self._wake = asyncio.Event()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    # -- start

    async def load(self) -> None:
        """Read all job records and the drained workers, and take over the inbox from the previous
        coordinator. Raises `FleetError`."""
        try:
            async with asyncio.timeout(LOAD_TIMEOUT):
                await self._load()
                await self._load_drained()
                await take_inbox(self._jetstream)
        except (NatsError, TimeoutError, OSError) as error:
            raise FleetError(f"cannot read the stored jobs: {error}") from error

    async def _load(self) -> None:
        jobs: list[FleetJob] = []

        def read(message: Msg) -> None:
            try:
                job = decode(message.data, FleetJob)
            except FleetError as error:
                # One record must not stop the whole team.
                log.error("ignored the record on %s: %s", message.subject, error)
                return
            jobs.append(job)
            self._revisions[job.id] = message.metadata.sequence.stream

        await read_all(self._jetstream, subjects.JOBS, read)
        self._schedule.load(jobs, clock())
        for job in sorted(jobs, key=lambda one: one.ended_at or 0):
            if job.state == "done":
                self._remember_done(job.id)

    async def _load_drained(self) -> None:
        found = await self._connection.last(subjects.FLEET, DRAINED)
        if found is not None:
            self._drained_revision = found.sequence
            self._schedule.drained = set(decode(found.data, DrainedWorkers).names)

    async def _drain(self, question: DrainQuestion) -> None:
        """Drain a worker, or undo that, and store the change. Raises `UsageError` and
        `FleetError`."""
        async with self._lock:
            wanted = self._schedule.drained - {question.name}
            if not question.undo:
                if question.name not in self._schedule.workers:
                    raise UsageError(
                        f"worker {question.name} is not connected", remedy=WORKERS_LISTED
                    )
                wanted.add(question.name)
            elif question.name not in self._schedule.drained:
                raise UsageError(f"worker {question.name} is not drained", remedy=WORKERS_LISTED)
            record = encode(DrainedWorkers(names=tuple(sorted(wanted))))
            self._leadership.require()
            self._drained_revision = await self._connection.store(
                DRAINED, record, revision=self._drained_revision
            )
            self._schedule.drained = wanted
        self._wake.set()

    def parts(self) -> list[Coroutine[Any, Any, None]]:
        """Return the coroutines to run while this coordinator leads. When one ends, the session
        ends."""
        inbox = [self._read_inbox(name) for name in FILTERS]
        return [*inbox, self._tick(), self._answer(), self._connection_over()]

    async def _connection_over(self) -> None:
        await self._connection.wait_closed()
        raise FleetError("the connection was closed")

    # -- the inbox

    async def _read_inbox(self, consumer: str) -> None:
        try:
            reader = await stream_reader(self._jetstream, consumer, subjects.INBOX)
        except (NatsError, OSError) as error:
            raise FleetError(f"cannot read the inbox: {error}") from error
        while True:
            if consumer == SUBMISSIONS:
                await self._room.wait()
            try:
                messages = await cancellable(reader.fetch(1, timeout=FETCH_TIMEOUT))
            except NatsTimeout:
                continue
            except (NatsError, OSError) as error:
                raise FleetError(f"cannot read the inbox: {error}") from error
            for message in messages:
                async with self._lock:
                    hold = await self._take(message.subject, message.data)
                try:
                    # A message that was not processed stays in the stream and is delivered again.
                    await cancellable(message.nak(delay=hold) if hold else message.ack())
                except (NatsError, OSError) as error:
                    raise FleetError(f"cannot acknowledge an inbox message: {error}") from error
            self._wake.set()

    async def _take(self, subject: str, data: bytes) -> float:
        """Process an inbox message. Returns the seconds until it is delivered again because it has
        to wait; 0 if it was processed or ignored."""
        kind, member, job_id, *rest = subject.split(".")
        now = clock()
        try:
            if kind == "submit":
                changed = self._submitted(job_id, member, data)
            elif kind == "cancel":
                changed = self._schedule.cancel(job_id, member, at=time.time())
            elif rest[0].endswith(subjects.ACTED):
                acted = decode(data, AttemptActed).acted
                attempt = int(rest[0].removesuffix(subjects.ACTED))
                changed = self._schedule.acted(member, job_id, attempt, acted)
            else:
                ended = _report(data, member)
                changed = self._schedule.ended(member, job_id, int(rest[0]), ended, at=time.time())
        except (FleetError, UsageError, ValueError) as error:
            log.warning("ignored a message on %s: %s", subject, error)
            return 0.0
        if changed is None:
            if kind == "cancel" and await self._waits(member, job_id):
                return ORDER_INTERVAL
            if kind == "result":
                log.info("ignored the stale result on %s", subject)
            return 0.0
        try:
            await self._write(changed, now)
            if kind == "submit":
                await self._cancel_at_once(member, job_id, now)
        except FleetFull as error:
            log.warning("cannot process %s yet: %s", subject, error)
            self._room.clear()
            return HOLD_INTERVAL
        except FleetConflict:
            record = await self._connection.last(subjects.JOBS, subjects.job_record(job_id))
            if kind != "submit" or record is None:
                raise
            # The id of a job that ended long ago. Its record must not be replaced.
            log.warning("ignored a message on %s: the job already exists", subject)
        return 0.0

    def _submitted(self, job_id: str, member: str, data: bytes) -> FleetJob | None:
        """Return the record to write for a new job; None if the job is already known. A submission
        that cannot be read gets the record of a refused job, because its submitter waits for
        one."""
        subjects.require_job_id(job_id)
        try:
            if len(data) > MAX_SUBMISSION_SIZE:
                limit = f"{MAX_SUBMISSION_SIZE // 1024} KiB"
                raise FleetError(f"the submission is larger than {limit}")
            spec = decode(data, JobSpec)
        except FleetError as error:
            return self._schedule.refused(job_id, member, str(error), at=time.time())
        return self._schedule.submitted(job_id, member, spec, at=time.time())

    async def _cancel_at_once(self, member: str, job_id: str, now: float) -> None:
        """Cancel a new job before it is assigned, if its cancellation is already in the inbox."""
        cancellation = subjects.cancellation(member, job_id)
        if await self._connection.last(subjects.INBOX, cancellation) is not None:
            changed = self._schedule.cancel(job_id, member, at=time.time())
            if changed is not None:
                await self._write(changed, now)

    async def _waits(self, member: str, job_id: str) -> bool:
        """Return whether the submission of an unknown job is still in the inbox."""
        if job_id in self._schedule.jobs or not subjects.is_job_id(job_id):
            return False
        submission = subjects.submission(member, job_id)
        return await self._connection.last(subjects.INBOX, submission) is not None

    async def _write(self, job: FleetJob, now: float) -> None:
        """Write a record by revision, and apply it to the schedule if that succeeds. A result that
        is too large for a record is replaced by a failure."""
        self._leadership.require()
        revision = self._revisions.get(job.id, 0)
        record = encode(job)
        if len(record) > MAX_RECORD_SIZE and job.result is not None:
            why = f"the report from {job.result.worker} is too large"
            kept = FleetResult(ok=False, outcome="failed", why=why, worker=job.result.worker)
            job = structs.replace(job, result=kept)
            record = encode(job)
        self._revisions[job.id] = await self._connection.store(
            subjects.job_record(job.id), record, revision=revision
        )
        self._schedule.applied(job, now)
        if job.state == "done":
            self._remember_done(job.id)

    def _remember_done(self, job_id: str) -> None:
        self._done[job_id] = None
        while len(self._done) > MAX_DONE:
            oldest = next(iter(self._done))
            del self._done[oldest]
            self._schedule.forget(oldest)
            self._revisions.pop(oldest, None)

    # -- time

    async def _tick(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._options.lease / 8):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            await self._look_at_room()
            async with self._lock:
                try:
                    await self._end_lost()
                    await self._assign()
                except FleetFull as error:
                    log.warning("cannot assign jobs: %s", error)
                    self._room.clear()
                await self._tell_workers()

    async def _tell_workers(self) -> None:
        """Notify submitters if the list of workers has changed, so that they can request it."""
        lines = self._schedule.worker_lines(clock())
        workers = tuple(structs.replace(line, silent=0.0) for line in lines)
        if workers != self._told_workers:
            self._told_workers = workers
            await self._connection.publish(subjects.WORKERS, b"")

    async def _look_at_room(self) -> None:
        """Accept no new jobs while the remaining space is reserved for the accepted ones, whose
        records still grow."""
        try:
            info = await cancellable(self._jetstream.stream_info(subjects.JOBS))
        except (NatsError, OSError) as error:
            raise FleetError(f"cannot read the state of the job record stream: {error}") from error
        limit = info.config.max_bytes or -1
        full = limit > 0 and info.state.bytes > limit * (1 - RESERVE)
        if full is self._room.is_set():
            state = "is almost full: new jobs wait" if full else "has room again"
            log.warning("the job record stream %s", state)
        if full:
            self._room.clear()
        else:
            self._room.set()

    async def _end_lost(self) -> None:
        for job in self._schedule.expired(clock()):
            current = job.current
            assert current is not None
            report = subjects.result(current.worker, job.id, current.number)
            if await self._connection.last(subjects.INBOX, report) is not None:
                # The worker has finished: its report is stored and will be read next.
                continue
            facts = await read_facts(self._connection, job.id, current)
            changed = self._schedule.lost(job.id, facts, at=time.time())
            if changed is not None:
                log.warning("job %s: %s was lost", job.id, current.worker)
                await self._write(changed, clock())

    async def _assign(self) -> None:
        for job in self._schedule.assignments(clock(), at=time.time()):
            current = job.current
            assert current is not None
            worker = self._schedule.workers[current.worker]
            now = clock()
            await self._write(job, now)
            self._schedule.sent(worker.name)
            message = JobAssignment(
                epoch=self._leadership.epoch,
                boot=worker.beat.boot,
                job=job.id,
                attempt=current.number,
                spec=job.spec,
            )
            await self._connection.publish(subjects.assignment(worker.name), encode(message))

    # -- requests

    async def _answer(self) -> None:
        handlers = {
            subjects.BEATS: self._on_beat,
            subjects.QUESTIONS: self._on_question,
            subjects.DRAIN: self._on_drain,
        }
        for subject, handler in handlers.items():
            await self._connection.subscribe(subject, handler, on_failure=self._handler_failed)
        await self._failed

    def _handler_failed(self, error: Exception) -> None:
        """Called when a message handler failed. Ends the session, because what it knows may no
        longer agree with what is stored."""
        settle(self._failed, None, FleetError(f"a message could not be processed: {error!r}"))

    async def _on_beat(self, message: Msg) -> None:
        name = message.subject.partition(".")[2]
        if len(message.data) > MAX_BEAT_SIZE:
            log.warning("ignored a heartbeat of %s: it is too large", name)
            return
        try:
            beat = decode(message.data, Beat)
        except FleetError as error:
            log.warning("ignored a heartbeat from %s: %s", name, error)
            return
        new = name not in self._schedule.workers
        reply = self._schedule.beat(name, beat, clock())
        if new or self._schedule.has_work_for(name, clock()):
            self._wake.set()
        # A coordinator that may have been replaced must not renew a lease, because the new leader
        # may already have ended it.
        if self._leadership.leads:
            await self._respond(message, encode(reply))

    async def _on_question(self, message: Msg) -> None:
        word = message.subject.rpartition(".")[2]
        if word == "jobs":
            reply = jobs_reply(self._schedule, clock())
        elif word == "workers":
            reply = workers_reply(self._schedule, message.data, clock())
        elif word == "room":
            reply = CoordinatorReply(full=self._full())
        elif word == "waiting":
            reply = await self._waiting(message.data)
        else:
            unknown = UsageError(f"unknown request {word!r}")
            reply = CoordinatorReply(error=str(unknown), failure=describe(unknown))
        await self._respond(message, encode(reply))

    def _full(self) -> str:
        return "" if self._room.is_set() else why_full(self._options.limits)

    async def _waiting(self, data: bytes) -> CoordinatorReply:
        """Return a reply that says whether the submission of a job by any member is still in the
        inbox."""
        try:
            job = subjects.require_job_id(decode(data, JobQuestion).job)
            submission = subjects.submission("*", job)
            found = await self._connection.after(subjects.INBOX, 1, submission)
        except DragomanError as error:
            return CoordinatorReply(error=str(error), failure=describe(error))
        return CoordinatorReply(waiting=found is not None, full=self._full())

    async def _on_drain(self, message: Msg) -> None:
        reply = CoordinatorReply()
        try:
            await self._drain(decode(message.data, DrainQuestion))
        except DragomanError as error:
            reply = CoordinatorReply(error=str(error), failure=describe(error))
            if isinstance(error, FleetUnreachable | FleetConflict):
                # The change may have been stored, so the current revision is unknown here.
                self._handler_failed(error)
        await self._respond(message, encode(reply))

    async def _respond(self, message: Msg, data: bytes) -> None:
        if message.reply:
            try:
                await self._connection.publish(message.reply, data)
            except FleetError as error:
                log.info("could not send a reply: %s", error)


async def _first_of(*tasks: asyncio.Task[None]) -> None:
    """Wait until one of the tasks has ended, and raise its exception, if any."""
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        await task


def _report(data: bytes, worker: str) -> AttemptEnded:
    """Decode a worker's report. One that cannot be read ends the job as failed; otherwise the job
    would never end."""
    try:
        return decode(data, AttemptEnded)
    except FleetError as error:
        why = f"the report from {worker} cannot be read: {error}"
        return AttemptEnded(result=FleetResult(ok=False, outcome="failed", why=why))
