"""Run a delegation: decide, run attempts one after another, retry, fall back, stop on cancel.

`delegate` is the public function; the surfaces, which have a context and a listener, call
`delegate_request`.

Falls back to the next peer only if the previous attempt left no changes behind. Retries the same
peer only if it rejected the prompt because of a temporary limit, before it did anything. Each try
is an attempt with a recorded reason; `attempt` runs it.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, get_args

from msgspec import structs

from dragoman.client.folders import absolute, require_folder
from dragoman.client.inquiries import Inquire
from dragoman.client.permissions import Permit, require_permit
from dragoman.config.schema import Fallback
from dragoman.delegation import learning
from dragoman.delegation.attempt import WORKTREES, Attempt, AttemptSetup, runtime_role
from dragoman.delegation.attempt_report import AttemptReport
from dragoman.delegation.candidates import allowed, nobody, reason_for_first
from dragoman.delegation.collect_facts import LOCAL, gather, login_of
from dragoman.delegation.executor import Executor
from dragoman.delegation.health import BREAKER, Reading, Sign, backoff
from dragoman.delegation.journal import Journal
from dragoman.delegation.listener import DelegationListener, FunctionListener
from dragoman.delegation.otel import calling
from dragoman.delegation.parked import surroundings_here
from dragoman.delegation.permission_ceiling import inherited_ceilings
from dragoman.delegation.prices import read_prices
from dragoman.delegation.request import DelegationRequest
from dragoman.delegation.result import Delegation
from dragoman.delegation.routing import Candidate, Decision, decide
from dragoman.delegation.worktree.sweep import Swept, sweep
from dragoman.errors import UsageError
from dragoman.events.model import Event
from dragoman.events.words import Outcome
from dragoman.rpc.tasks import TaskOwner
from dragoman.runs.cancel_by_file import obey_note
from dragoman.runs.context import RunContext, load_context
from dragoman.runs.lineage import Lineage, inherited
from dragoman.runs.run_values import CancelHandle, Deadline
from dragoman.store.ledger import AttemptRecord, Ending, new_decision_id
from dragoman.store.records import new_job_id

MAX_AGAIN: Final = 2
"""Maximum number of retries of a peer that rejected the prompt because of a temporary limit."""

_PHRASES: Final = {
    Outcome.OK: "did not pass the check",
    Outcome.EMPTY: "ended without an answer",
    Outcome.REFUSED: "refused",
    Outcome.TRUNCATED: "reached a limit",
    Outcome.DENIED: "was denied a permission",
    Outcome.CANCELLED: "cancelled its turn",
    Outcome.TIMED_OUT: "took too long",
    Outcome.CRASHED: "crashed",
    Outcome.AUTH_REQUIRED: "requires a login",
    Outcome.QUOTA: "has no quota left",
    Outcome.FAILED: "failed",
    Outcome.PROTOCOL_ERROR: "violated its protocol",
    Outcome.UNSUPPORTED: "cannot do that",
    Outcome.UNKNOWN: "ended in an unknown way",
}

FALLBACKS: Final[tuple[str, ...]] = get_args(Fallback)

SHOWN_SIZE: Final = 160
"""Maximum number of characters of a failure's message that are repeated, as in the reason for the
next attempt."""


async def delegate(
    role: str,
    prompt: str,
    *,
    workspace: str | os.PathLike[str] = ".",
    peer: str | None = None,
    tier: str | None = None,
    model: str | None = None,
    permit: Permit | None = None,
    check: str | None = None,
    isolate: bool = False,
    apply: bool = False,
    fallback: Fallback | None = None,
    cold: bool = False,
    timeout: float | None = None,
    on_event: Callable[[Event], None] | None = None,
    on_notice: Callable[[str], None] | None = None,
    executor: Executor | None = None,
) -> Delegation:
    """Delegate work to the best available peer, and return the answer with every attempt.

    `role` is the kind of work, such as ``"review"`` or ``"research"``; ``dragoman peers`` lists the
    roles that peers claim, and ``dragoman explain ROLE`` says which peer would be used and why.
    Only enabled peers are used. A peer that fails is reported and does not raise: `Delegation.ok`
    says whether the work is done. Raises `UsageError` for a mistake in the call, and `UnknownRole`,
    `UnknownPeer` or `NoPeer` before any peer is prompted.

    Options:

    workspace (default "."): the directory in which the peer works.
    peer (default None): use only this peer.
    tier (default None): prefer models of this tier: "fast", "standard" or "strong".
    model (default None): use this model.
    permit (default None): function that decides about permissions that the rules in the settings
        leave open. None: as the settings say, with "ask" allowing only reads.
    check (default None): a shell command whose exit code says whether the work is good. None: as
        the settings say.
    isolate (default False): whether to work in a separate git worktree and return a patch.
    apply (default False): with isolate: whether to apply the patch if it still applies cleanly.
    fallback (default None): what to try after a failure that changed nothing: "all" (other peers,
        then the local model and scout), "peers" (only other peers) or "none". None: as the
        settings say.
    cold (default False): whether to start the peer without a broker.
    timeout (default None): maximum seconds for all attempts together, including starting the
        peers. None: as the settings say, for each turn.
    on_event (default None): function to call with every event of every attempt.
    on_notice (default None): function to call with every message for the user, such as where the
        changes of a failed attempt are. None: log them as warnings.
    executor (default None): runs the work on another machine, in a copy of the repository, such as
        `dragoman.fleet.executor.FleetExecutor`. That machine chooses the peer, and its settings
        decide about permissions. None: work on this machine.
    """
    required: dict[str, object] = {"role": role, "prompt": prompt}
    optional: dict[str, object] = {"peer": peer, "tier": tier, "model": model, "check": check}
    for name, value in {**required, **optional}.items():
        if not isinstance(value, str) and (value is not None or name in required):
            raise UsageError(f"{name} must be a string, not {type(value).__name__}")
    if permit is not None:
        require_permit(permit)
    if permit is not None and executor is not None:
        raise UsageError(
            "permit= cannot be used with executor=: the other machine grants permissions"
        )
    for name, function in (("on_event", on_event), ("on_notice", on_notice)):
        if function is not None and not callable(function):
            raise UsageError(f"{name}= takes a function, not {function!r}")
    if fallback not in (None, *FALLBACKS):
        raise UsageError(f"unknown fallback {fallback!r}: use {', '.join(FALLBACKS)}")
    seconds: object = timeout
    if seconds is not None and (
        isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0
    ):
        raise UsageError(f"timeout= must be a number of seconds greater than 0, not {timeout!r}")
    require_folder(workspace)
    place = load_context(absolute(Path(workspace)))
    for problem in place.config.problems:
        # Ignoring an invalid rule or limit would allow too much.
        raise problem
    request = DelegationRequest(
        role=role,
        prompt=prompt,
        workspace=place.cwd,
        peer=peer,
        tier=tier,
        model=model,
        check=check,
        # Another machine always works in a copy.
        isolate=isolate or executor is not None,
        apply=apply,
        fallback=fallback,
        cold=cold,
        timeout=timeout,
    )
    listener = FunctionListener(on_event=on_event, on_notice=on_notice)
    return await delegate_request(
        request, place=place, listener=listener, caller=permit, executor=executor
    )


async def delegate_request(
    request: DelegationRequest,
    *,
    place: RunContext,
    listener: DelegationListener | None = None,
    caller: Permit | None = None,
    inquire: Inquire | None = None,
    cancel: CancelHandle | None = None,
    lineage: Lineage | None = None,
    executor: Executor | None = None,
    rng: random.Random | None = None,
    clock: Callable[[], float] = time.time,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Delegation:
    """Delegate a request to a peer and return the result with every attempt.

    `caller` answers permission requests that the policy leaves open; without it they are denied.
    `inquire` answers the questions that an agent asks its user (a form, or a URL to visit); without
    it they are declined.
    `lineage` overrides the lineage in the environment. `executor` runs the work on another machine,
    which uses neither `caller` nor `inquire`. Failures of peers are in the result. Raises
    `UnknownRole`, `UnknownPeer` and `NoPeer` before any peer is prompted.
    """
    lineage = inherited(place.environ) if lineage is None else lineage
    if executor is not None:
        from dragoman.delegation.executor_run import ExecutorRun

        remote = ExecutorRun(
            request,
            place,
            executor,
            listener=listener or DelegationListener(),
            cancel=cancel or CancelHandle(),
            lineage=lineage,
            clock=clock,
        )
        return await remote.run()
    running = _DelegationRun(
        request,
        place,
        listener or DelegationListener(),
        caller=caller,
        inquire=inquire,
        cancel=cancel or CancelHandle(),
        lineage=lineage,
        rng=rng or random.Random(),
        clock=clock,
        pause=pause,
    )
    return await running.run()


class _DelegationRun:
    """Runs one delegation: its attempts, one after another."""

    def __init__(
        self,
        request: DelegationRequest,
        place: RunContext,
        listener: DelegationListener,
        *,
        caller: Permit | None,
        inquire: Inquire | None,
        cancel: CancelHandle,
        lineage: Lineage,
        rng: random.Random,
        clock: Callable[[], float],
        pause: Callable[[float], Awaitable[None]],
    ) -> None:
        self.request = request
        self.place = place
        self.listener = listener
        self.cancel = cancel
        self.lineage = lineage
        self.rng = rng
        self.clock = clock
        self.pause = pause
        self.job = new_job_id()
        self.decision_id = new_decision_id()
        self.decision: Decision
        self.reports: list[AttemptReport] = []
        self._caller = caller
        self._inquire = inquire
        self._deadline = request.deadline or Deadline.after(request.timeout)
        self._tasks = TaskOwner("a delegation")

    async def run(self) -> Delegation:
        place = self.place
        with self._stoppable():
            await self._sweep()
        async with Journal(place, clock=self.clock, on_notice=self.listener.notice) as journal:
            self.journal = journal
            with self._stoppable():
                queue = await self._decide()
            self.setting = AttemptSetup(
                request=self.request,
                place=place,
                job=self.job,
                lineage=self.lineage.child(self.job),
                ceilings=inherited_ceilings(self.lineage, place.environ),
                caller=self._caller,
                inquire=self._inquire,
                prices=read_prices(place.paths.config),
                cancel=self.cancel,
                deadline=self._deadline,
                clock=self.clock,
                on_event=self.listener.event,
                on_notice=self.listener.notice,
            )
            journal.job_began(self.job, self.request, queue[0].peer)
            try:
                await journal.flush()
                self.listener.job(self.job)
                self.listener.decided(self.decision)
                note = obey_note(self.job, place.paths, self.cancel.pull)
                self._tasks.start(note, "watch for a stop request")
                done = await self._attempted(queue)
            except BaseException as error:
                cancelled = isinstance(error, asyncio.CancelledError)
                outcome = Outcome.CANCELLED if cancelled else Outcome.FAILED
                final = self.reports[-1] if self.reports else None
                journal.job_ended(self.job, final, outcome.value, "")
                raise
            finally:
                await self._tasks.aclose()
            journal.job_ended(self.job, done.final, done.outcome.value, done.text)
            return done

    async def _sweep(self) -> None:
        """Save the changes of killed delegations and remove their worktrees. What is not done at
        the deadline is left to a later delegation."""

        def tell(swept: Swept) -> None:
            if swept.patch is not None:
                self.listener.notice(
                    f"a delegation in {swept.workspace} was killed; its changes are {swept.patch}"
                )

        with suppress(TimeoutError):
            async with asyncio.timeout(None if self._deadline is None else self._deadline.left):
                await sweep(self.place.paths.state / WORKTREES, tell)

    # -- the decision

    async def _decide(self) -> list[Candidate]:
        settings = self.place.config.settings
        now = self.clock()
        inputs = await self.journal.read(
            lambda ledger: gather(
                self.request, self.place, ledger=ledger, lineage=self.lineage, now=now
            )
        )
        self.decision = decision = decide(inputs, self.rng, now)
        self.journal.decided(self.job, self.decision_id, decision)
        fallback = self.request.fallback or settings.fallback
        queue = allowed(decision, fallback)
        if not queue:
            raise nobody(decision)
        return queue

    # -- the attempts

    @contextmanager
    def _stoppable(self) -> Iterator[Callable[[], bool]]:
        """Context manager: let the cancel handle cancel this task between two turns. Yields a
        function that says whether the task was cancelled by the handle alone."""
        task = asyncio.current_task()
        assert task is not None
        before, pulled = task.cancelling(), False

        def stop() -> None:
            nonlocal pulled
            if not pulled:
                pulled = True
                task.cancel()

        self.cancel.between_turns(stop)
        try:
            yield lambda: pulled and task.cancelling() == before + 1
        finally:
            self.cancel.between_turns(None)
            if pulled:
                task.uncancel()

    async def _attempted(self, queue: list[Candidate]) -> Delegation:
        """Run the attempts and return the result. If the cancel handle ends them between two turns,
        the result has the attempts so far; without any, the cancellation is raised."""
        with self._stoppable() as was_stopped:
            try:
                return await self._attempts(queue)
            except asyncio.CancelledError:
                if not was_stopped() or not self.reports:
                    raise
                return self._over("it was interrupted")

    async def _attempts(self, queue: list[Candidate]) -> Delegation:
        left = list(queue)
        candidate = left.pop(0)
        reason = reason_for_first(self.decision, candidate, self.request.peer)
        again, stopped = 0, ""
        while True:
            attempt, record, reading = await self._attempt(candidate, reason)
            report = self.reports[-1]
            if report.ok:
                break
            stopped = self._obstacle(attempt, report)
            if stopped:
                break
            told = f"{report.peer} {_PHRASES[report.outcome]}{_message(report)}"
            if reading.sign is Sign.PASSING and not attempt.seen.acted and again < MAX_AGAIN:
                again += 1
                seconds = backoff(again, self.rng, retry_after=reading.retry_after)
                if self._deadline is not None and seconds >= self._deadline.left:
                    stopped = self._out_of_time(self._deadline)
                    break
                told = f"{report.peer} hit a temporary limit{_message(report)}"
                reason = f"{told}; retrying after {seconds:.1f} s"
                self.journal.fell_back(record, candidate.peer, reason)
                await self.pause(seconds)
                continue
            if not left:
                break
            candidate, again = left.pop(0), 0
            reason = f"{told}; {candidate.why}"
            self.journal.fell_back(record, candidate.peer, told)
        return self._over(stopped)

    def _over(self, stopped: str) -> Delegation:
        return Delegation(
            job=self.job,
            decision_id=self.decision_id,
            decision=self.decision,
            attempts=tuple(self.reports),
            stopped=stopped,
            interrupted=self.cancel.pulled and not self.reports[-1].ok,
            adaptive=self.place.config.settings.adaptive,
            depth=self.lineage.depth,
        )

    async def _attempt(
        self, candidate: Candidate, reason: str
    ) -> tuple[Attempt, AttemptRecord, Reading]:
        number = len(self.reports) + 1
        started_at = self.clock()
        record = AttemptRecord(
            job=self.job,
            decision_id=self.decision_id,
            number=number,
            peer=candidate.peer,
            role=self.request.role,
            tier=candidate.tier,
            size=self.decision.size,
            model=candidate.model,
            runtime_role=runtime_role(candidate.peer),
            machine=candidate.host,
            reason=reason,
            started_at=started_at,
            runner=self.journal.runner,
        )
        self.journal.began(self.decision, record, lambda health: BREAKER.begun(health, started_at))
        self.journal.job_tries(self.job, candidate.peer)
        self.listener.attempt(number, candidate, reason)
        try:
            with calling(record) as call:
                attempt = Attempt(
                    self.setting, candidate, number=number, reason=reason, trace=call.context()
                )
                # An attempt is recorded before a peer is prompted.
                await self.journal.flush()
                report = await attempt.run()
                record, reading = self._write_down(record, candidate, attempt, report)
                call.ended(record)
        except BaseException as error:
            torn = None
            if self.cancel.pulled and isinstance(error, asyncio.CancelledError):
                torn = attempt.torn()
                self.journal.job_follows(self.job, attempt.id)
                self.journal.keep_report(attempt.id, torn)
                self.reports.append(torn)
                self.listener.reported(number, torn)
            self._write_off(record, error, torn)
            raise
        if attempt.seen.prompted and candidate.peer != LOCAL:
            self.journal.job_follows(self.job, attempt.id)
            self.journal.keep_report(attempt.id, report)
        self.reports.append(report)
        self.listener.reported(number, report)
        return attempt, record, reading

    def _write_down(
        self, record: AttemptRecord, candidate: Candidate, attempt: Attempt, report: AttemptReport
    ) -> tuple[AttemptRecord, Reading]:
        now = self.clock()
        catalogue = self.place.catalogue
        known = catalogue.get(candidate.peer) if candidate.peer in catalogue else None
        account = attempt.seen.view.usage.get("account")
        reading = learning.reading_of(
            report,
            now=now,
            login=login_of(known),
            limits=() if account is None else account.limits,
        )
        # A cancellation, a workspace error, an unsatisfiable request and a lost broker say nothing
        # about the peer.
        interrupted = self.cancel.pulled and not report.ok
        broker_failed = attempt.seen.broker_failed
        blameless = interrupted or attempt.workspace_fault or attempt.blameless
        # If the broker failed before the prompt was sent, the reading is kept: it allows a retry
        # with the same peer.
        if blameless or (broker_failed and attempt.seen.prompted):
            reading = Reading(sign=Sign.NOTHING)
        competes = not candidate.last_resort
        arm = self.decision.arm_of(candidate)
        learned = learning.lesson(report, arm, now=now) if competes else None
        record = self.journal.ended(
            record,
            learning.ending_of(report),
            ok=report.ok,
            learned=None if self.cancel.pulled or blameless or broker_failed else learned,
            health=learning.health_change(
                reading,
                BREAKER,
                now=now,
                greeting=attempt.seen.greeted_seconds,
                surroundings=surroundings_here(candidate.peer, self.place),
            ),
            reading=reading,
            detail="" if report.ok else _PHRASES[report.outcome] + _message(report),
        )
        return record, reading

    def _write_off(
        self, record: AttemptRecord, error: BaseException, torn: AttemptReport | None
    ) -> None:
        """Record the end of an attempt that was cancelled or that raised an exception, with what is
        known about it."""
        gone = isinstance(error, asyncio.CancelledError | KeyboardInterrupt)
        outcome = Outcome.CANCELLED if gone else Outcome.UNKNOWN
        self.journal.ended(
            record,
            learning.ending_of(torn)
            if torn is not None
            else Ending(
                ended_at=self.clock(),
                outcome=outcome.value,
                error_class=getattr(error, "error_class", type(error).__name__),
            ),
            ok=False,
            learned=None,
            health=lambda health: structs.replace(health, trial_at=None),
            reading=None,
            detail="it was interrupted" if gone else str(error),
        )

    def _out_of_time(self, deadline: Deadline) -> str:
        option = f" ({deadline.option})" if deadline.option else ""
        return f"the time limit of {deadline.seconds:g} s{option} was reached"

    def _obstacle(self, attempt: Attempt, report: AttemptReport) -> str:
        """Return why no peer may be tried after a failed attempt; empty if another one may."""
        if self.cancel.pulled:
            return "it was interrupted"
        if self._deadline is not None and not self._deadline.left:
            return self._out_of_time(self._deadline)
        if attempt.workspace_fault and attempt.seen.prompted:
            return "the workspace has a problem; other peers would fail too"
        if attempt.workspace_fault:
            return "no peer was prompted: the workspace has a problem; other peers would fail too"
        if report.outcome is Outcome.DENIED:
            return "a permission was denied, and other peers would need it too"
        if attempt.seen.over is not None:
            return f"a limit was reached: {attempt.seen.over.message}"
        if attempt.seen.restless is not None:
            return f"{report.peer}: {attempt.seen.restless}"
        left_behind = report.obstacle()
        return "" if left_behind is None else f"{report.peer}: {left_behind}"


def _message(report: AttemptReport) -> str:
    failure = report.failure
    if report.outcome is Outcome.OK and report.check is not None:
        return f": {report.check.command}"
    if failure is None or not failure.message:
        return ""
    line = failure.message.strip().splitlines()[0] if failure.message.strip() else ""
    return f": {line[:SHOWN_SIZE]}"
