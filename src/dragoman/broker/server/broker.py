"""`Broker`: serves one peer to many callers at once.

Connects the parts: `supervisor` keeps the peer alive, `sessions` opens sessions, `turns` runs
prompts, `caller` serves a connection, `recorder` stores events and jobs, `state_machine` holds the
state. `process` runs the broker and handles its lock, socket and signals.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import sys
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import Raw

from dragoman.broker import error_codec, protocol
from dragoman.broker.server import connection_limit
from dragoman.broker.server.caller import Caller
from dragoman.broker.server.jobs import MAX_PROMPT_SIZE, Job
from dragoman.broker.server.live_session import LiveSession
from dragoman.broker.server.liveness import Liveness
from dragoman.broker.server.peer import PeerLink, PeerTrace, reach
from dragoman.broker.server.question_watchers import QuestionWatchers
from dragoman.broker.server.queue import MAX_WAITING
from dragoman.broker.server.recorder import BrokerRecorder
from dragoman.broker.server.sessions import Sessions
from dragoman.broker.server.state_machine import BrokerEvent, BrokerState, Lifecycle
from dragoman.broker.server.supervisor import MAX_DELAY, Open, PeerSupervisor
from dragoman.broker.server.turns import Turns
from dragoman.broker.spec import PROTOCOL, START_MARGIN, BrokerSpec
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import (
    BrokerBusy,
    CallTimeout,
    ConnectionClosed,
    ConnectionLost,
    DragomanError,
    RemoteError,
    UnknownJob,
)
from dragoman.rpc.tasks import TaskOwner, all_ended, finish
from dragoman.transports.base import Stream
from dragoman.transports.process.identity import own_identity, resident_size, resident_tree

if TYPE_CHECKING:
    from dragoman.broker.server.process import BrokerProcess

log: Final = logging.getLogger("dragoman.broker")

LAST_WORDS_TIMEOUT: Final = 2.0
"""Seconds that sending the last responses may take when the broker ends."""


SWITCH_INTERVAL: Final = 0.0005
"""Thread switch interval of the interpreter, in seconds. See `run`."""


class Hello(msgspec.Struct, rename="camel"):
    """`_dragoman/hello`: the caller's version, its digest of the peer's files, and the idle timeout
    that it requests, if any."""

    version: str = ""
    identity: str = ""
    ttl: Annotated[float, msgspec.Meta(ge=0)] | None = None


class Broker:
    """Serves one peer. Create it in the broker process, inside a running event loop."""

    def __init__(self, spec: BrokerSpec, host: BrokerProcess, *, open: Open | None = None) -> None:
        self.spec = spec
        self.budgets = spec.budgets
        self.loads_next_minute = spec.loads_next_minute
        self.tasks = TaskOwner("broker")
        self.liveness = Liveness(self.tasks, is_working=lambda far: self.turns.work_at(far))
        self._host = host
        self._life = Lifecycle(self._changed)
        self._supervisor = PeerSupervisor(
            open or (lambda number: reach(spec, number, self._peer_said)), self
        )
        runner = dataclasses.asdict(own_identity())
        self.recording = BrokerRecorder(spec, runner=runner)
        self.watchers = QuestionWatchers()
        self.sessions = Sessions(self, self.recording)
        self.turns = Turns(self, parallel=spec.parallel is True)
        self._callers: dict[Caller, None] = {}
        """The callers, in order of arrival."""
        self._crowded = False
        """Whether a connection was dropped because of the limit; logged once."""
        self._far: PeerLink | None = None
        self._waiting: dict[asyncio.Future[PeerLink], None] = {}
        """The requests that wait for the peer, in order of arrival."""
        self._opening = 0
        self._problem: DragomanError | None = None
        self._ending = asyncio.Event()
        self._started_at = time.time()
        self._ttl = spec.ttl
        self._idle_since: float | None = None
        self._idle_from = 0.0
        self._was_idle: bool | None = None

    # -- called by the process

    async def serve(self, stream: Stream) -> None:
        """Serve one caller until it disconnects."""
        caller = Caller(self, stream)
        self._callers[caller] = None
        if (leaving := connection_limit.one_too_many(self._callers)) is not None:
            # Not counted any more while its connection is being closed.
            del self._callers[leaving]
            level = logging.DEBUG if self._crowded else logging.WARNING
            log.log(level, "too many connections; closing one that has not sent initialize")
            self._crowded = True
            self.tasks.start(leaving.connection.aclose(), "drop a connection")
        try:
            await caller.serve()
        finally:
            self._left(caller)

    async def run(self) -> None:
        """Keep the peer running until the broker ends, and finally close everything."""
        await self.recording.open()
        # The store's thread and the loop share one interpreter, and each waits for this interval
        # while the other works. The default of five milliseconds is longer than a turn takes.
        before = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_INTERVAL)
        supervisor = self.tasks.start(self._supervisor.run(), "supervise the peer")
        self.work_changed()
        try:
            ending = self.tasks.start(self._ending.wait(), "wait for the end")
            await asyncio.wait({supervisor, ending}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await finish(self._close())
            sys.setswitchinterval(before)

    def stop(self, *, drain: bool) -> None:
        """Make `run` end; with `drain` only after running and queued turns have ended."""
        if not drain:
            self._life.happens(BrokerEvent.STOP)
        elif (
            self._life.happens(BrokerEvent.DRAIN) is BrokerState.DRAINING
            and not self.turns.queue.busy
        ):
            self._life.happens(BrokerEvent.DONE)

    async def _close(self) -> None:
        # The last step added runs first, and a step that fails does not skip the others.
        async with AsyncExitStack() as closing:
            closing.push_async_callback(self.recording.close)
            closing.push_async_callback(self._part_all)
            closing.push_async_callback(self.recording.ends_stored)
            # The peer is ended before, which fails the turns that still run, so that they are
            # answered.
            closing.push_async_callback(self.tasks.aclose)
            closing.callback(self.turns.close)
            closing.callback(self.turns.fail_waiting, ConnectionClosed("the broker was stopped"))
            self._life.happens(BrokerEvent.STOP)

    async def _part_all(self) -> None:
        # All at once, so that the timeouts of callers that do not read do not add up.
        await all_ended(*map(self._part, list(self._callers)))

    async def _part(self, caller: Caller) -> None:
        """Close a connection, after waiting for at most `LAST_WORDS_TIMEOUT` until the caller has
        read most of what was sent."""
        try:
            async with asyncio.timeout(LAST_WORDS_TIMEOUT):
                await caller.connection.drain()
        except (TimeoutError, ConnectionLost):
            log.debug("a caller did not read its last responses")
        await caller.connection.aclose()

    def _changed(self, state: BrokerState) -> None:
        # These two change with every turn.
        level = logging.DEBUG if state in (BrokerState.IDLE, BrokerState.SERVING) else logging.INFO
        log.log(level, "the broker is %s", state.value)
        if state in (BrokerState.DRAINING, BrokerState.STOPPED):
            self._host.release()
        if state is BrokerState.STOPPED:
            self._ending.set()

    def _left(self, caller: Caller) -> None:
        self._callers.pop(caller, None)
        self.turns.left(caller)
        self.watchers.left(caller)
        for session in self.sessions:
            if caller in session.readers:
                session.questions.left(caller)
                session.close_for(caller)
                self.sessions.close_if_done(session)
        if self._far is not None:
            self._far.upstream.left(caller.connection)
        self.trace_wanted()
        self.work_changed()

    # -- the peer

    @property
    def far(self) -> PeerLink | None:
        """The peer, or None if it is not running."""
        far = self._far
        return far if far is not None and far.failure is None else None

    async def ready(self) -> PeerLink:
        """Wait until the peer is running and return it. Raises the error with which its start
        failed, `CallTimeout` if it does not start in time, or `ConnectionClosed` if the broker was
        stopped. `may_have_run` is false in the first two."""
        far = self.far
        if far is not None:
            return far
        if self._life.state is BrokerState.STOPPED:
            raise ConnectionClosed("the broker was stopped")
        future: asyncio.Future[PeerLink] = asyncio.get_running_loop().create_future()
        self._waiting[future] = None
        self._supervisor.want()
        timeout = START_MARGIN + self.budgets.initialize + MAX_DELAY
        try:
            async with asyncio.timeout(timeout):
                return await future
        except TimeoutError:
            late = CallTimeout(acp.INITIALIZE.name, timeout)
            late.args = (f"the agent was not ready within {timeout:g} s",)
            late.may_have_run = False
            raise late from None
        finally:
            del self._waiting[future]

    def peer_up(self, far: PeerLink) -> None:
        self._far = far
        self._problem = None
        self.trace_wanted()
        if (pid := far.pid) is not None:
            self._host.peer_started(pid)
        self._life.happens(BrokerEvent.READY)
        if self.turns.queue.busy:
            self._life.happens(BrokerEvent.WORK)
        for future in self._waiting:
            if not future.done():
                future.set_result(far)

    def peer_down(self, far: PeerLink, failure: ConnectionLost) -> None:
        log.warning("the peer is gone: %s", failure)
        self._far = None
        for session in self.sessions:
            # Open questions could no longer be answered, or only to the next process.
            if session.far is far:
                session.questions.call_off()
        if (pid := far.pid) is not None:
            self._host.peer_ended(pid)
        self._life.happens(BrokerEvent.LOST)

    def peer_unstartable(self, error: DragomanError) -> None:
        log.error("the peer cannot be started: %s", error)
        self._problem = error
        self._life.happens(BrokerEvent.UNSTARTABLE)
        for future in self._waiting:
            if not future.done():
                refused = error.fresh()
                refused.may_have_run = False
                future.set_exception(refused)
        self.turns.fail_waiting(error)

    def peer_coming(self) -> None:
        self._life.happens(BrokerEvent.WANTED)

    def is_wanted(self) -> bool:
        return bool(self._waiting or self.turns.queue.busy)

    # -- used by turns and sessions

    @property
    def unstored(self) -> str:
        """Why nothing is stored; empty while the store works."""
        return self.recording.trouble

    def take_notice(self) -> str:
        """Return the pending notice for the user and forget it; an empty string if there is
        none."""
        notice, self.recording.notice = self.recording.notice, ""
        return notice

    async def restore(self, session: LiveSession, far: PeerLink, *, fresh: bool) -> str:
        return await self.sessions.restore(session, far, fresh=fresh)

    def is_used(self, session: LiveSession) -> bool:
        queue = self.turns.queue
        # A running job may still be waiting for its session to be restored.
        return any(queue.waiting(session.key)) or any(
            job.session is session for job in queue.running
        )

    def job_changed(self, job: Job) -> None:
        self.recording.job_changed(job)

    def job_ended(self, job: Job) -> None:
        self.recording.job_ended(job)

    def left_queue(self, job: Job) -> None:
        self.sessions.close_if_done(job.session)

    def work_changed(self) -> None:
        """Update the state and the idle timer after a change of callers or turns."""
        busy = self.turns.queue.busy
        if busy:
            self._life.happens(BrokerEvent.WORK)
        else:
            self._life.happens(BrokerEvent.DONE)
        # Connections that only sent status requests do not count: other brokers send these.
        idle = not busy and not any(caller.greeted for caller in self._callers)
        if idle is not self._was_idle:
            self._was_idle = idle
            self._idle_since = time.time() if idle else None
            self._idle_from = time.monotonic()
            self._host.idle_changed(idle)

    def _peer_said(self, data: bytes) -> None:
        """Forward the peer's stderr to callers that requested it: those with a running turn, or all
        if no turn runs."""
        running = {job.caller for job in self.turns.queue.running}
        for caller in self._callers:
            if caller.terms.agent_stderr and (caller in running or not running):
                if caller.connection.failure is None and not caller.connection.is_full:
                    said = {"text": data.decode("utf-8", "replace")}
                    caller.connection.post(protocol.STDERR, said)

    def trace_wanted(self) -> None:
        """Start or stop the trace of the peer's wire traffic, to match the callers that now want
        it."""
        if (far := self.far) is None:
            return
        wanting = [caller.connection for caller in self._callers if caller.terms.trace]
        far.trace_with(PeerTrace(far, wanting) if wanting else None)

    # -- called by callers

    def check_room(self) -> None:
        """Raise `BrokerBusy` if the limit of callers is reached."""
        if connection_limit.is_full(self._callers):
            raise BrokerBusy("this broker has reached its limit of callers; try again later")

    def check_work(self) -> None:
        """Raise `BrokerBusy` if the broker is shutting down and takes no new work."""
        if not self._life.takes_work:
            raise BrokerBusy("this broker is shutting down; connect again to get a new one")

    async def greet(self) -> Raw:
        """Return the response to `initialize`: the peer's own, with the broker's additions. Waits
        for the peer, and raises what `ready` does."""
        far = await self.ready()
        body = protocol.members(far.client.hello)
        body["protocolVersion"] = protocol.pack(acp.PROTOCOL_VERSION)
        can = _object_of(body.get("agentCapabilities"))
        more = {"resume": Raw(b"{}"), "close": Raw(b"{}")}
        sessions = _object_of(can.get("sessionCapabilities"))
        can["sessionCapabilities"] = protocol.pack(more | sessions | more)
        body["agentCapabilities"] = protocol.pack(can)
        return protocol.with_added(protocol.pack(body), protocol.Added(broker=self._hello()))

    async def open_session(self, caller: Caller, method: str, params: Raw) -> Raw:
        if self._opening >= MAX_WAITING:
            raise error_codec.busy(self._opening)
        self._opening += 1
        try:
            return await self.sessions.new(caller, method, params)
        finally:
            self._opening -= 1

    def hello(self, params: Raw) -> dict[str, Any]:
        asked = protocol.read(params, Hello)
        if asked.ttl is not None:
            self._ttl = asked.ttl
            self._host.keep_for(asked.ttl)
        return self._hello()

    def _hello(self) -> dict[str, Any]:
        return {
            "version": self.spec.version,
            "protocol": PROTOCOL,
            "peer": self.spec.peer,
            "workspace": self.spec.workspace,
            "identity": self.spec.identity_digest,
            "pid": os.getpid(),
            "startedAt": self._started_at,
            "draining": not self._life.takes_work,
            "state": self._life.state.value,
            "ttl": self._ttl,
        }

    def status(self, caller: Caller) -> dict[str, Any]:
        """Return the status of the broker. The requesting caller is not counted."""
        pid = None if self.far is None else self.far.pid
        return {
            **self._hello(),
            "callers": len(self._callers.keys() - {caller}),
            "peerPid": pid,
            "peerRss": None if pid is None else resident_tree(pid),
            "rss": resident_size(os.getpid()),
            "starts": self._supervisor.starts,
            "problem": None if self._problem is None else str(self._problem),
            "storing": self.recording.trouble or None,
            "sessions": [self._told(session) for session in self.sessions],
            "jobs": self.turns.status(),
            "waiting": len(self.turns.queue),
            "idleSince": self._idle_since,
            "idleFor": time.monotonic() - self._idle_from if self._was_idle else None,
        }

    def _told(self, session: LiveSession) -> dict[str, Any]:
        job = session.job
        return {
            "sessionId": session.id,
            "key": session.key,
            "name": session.name,
            "owner": bool(session.readers),
            "running": None if job is None else job.id,
            "live": session.far is self.far,
            "queued": sum(1 for _ in self.turns.queue.waiting(session.key)),
            "quarantined": session.quarantined,
        }

    def asked_to_stop(self, asked: protocol.Stop, caller: Caller) -> bool:
        others = any(each.greeted for each in self._callers.keys() - {caller})
        if asked.if_idle and (self.turns.queue.busy or others):
            return False
        # After the response is sent.
        asyncio.get_running_loop().call_soon(lambda: self.stop(drain=asked.drain))
        return True

    async def result(self, params: Raw) -> Any:
        """Return a job as it is now. With `wait` in the params, or if the job has just ended, first
        wait until its end is stored or cannot be stored. Raises `UnknownJob`, or `StoreError` if a
        job that is no longer in memory cannot be looked up."""
        asked = protocol.read(params, protocol.JobWanted)
        job = self.turns.jobs.get(asked.job)
        if job is None:
            record = await self.recording.find_job(asked.job)
            if record is None:
                raise UnknownJob(f"there is no job {asked.job!r}; it may have been deleted")
            return msgspec.to_builtins(record)
        if (asked.wait or job.ended_at is not None) and job.state != "ended":
            over = asyncio.Event()
            job.when_ended(over.set)
            # Waits as long as the job takes; cancelled when the caller disconnects.
            await over.wait()
        elif job.state != "ended":
            # The text so far.
            await self.recording.settle(job.session)
        told: dict[str, Any] = msgspec.to_builtins(self.recording.record(job))
        if job.state != "ended" and job.started_at is not None:
            told["text"] = self.recording.said_so_far(job)
        told["prompt"] = job.prompt_text[:MAX_PROMPT_SIZE]
        return told | {"sessionId": job.session.id, "context": job.context}

    def timeout_of(self, method: str) -> float | None:
        """Return the timeout for a request to the peer, or None for no timeout. A login takes as
        long as the user needs."""
        return None if method == acp.AUTHENTICATE.name else self.budgets.request


def _object_of(member: Raw | None) -> dict[str, Raw]:
    """Return a member of the peer's response that should be an object; empty if it is not one, as
    our client reads it."""
    try:
        return {} if member is None else protocol.members(member)
    except RemoteError:
        return {}
