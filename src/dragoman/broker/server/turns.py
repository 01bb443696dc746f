"""Run turns: queue a prompt, send it to the peer once, cancel it, answer it after its last event.

A turn ends with the peer's answer, the peer's death, or a cancel whose grace period ran out.
Budgets (timeouts) of turns without a caller are checked here. `sessions` restores a session before
a turn.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
import os
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw

from dragoman.broker import error_codec, protocol
from dragoman.broker.server.cancellation import Move, Phase, Trigger
from dragoman.broker.server.jobs import Job, Jobs
from dragoman.broker.server.queue import Queue
from dragoman.client.budgets import Budgets, Watchdog
from dragoman.client.results import (
    add_stderr,
    complete_usage,
    explain,
    failure_record,
    peer_end,
    stop_of,
    usage_record,
)
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1 import translate
from dragoman.errors import (
    BrokerError,
    BudgetExceeded,
    ConnectionEnded,
    ConnectionLost,
    DragomanError,
    InvalidAnswer,
    PeerUnresponsive,
    RemoteError,
    SessionUnusable,
    UsageError,
)
from dragoman.events import model
from dragoman.events.model import EventEnvelope
from dragoman.gateway import prompt_responses
from dragoman.wire import codes

if TYPE_CHECKING:
    from dragoman.broker.server.broker import Broker
    from dragoman.broker.server.caller import Caller
    from dragoman.broker.server.live_session import LiveSession
    from dragoman.broker.server.peer import PeerLink

log: Final = logging.getLogger("dragoman.broker")

PROMPT: Final = acp.SESSION_PROMPT.name
CANCELLED: Final = Raw(b'{"stopReason":"cancelled"}')
_NOWHERE: Final = EventEnvelope(model.Source("acp", "broker"), itertools.count(), None)
"""Envelope for the end of a turn that produces no events."""

MAX_TRIES: Final = 3
"""Maximum number of attempts to prepare a prompt, and in each of them to restore its session, while
the peer keeps dying."""

MIN_LEFT: Final = 0.001
"""Minimum number of seconds that are left of a turn's total budget when its caller disconnects: a
budget cannot be 0."""


class Turns:
    """The turns of a broker."""

    def __init__(self, broker: Broker, *, parallel: bool) -> None:
        self._broker = broker
        self.jobs = Jobs()
        self.queue: Queue[Job] = Queue(lambda job: job.session.key, parallel=parallel)
        self._graces: dict[Job, asyncio.TimerHandle] = {}
        self._vigils: dict[Job, Watchdog] = {}
        self._holding = False
        self._called_off: set[Job] = set()
        """Jobs cancelled while their session was being restored."""

    # -- start

    def put(self, job: Job) -> None:
        """Queue a job, and start it if it may run now. Raises `BrokerBusy` if too many are waiting,
        and `UsageError` if the id is known."""
        if self.jobs.get(job.id) is not None:
            raise UsageError(f"job {job.id!r} already exists; a prompt is not sent twice")
        self.queue.put(job)
        self.jobs.add(job)
        self._broker.work_changed()
        self.advance()
        if job.started_at is None and job.ended_at is None:
            self._broker.job_changed(job)

    def advance(self) -> None:
        """Start the queued jobs that may run now."""
        while not self._holding and (job := self.queue.ready()) is not None:
            self._start(job)

    def _start(self, job: Job) -> None:
        session = job.session
        refused = self._objection(session)
        if refused is not None:
            self._end(job, error=refused)
            return
        far = self._broker.far
        if (
            far is not None
            and session.far is far
            and not session.replaying
            and not self._broker.sessions.is_reopening(session)
            and not far.connection.is_full
        ):
            self._send(job, far)
        else:
            self._broker.tasks.start(self._prepare(job), f"prepare {job.id}")

    def _objection(self, session: LiveSession) -> DragomanError | None:
        if session.quarantined:
            return SessionUnusable(
                f"the session {session.id} is quarantined: the peer has not ended a turn that was "
                "cancelled; use another session, or stop the broker to restart the peer"
            )
        if not os.path.isdir(session.cwd):
            return UsageError(
                f"the session's directory {str(session.cwd)!r} is gone: it was deleted or moved"
            )
        return None

    async def _prepare(self, job: Job, *, tries: int = 1) -> None:
        """Ensure that the peer and the session are ready, then send the prompt."""
        try:
            job.context = await self._have_ready(job)
        except DragomanError as error:
            self._not_sent(job, error)
            return
        except asyncio.CancelledError:
            self._not_sent(job, ConnectionLost("the broker is shutting down"))
            raise
        except BaseException as error:
            why = f"the broker failed before it sent the prompt: {error!r}"
            self._not_sent(job, BrokerError(why))
            raise
        if job in self._called_off:
            self._dropped(job)
        elif (now := self._broker.far) is not job.session.far or now is None:
            # The peer died again in the meantime. Nothing was sent, so nothing is lost.
            if tries < MAX_TRIES:
                again = self._prepare(job, tries=tries + 1)
                self._broker.tasks.start(again, f"prepare {job.id} again")
            else:
                self._end(
                    job, error=ConnectionEnded("the agent keeps ending before the prompt is sent")
                )
        else:
            self._send(job, now)

    async def _have_ready(self, job: Job) -> str:
        """Ensure that the session is ready.

        If the peer dies before that, wait for its restart: nothing was sent. Returns the state of
        the session's context.
        """
        for _ in range(MAX_TRIES - 1):
            far = await self._broker.ready()
            try:
                return await self._have_room(job, far)
            except DragomanError:
                if far.failure is None:
                    raise
        return await self._have_room(job, await self._broker.ready())

    async def _have_room(self, job: Job, far: PeerLink) -> str:
        """Ensure that the session is ready, and that the peer has read most of what was sent.
        Returns the state of the session's context."""
        context = await self._broker.restore(job.session, far, fresh=job.fresh)
        await far.connection.wait_for_room(PROMPT, self._broker.budgets.request)
        return context

    def _not_sent(self, job: Job, error: DragomanError) -> None:
        """End a job whose prompt could not be sent, unless it was cancelled and so has already
        ended."""
        if job in self._called_off:
            self._dropped(job)
        else:
            self._end(job, error=error)

    def _dropped(self, job: Job) -> None:
        self._called_off.discard(job)
        self.queue.done(job)
        self._broker.left_queue(job)
        self._broker.work_changed()
        self.advance()

    def _send(self, job: Job, far: PeerLink) -> None:
        """Send the prompt. Happens once per job."""
        session = job.session
        session.job = job
        session.opening = None
        job.stderr_before = far.stderr_size
        session.cancelling.on(Trigger.BEGIN)
        job.begin(session.log.next)
        session.turn_began(job.caller)
        body = {**job.params, "sessionId": protocol.pack(session.id)}
        self._broker.job_changed(job)
        try:
            far.connection.begin(
                PROMPT, protocol.pack(body), settle=functools.partial(self._settled, job)
            )
        except DragomanError as error:
            session.cancelling.on(Trigger.ANSWER)
            self._end(job, error=error)
            return
        self._broker.liveness.look_later(far, "a prompt")
        if job.caller is None:
            self._keep_vigil(job)

    # -- end

    def _settled(self, job: Job, result: Raw | None, error: DragomanError | None) -> None:
        """Called when the peer has answered the prompt, or is gone."""
        session = job.session
        move = session.cancelling.on(Trigger.ANSWER)
        if move is Move.RELEASE:
            log.info("session %s: the peer has ended its turn after all", session.id)
        elif move is Move.SETTLE:
            gone = session.far.failure
            if error is not None and gone is not None:
                error = session.far.explain(gone.fresh())
                error.may_have_run = True
            elif isinstance(error, RemoteError):
                error = add_stderr(error, lambda: session.far.stderr_tail(job.stderr_before))
                if error.code == codes.AUTH_REQUIRED:
                    # The job's error includes how to log in, as in a run without a broker.
                    error = session.far.explain(error)
            if job.cancelled and job.expired is None and isinstance(error, PeerUnresponsive):
                # It was killed because it ignored the cancel, as after the grace period.
                result, error = CANCELLED, None
            self._end(job, result=result, error=error)
        self.advance()

    def _end(
        self, job: Job, *, result: Raw | None = None, error: DragomanError | None = None
    ) -> None:
        """End a job, for any reason: record its outcome, and have it stored. `_stored` then
        answers."""
        session = job.session
        if (grace := self._graces.pop(job, None)) is not None:
            grace.cancel()
        if (vigil := self._vigils.pop(job, None)) is not None:
            vigil.stop()
        next_event = session.log.next
        ran = session.job is job
        if ran:
            session.questions.turn_ended(job)
            session.job = None
        if result is not None:
            error = self._conclude(job, result, next_event)
        if error is not None:
            if job.started_at is None:
                # The error is about another request, such as one that restores the session. The
                # prompt itself was not sent.
                error = error.fresh()
                error.may_have_run = False
            # If the peer refuses the prompt because of the cancel, or was killed for ignoring it,
            # that is not the reason why the turn ended.
            because = job.expired if isinstance(error, RemoteError | PeerUnresponsive) else None
            reason = because or error
            usage = usage_record(session.used() if ran else None)
            end = peer_end(reason)
            if end is None:
                outcome, failure = explain(reason)
                told: dict[str, Any] | None = failure_record(failure, reason)
                stop = stop_of(reason)
            else:
                outcome, stop = end.outcome, end.stop
                told = None if end.failure is None else failure_record(end.failure, error)
            job.end(outcome, next_event=next_event, stop=stop, failure=told, usage=usage)
        if ran:
            # Later updates are not part of the turn, and follow its response.
            session.hold_updates()
        job.when_ended(functools.partial(self._stored, job, result, error, ran=ran))
        self._broker.job_ended(job)

    def _stored(
        self, job: Job, result: Raw | None, error: DragomanError | None, *, ran: bool
    ) -> None:
        """Called when the end of a job is on disk, or cannot be stored: answer its caller, and
        start what may run now."""
        session = job.session
        self._answer(job, result, error)
        if session.job is None:
            session.turn_ended()
        if ran:
            session.pass_held_updates()
        self.queue.done(job)
        self._broker.left_queue(job)
        self._broker.work_changed()
        self.advance()

    def _conclude(self, job: Job, result: Raw, next_event: int) -> DragomanError | None:
        try:
            response = acp.SESSION_PROMPT.decode_result(result)
        except msgspec.ValidationError as error:
            return InvalidAnswer(f"invalid response to {PROMPT}: {error}")
        ended = translate.of_answer(response, _NOWHERE, None)
        # What the peer reports meanwhile is about a job that runs.
        told = None if job.started_at is None else job.session.used()
        usage = usage_record(complete_usage(ended.usage, told))
        outcome, stop, failed = ended.outcome, ended.stop, None
        if job.expired is not None:
            # A budget that ran out is the reason, however the peer reacted to the cancel.
            outcome, failure = explain(job.expired)
            stop, failed = stop_of(job.expired), failure_record(failure, None)
        job.end(outcome, next_event=next_event, stop=stop, usage=usage, failure=failed)
        return None

    def _answer(self, job: Job, result: Raw | None, error: DragomanError | None) -> None:
        """Answer the prompt, after all events of its turn."""
        caller, request = job.caller, job.request
        if caller is None or request is None or caller.connection.failure is not None:
            return
        connection = caller.connection
        notices = job.notices

        def refuse(refused: RemoteError) -> None:
            refused = error_codec.with_notice(refused, "; ".join(notices))
            connection.refuse(request, refused.code, refused.message, refused.data)

        def answer() -> None:
            if error is not None:
                # The broker's own notice waits for the next turn that ends without an error.
                refuse(error_codec.refusal(error))
                return
            assert result is not None
            try:
                told = prompt_responses.prompt_result(result)
            except RemoteError as failed:
                # The caller may be any ACP client, and this stop reason is not part of ACP.
                refuse(failed)
                return
            own = self._broker.take_notice()
            added = protocol.Added(
                job=job.id,
                next_event=job.next_event,
                context=job.context,
                unstored=self._broker.unstored or None,
                notice="; ".join([own, *notices] if own else notices) or None,
            )
            raw = told if told is result else Raw(acp.encode(told))
            connection.answer(request, protocol.with_added(raw, added))

        reader = job.session.readers.get(caller)
        if reader is None:
            # The caller has closed the session.
            answer()
        else:
            reader.behind(answer)

    # -- cancellation

    def cancel(self, job: Job) -> bool:
        """Cancel a job. A running turn ends when the peer answers, or after the grace period.
        Returns False if the job has already ended."""
        if job.ended_at is not None:
            return False
        session = job.session
        if session.job is job:
            job.cancelled = True
            if session.cancelling.on(Trigger.CANCEL) is Move.SEND:
                self._send_cancel(job)
            return True
        if self.queue.drop(job):
            self._end(job, result=CANCELLED)
            self.advance()
            return True
        if job not in self._called_off and job in self.queue.running:
            # Its session is being restored. The response need not wait for that, but the queue slot
            # must.
            self._called_off.add(job)
            self._end_in_place(job)
        return True

    def _end_in_place(self, job: Job) -> None:
        self._conclude(job, CANCELLED, job.session.log.next)
        job.when_ended(functools.partial(self._answer, job, CANCELLED, None))
        self._broker.job_ended(job)

    def _send_cancel(self, job: Job) -> None:
        session = job.session
        cancel = acp.CancelNotification(session_id=session.id)
        budgets = self._broker.budgets
        grace = budgets.cancel_grace
        if job.expired is not None:
            # A caller that set a time limit does not wait long beyond it.
            grace = budgets.grace_after(job.expired.budget)
        heard = session.far.heard
        try:
            session.far.connection.post(acp.SESSION_CANCEL.name, cancel)
        except DragomanError as error:
            log.debug("could not send a cancel to the peer: %s", error)
        # After the cancel: a peer that gets the answers first may end its turn normally.
        session.questions.call_off()
        self._broker.liveness.doubt(
            session.far, "a cancel", heard=heard, window=budgets.cancel_grace
        )
        loop = asyncio.get_running_loop()
        self._graces[job] = loop.call_later(grace, self._grace_over, job, grace)

    def work_at(self, far: PeerLink) -> bool:
        """Return whether an uncancelled turn runs in this process of the peer."""
        running = [job.session for job in self.queue.running if job.session.job is job]
        return any(
            session.far is far and session.cancelling.phase is Phase.RUNNING for session in running
        )

    def _grace_over(self, job: Job, grace: float) -> None:
        if job.session.cancelling.on(Trigger.GRACE_OVER) is Move.GIVE_UP:
            log.warning(
                "session %s is quarantined: the peer did not end its turn within %g s of a cancel",
                job.session.id,
                grace,
            )
            job.session.note("quarantine", {"job": job.id})
            job.session.far.hurry()
            self._end(job, result=CANCELLED)
            self.advance()

    # -- callers that disconnect

    def left(self, caller: Caller) -> None:
        """Called when a caller has disconnected.

        Its turns continue under their budgets; a caller that does not want that cancels them first.
        """
        for job in [*self.queue.waiting(), *self.queue.running]:
            if job.caller is not caller:
                continue
            job.caller = job.request = None
            if job.session.job is job:
                self._keep_vigil(job)

    def cancel_for(
        self, caller: Caller, session: LiveSession, *, expired: BudgetExceeded | None = None
    ) -> None:
        """Cancel a caller's own jobs in a session or, if it has none there, those without a caller.

        Never both: a caller that stops waiting behind an unattended job does not mean that job.
        `expired` is the caller's own time limit, if that ran out.
        """
        jobs = self._jobs_of(session)
        own = [job for job in jobs if job.caller is caller]
        for job in own:
            if not (session.job is job and session.is_cancelling):
                # The first cancel gives the reason.
                job.expired = expired
        for job in own or [job for job in jobs if job.caller is None]:
            self.cancel(job)

    def cancel_own(self, caller: Caller, session: LiveSession) -> None:
        """Cancel a caller's own jobs in a session."""
        for job in self._jobs_of(session):
            if job.caller is caller:
                self.cancel(job)

    def _jobs_of(self, session: LiveSession) -> list[Job]:
        """Return the waiting and running jobs of a session."""
        jobs = [*self.queue.waiting(session.key), *self.queue.running]
        return [job for job in jobs if job.session is session]

    def _keep_vigil(self, job: Job) -> None:
        """Enforce the budgets of a turn that no caller follows. The silence budgets are suspended
        while the peer waits for an answer from a person, or for a file or terminal service of the
        broker, and while it is not read."""
        if job in self._vigils:
            return
        session = job.session
        checked = job.first_event

        def waits_for_us() -> bool:
            nonlocal checked
            for tool_id, status in session.tool_reports(checked):
                vigil.tool_changed(tool_id, status)
            checked = session.log.next
            for tool_id in job.allowed_calls:
                vigil.tool_changed(tool_id, None)
            vigil.signs = checked - job.first_event
            return (
                bool(session.questions.open) or session.sheltered.serving > 0 or session.far.is_held
            )

        def expire(budget: str, timeout: float) -> None:
            self._vigils.pop(job, None)
            if budget == "total" and total is not None:
                timeout = total
            job.expired = BudgetExceeded(budget, timeout)
            log.warning("job %s: %s", job.id, job.expired)
            session.note("budget", {"job": job.id, "budget": budget})
            self.cancel(job)

        given = job.budgets
        budgets = (
            self._broker.budgets
            if given is None
            else Budgets(
                first_event=given.first_event,
                silence=given.silence,
                tool_silence=given.tool_silence,
                total=given.total,
            )
        )
        if (total := budgets.total) is not None:
            # The turn began before its caller left.
            left = total - (time.monotonic() - job.began)
            budgets = msgspec.structs.replace(budgets, total=max(left, MIN_LEFT))
        vigil = Watchdog(budgets, expire, waits_for_us)
        self._vigils[job] = vigil
        vigil.start()

    # -- shutdown

    def fail_waiting(self, error: DragomanError) -> None:
        """Fail the waiting jobs, because the peer cannot be started or the broker ends."""
        # Otherwise the end of one job would start the next, which has to fail as well.
        self._holding = True
        try:
            for job in list(self.queue.waiting()):
                if self.queue.drop(job):
                    self._end(job, error=error.fresh())
        finally:
            self._holding = False
        self.advance()

    def close(self) -> None:
        """Stop the timers of budgets and grace periods, because the broker ends."""
        for grace in self._graces.values():
            grace.cancel()
        for vigil in self._vigils.values():
            vigil.stop()
        self._graces.clear()
        self._vigils.clear()

    def status(self) -> list[dict[str, Any]]:
        return [
            {"id": job.id, "state": job.state, "sessionId": job.session.id}
            for job in self.jobs
            if job.state != "ended"
        ]
