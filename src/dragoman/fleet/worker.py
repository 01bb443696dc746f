"""A worker: sends heartbeats, receives jobs on its own subject, runs them, publishes the results.

A job runs only while its lease is valid. Each answered heartbeat extends the lease, counted from
when the heartbeat was sent. When it expires, the worker ends the agent and publishes nothing more.
`job_run` runs the job; `coordinator` is the other side.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from secrets import token_hex
from typing import Final

import msgspec
from msgspec import Struct
from nats.aio.msg import Msg

from dragoman.delegation.worktree.sent_tree import SentTree
from dragoman.errors import (
    DragomanError,
    FleetError,
    FleetFull,
    FleetRefused,
    FleetUnreachable,
    UsageError,
)
from dragoman.events.model import Event
from dragoman.fleet import subjects
from dragoman.fleet.announcement import announced_peers
from dragoman.fleet.connection import RETRY_INTERVAL, FleetConnection
from dragoman.fleet.coordinator import clock
from dragoman.fleet.credentials import MemberCredential
from dragoman.fleet.event_publisher import EventPublisher
from dragoman.fleet.job_run import (
    JobOutput,
    WorkerLimits,
    failed_attempt,
    failed_report,
    job_folder,
    refusal,
    remove_leftovers,
    removed,
    require_no_secret,
    run_job,
    unpacked,
    worker_context,
    worker_secrets,
)
from dragoman.fleet.objects import get_object, put_object
from dragoman.fleet.records import (
    AttemptEnded,
    Beat,
    BeatReply,
    FleetLimits,
    FleetResult,
    JobAssignment,
    PeerDetails,
    RunningJob,
    decode,
    encode,
)
from dragoman.paths import find_paths
from dragoman.redaction.redactor import Redactor
from dragoman.rpc.tasks import TaskOwner, finish, in_thread, was_cancelled
from dragoman.runs.context import RunContext
from dragoman.runs.run_values import CancelHandle
from dragoman.version import __version__

log = logging.getLogger(__name__)

FIRST_LEASE: Final = 3.0
"""Lease in seconds to assume until the coordinator has answered."""

CONNECT_INTERVAL: Final = 1.0
"""Seconds between attempts to connect while the server cannot be reached at the start."""

PEERS_INTERVAL: Final = 20.0
"""Seconds between reads of the peers' states."""

BEATS_PER_LEASE: Final = 5
MAX_TEXT_SIZE: Final = 32 * 1024
"""Maximum bytes of the answer in the job's record; the delegation has all of it."""


class WorkerOptions(Struct, frozen=True, kw_only=True):
    slots: int = 1
    labels: tuple[str, ...] = ()
    limits: WorkerLimits = WorkerLimits()


class LeasedJob:
    """A job that was assigned to this worker, and its lease."""

    def __init__(self, assignment: JobAssignment) -> None:
        self.assignment = assignment
        self.until = 0.0
        """When the lease expires; 0 until the first answered heartbeat."""
        self.confirmed = asyncio.Event()
        self.fenced = False
        self.reported = False
        self.cancel = CancelHandle()
        self.task: asyncio.Task[None] | None = None

    @property
    def running(self) -> RunningJob:
        return RunningJob(self.assignment.job, self.assignment.attempt)

    def holds(self) -> bool:
        return not self.fenced and clock() < self.until


class FleetWorker:
    """Runs the jobs that the coordinator assigns to this machine, until `run` is stopped."""

    def __init__(
        self,
        credential: MemberCredential,
        options: WorkerOptions,
        *,
        on_notice: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._credential = credential
        self._options = options
        self._on_notice = on_notice
        self._boot = token_hex(8)
        self._epoch = 0
        self._answered_at = 0.0
        """When the coordinator of the current epoch last answered."""
        self._lease = FIRST_LEASE
        self._limits = FleetLimits()
        self._jobs: dict[str, LeasedJob] = {}
        self._tasks = TaskOwner("a worker")
        self._beat_now = asyncio.Event()
        self._draining = False
        self._drained = False
        self._peers: dict[str, PeerDetails] = {}
        self._unread = ""
        """The last reported reason why the state of the peers could not be read; empty if it
        could."""
        self._tell_details = True
        self._state = find_paths().state
        self._place: RunContext
        self._secrets: tuple[str, ...] = ()
        self._redact: Redactor

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set and the running jobs have ended. Raises `FleetRefused` if the
        credentials are revoked or have expired, or the server has another certificate."""
        await in_thread(str(self._state), lambda _: self._load_settings())
        await remove_leftovers(self._state, now=time.time())
        async with AsyncExitStack() as stack:
            connection = await self._connected(stack, stop)
            if connection is None:
                return
            await self._read_peers()
            parts = [
                self._tasks.start(self._beats(), "heartbeats"),
                self._tasks.start(connection.wait_closed(), "connection"),
                self._tasks.start(self._stopped(stop), "stop"),
                self._tasks.start(self._look_at_peers(), "peers"),
            ]
            try:
                done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    await task
                if parts[1] in done:
                    raise connection.refusal()
            finally:
                self._fence_all()
                await finish(self._tasks.aclose())

    async def _connected(
        self, stack: AsyncExitStack, stop: asyncio.Event
    ) -> FleetConnection | None:
        """Connect, retrying while the server cannot be reached. Returns None if `stop` is set
        first."""
        told = False
        while not stop.is_set():
            try:
                connection = FleetConnection(self._credential)
                self._connection = await stack.enter_async_context(connection)
                await connection.subscribe(
                    subjects.assignment(connection.name),
                    self._on_assignment,
                    on_dropped=self._assignment_dropped,
                )
                return connection
            except FleetUnreachable as error:
                await stack.aclose()
                if not told:
                    self._on_notice(f"{error}; retrying until the server answers")
                told = True
            try:
                async with asyncio.timeout(CONNECT_INTERVAL):
                    await stop.wait()
            except TimeoutError:
                pass
        return None

    async def _stopped(self, stop: asyncio.Event) -> None:
        """Wait for `stop`, then accept no more jobs and return when the last one has ended or was
        reported."""
        await stop.wait()
        self._draining = True
        self._beat_now.set()
        while waiting := [
            one.task
            for one in self._jobs.values()
            if not one.reported and one.task is not None and not one.task.done()
        ]:
            await asyncio.wait(waiting)

    def _fence_all(self) -> None:
        for leased in self._jobs.values():
            self._fence(leased, "the worker is shutting down")

    # -- heartbeats

    async def _beats(self) -> None:
        while True:
            self._beat_now.clear()
            await self._beat()
            try:
                async with asyncio.timeout(self._lease / BEATS_PER_LEASE):
                    await self._beat_now.wait()
            except TimeoutError:
                pass
            self._enforce()

    async def _beat(self) -> None:
        sent_at = clock()
        listed = dict(self._jobs)
        beat = Beat(
            boot=self._boot,
            slots=self._options.slots,
            running=tuple(one.running for one in listed.values()),
            reported=sum(one.reported for one in listed.values()),
            labels=self._options.labels,
            peers={name: one.state for name, one in self._peers.items()},
            details=self._peers if self._tell_details else None,
            draining=self._draining,
            version=__version__,
            machine=os.uname().nodename if hasattr(os, "uname") else "",
        )
        try:
            message = await self._connection.request(
                subjects.beat(self._connection.name),
                encode(beat),
                timeout=self._lease / BEATS_PER_LEASE * 2,
            )
            reply = decode(message.data, BeatReply)
        except FleetUnreachable as error:
            log.debug("no answer to a heartbeat: %s", error)
            return
        if reply.epoch < self._epoch and clock() < self._answered_at + self._lease:
            # From a coordinator that was replaced but still answers. After a lease it has stopped;
            # then the server's streams were deleted, and the epochs begin again.
            return
        self._answered_at = clock()
        self._epoch, self._lease, self._limits = reply.epoch, reply.lease, reply.limits
        if beat.details is None or beat.details is self._peers:
            self._tell_details = reply.tell_details
        held = {(one.job, one.attempt) for one in reply.held}
        for job, leased in listed.items():
            if (job, leased.assignment.attempt) in held:
                if not leased.fenced:
                    leased.until = sent_at + reply.lease
                    leased.confirmed.set()
            else:
                # The coordinator has accepted the result, or reassigned the job.
                self._drop(leased)
            if job in reply.cancelled:
                leased.cancel.pull()
        if reply.drain != self._drained:
            self._drained = reply.drain
            self._on_notice(
                "drained: accepting no more jobs" if reply.drain else "accepting jobs again"
            )

    def _load_settings(self) -> None:
        """Load the settings, and the secrets in them. Reads the disk.

        Repeated before each job: the delegation reads the settings again, and a variable that they
        now pass to a peer may contain a secret.
        """
        place = worker_context(self._state.parent, self._options.limits)
        secrets = worker_secrets(place, self._credential.seed, self._credential.token)
        self._place, self._secrets, self._redact = place, secrets, Redactor(secrets)

    def _announced_peers(self) -> dict[str, PeerDetails]:
        self._load_settings()
        return announced_peers(self._place, self._redact)

    async def _look_at_peers(self) -> None:
        """Read the peers' states periodically."""
        while True:
            await asyncio.sleep(PEERS_INTERVAL)
            await self._read_peers()

    async def _read_peers(self) -> None:
        try:
            found = await in_thread(str(self._state), lambda _: self._announced_peers())
        except (DragomanError, OSError) as error:
            if str(error) != self._unread:
                self._unread = str(error)
                self._on_notice(f"cannot read the state of the peers: {error}")
            return
        self._unread = ""
        if found != self._peers:
            self._peers = found
            self._tell_details = True

    def _enforce(self) -> None:
        for leased in list(self._jobs.values()):
            if leased.until and clock() >= leased.until:
                self._fence(leased, "its lease expired")
                self._forget(leased)

    def _drop(self, leased: LeasedJob) -> None:
        if not leased.reported:
            self._fence(leased, "the coordinator ended its lease")
        self._forget(leased)

    def _forget(self, leased: LeasedJob) -> None:
        """Remove an attempt from the jobs, unless a later attempt of its job has replaced it."""
        if self._jobs.get(leased.assignment.job) is leased:
            del self._jobs[leased.assignment.job]

    def _fence(self, leased: LeasedJob, why: str) -> None:
        """End the job's agent and publish nothing more for the job."""
        if leased.fenced:
            return
        leased.fenced = True
        leased.confirmed.set()
        if leased.task is not None and not leased.task.done():
            self._on_notice(f"job {leased.assignment.job} stopped: {why}")
            leased.task.cancel()

    async def _guard(self, leased: LeasedJob) -> None:
        """End the job when its lease expires."""
        while not leased.fenced and not leased.reported:
            left = leased.until - clock()
            if left <= 0:
                self._fence(leased, "its lease expired")
                self._forget(leased)
                return
            await asyncio.sleep(min(left, self._lease / BEATS_PER_LEASE))

    # -- jobs

    def _assignment_dropped(self) -> None:
        # No heartbeat lists the job, so its lease expires, and the job is assigned again.
        self._on_notice("an assignment was dropped: this machine is too busy to process it")

    async def _on_assignment(self, message: Msg) -> None:
        try:
            assignment = decode(message.data, JobAssignment)
        except FleetError as error:
            log.warning("ignored an assignment: %s", error)
            return
        if assignment.boot != self._boot or assignment.epoch < self._epoch:
            return
        known = self._jobs.get(assignment.job)
        if known is not None:
            if known.assignment.attempt >= assignment.attempt:
                return
            self._drop(known)
        leased = self._jobs[assignment.job] = LeasedJob(assignment)
        leased.task = self._tasks.start(self._hold(leased), f"job {assignment.job}")

    async def _hold(self, leased: LeasedJob) -> None:
        """Wait until the coordinator confirms the lease, then run the job. The job is dropped if
        the lease is not confirmed within twice its duration."""
        self._beat_now.set()
        try:
            async with asyncio.timeout(self._lease * 2):
                await leased.confirmed.wait()
        except TimeoutError:
            self._jobs.pop(leased.assignment.job, None)
            return
        if not leased.holds():
            return
        guard = self._tasks.start(self._guard(leased), f"lease {leased.assignment.job}")
        try:
            await self._run(leased)
        except asyncio.CancelledError:
            if not leased.fenced:
                raise
        except (FleetError, OSError) as error:
            # The lease will expire, and the coordinator decides what to do with the job.
            self._on_notice(f"job {leased.assignment.job} stopped: {error}")
        finally:
            guard.cancel()
            if not leased.reported:
                self._give_up(leased)
            self._beat_now.set()

    def _give_up(self, leased: LeasedJob) -> None:
        """Stop listing a job that ended without a report, so that its lease expires."""
        leased.fenced = True
        self._forget(leased)

    async def _run(self, leased: LeasedJob) -> None:
        assignment = leased.assignment
        spec = assignment.spec
        try:
            await in_thread(str(self._state), lambda _: self._load_settings())
            why = refusal(spec, self._place, self._options.limits)
        except (DragomanError, OSError) as error:
            why = f"its settings cannot be read: {error}"
        if why:
            await self._report(leased, AttemptEnded(refused=why))
            return
        self._on_notice(f"job {assignment.job}: {spec.role}, attempt {assignment.attempt}")
        began = clock()
        publisher = EventPublisher(
            self._connection,
            self._redact,
            job=assignment.job,
            attempt=assignment.attempt,
            may_publish=leased.holds,
            limits=self._limits,
        )
        try:
            folder = job_folder(self._state, assignment.job, assignment.attempt)
        except UsageError as error:
            await self._report(leased, AttemptEnded(refused=str(error)))
            return
        try:
            data = await get_object(self._connection, spec.bundle)
            sent = await unpacked(spec, data, folder=folder)
        except (FleetUnreachable, FleetRefused):
            raise
        except FleetError as error:
            # It is no longer on the server, or damaged: no worker could run the job.
            why = f"cannot use the repository: {error}"
            await self._report(leased, failed_report(why, clock() - began, may_have_run=False))
            return
        except DragomanError as error:
            await finish(removed(folder))
            await self._report(leased, AttemptEnded(refused=f"cannot use the repository: {error}"))
            return
        except asyncio.CancelledError:
            await finish(removed(folder))
            raise
        try:
            try:
                await publisher.started()
            except FleetFull as error:
                ended = failed_report(str(error), clock() - began, may_have_run=False)
                await self._report(leased, ended)
                return
            if not leased.holds():
                return
            try:
                output = await self._delegated(leased, sent, publisher)
                if output is None:
                    ended = failed_report(
                        "cancelled before a peer was prompted",
                        clock() - began,
                        outcome="cancelled",
                        events=publisher.count,
                        may_have_run=False,
                    )
                else:
                    result = await self._result(output, publisher, clock() - began)
                    ended = AttemptEnded(result=result)
            except FleetUnreachable:
                raise
            except DragomanError as error:
                why = self._redact.text(str(error))
                ended = failed_attempt(publisher, why, clock() - began)
            await self._report(leased, ended)
        finally:
            await finish(removed(folder))

    async def _delegated(
        self, leased: LeasedJob, sent: SentTree, publisher: EventPublisher
    ) -> JobOutput | None:
        """Run the job and publish its events. If they can no longer be sent, end the agent, because
        the coordinator would not learn what it does. Returns None if the job was cancelled before a
        peer was prompted. Raises `DragomanError`.
        """
        job, top = leased.assignment.job, Path(sent.tree.path)

        def on_event(event: Event) -> None:
            publisher.add(event, top)

        async def work() -> JobOutput | DragomanError | None:
            try:
                return await run_job(
                    leased.assignment.spec,
                    sent,
                    limits=self._options.limits,
                    cancel=leased.cancel,
                    on_event=on_event,
                    on_told=publisher.tell,
                )
            except DragomanError as error:
                return error
            except asyncio.CancelledError:
                # Raised by the delegation, unless this task was cancelled.
                if was_cancelled() or not leased.cancel.pulled:
                    raise
                return None
            finally:
                publisher.finish()

        working = self._tasks.start(work(), f"agent {job}")
        sending = self._tasks.start(publisher.run(), f"events {job}")
        try:
            await asyncio.wait({working, sending}, return_when=asyncio.FIRST_EXCEPTION)
            if not working.done():
                failure = sending.exception()
                self._on_notice(f"job {job}: ending the agent, because its events cannot be stored")
                raise FleetError(f"could not store the agent's events: {failure}")
            # However the work ended, store first what the agent did.
            await asyncio.wait({sending})
            output = await working
        finally:
            working.cancel()
            sending.cancel()
            await finish(asyncio.wait({working, sending}))
        if isinstance(output, DragomanError):
            raise output
        return output

    async def _result(
        self, output: JobOutput, publisher: EventPublisher, seconds: float
    ) -> FleetResult:
        done = output.delegation
        require_no_secret(output.patch, self._secrets)
        patch = await put_object(self._connection, output.patch) if output.patch else None
        told = self._redact.value(msgspec.to_builtins(done, enc_hook=str))
        whole = await put_object(self._connection, msgspec.json.encode(told))
        text = self._redact.text(done.text)
        why = self._redact.text(done.stopped)
        if publisher.unstored:
            why = f"{why}{why and '; '}{publisher.unstored} events were not stored"
        return FleetResult(
            ok=done.ok,
            outcome=done.outcome.value,
            text=text.encode()[:MAX_TEXT_SIZE].decode("utf-8", "ignore"),
            peer=done.final.peer,
            seconds=seconds,
            patch=patch,
            delegation=whole,
            events=publisher.count,
            why=why,
        )

    async def _report(self, leased: LeasedJob, ended: AttemptEnded) -> None:
        """Store the report of the attempt. While the server is full, this is repeated until the
        lease expires."""
        one = leased.running
        if not leased.holds():
            raise FleetError("the lease of the job has ended")
        waits = False
        while True:
            try:
                await self._connection.store(
                    subjects.result(self._connection.name, one.job, one.attempt),
                    encode(ended),
                    timeout=max(leased.until - clock(), 0.1) + self._lease,
                )
                break
            except FleetFull as error:
                # The coordinator makes room by reading the inbox.
                if not leased.holds():
                    raise
                if not waits:
                    self._on_notice(f"job {one.job}: cannot store its report yet: {error}")
                waits = True
                await asyncio.sleep(RETRY_INTERVAL)
        leased.reported = True
        result = ended.result
        told = f"refused: {ended.refused}" if result is None else result.outcome
        self._on_notice(f"job {one.job}: {told}")
