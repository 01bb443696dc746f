"""Run a delegation on another machine with an executor, and record it like a local one.

The job and its events are in this machine's store, the events are passed to the listener, the
attempts are in the ledger with their machine, and the patch is kept or applied like that of an
isolated attempt. Peers, budgets and permissions are those of the other machine. This machine's
daily limits are checked before anything is sent; nested work is not sent at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from msgspec import structs

from dragoman.client.results import Result
from dragoman.delegation.attempt_report import AttemptReport
from dragoman.delegation.executed_records import decision_of, record_executed, reports_of
from dragoman.delegation.executor import ExecutedJob, Executor
from dragoman.delegation.journal import Journal
from dragoman.delegation.learning import outcome_of_error
from dragoman.delegation.listener import DelegationListener
from dragoman.delegation.request import DelegationRequest
from dragoman.delegation.result import Delegation
from dragoman.delegation.routing import Candidate, Decision
from dragoman.delegation.spending_limits import DAY, has_daily, over_budget
from dragoman.delegation.worktree.patch import stat_of
from dragoman.delegation.worktree.received_patch import apply_received, keep_received
from dragoman.errors import BudgetExceeded, DragomanError, NoPeer, StoreError, UsageError
from dragoman.events.model import Event
from dragoman.events.parts import Failure, Text
from dragoman.events.words import Outcome
from dragoman.rpc.tasks import TaskOwner, all_ended, finish, in_thread
from dragoman.runs.cancel_by_file import obey_note
from dragoman.runs.context import RunContext
from dragoman.runs.direct_recorder import DirectRecorder, recorder_for
from dragoman.runs.lineage import Lineage
from dragoman.runs.run_values import CancelHandle, Deadline
from dragoman.store.ledger import new_decision_id
from dragoman.store.ledger.ledger import Ledger, ledger_path
from dragoman.store.records import new_job_id

PATCHES: Final = "patches"
"""Directory of kept patches, in the state directory."""


async def require_executable(
    role: str, place: RunContext, *, where: str, lineage: Lineage, now: float
) -> None:
    """Check that this machine may send work to another one. `where` names the other one in the
    error.

    Raises `UsageError` for nested work, `NoPeer` if a daily limit is reached, and `StoreError` if
    the usage cannot be read although there are daily limits.
    """
    settings = place.config.settings
    if lineage.depth:
        # The policy of the delegating agent could not be enforced there.
        raise UsageError(
            "delegated work cannot be sent to another machine: "
            "its permission policy could not be enforced there"
        )
    if not has_daily(settings.limits):
        return
    path = ledger_path(place.paths.state)

    def read(_: object) -> str | None:
        with Ledger.open(path, read_only=True) as ledger:
            return over_budget(settings.limits, ledger.spent(None, now - DAY))

    try:
        over = await in_thread(str(path), read)
    except StoreError as error:
        unread = StoreError(
            "the ledger",
            f"limits are set, but the recorded usage cannot be read: {error}",
            remedy="repair the ledger, or remove the limits",
        )
        unread.retryable = error.retryable
        raise unread from error
    if over is not None:
        raise NoPeer(role, {where: over}, over_budget=True)


class ExecutorRun:
    """Runs one delegation with an executor, and is the executor's listener."""

    def __init__(
        self,
        request: DelegationRequest,
        place: RunContext,
        executor: Executor,
        *,
        listener: DelegationListener,
        cancel: CancelHandle,
        lineage: Lineage,
        clock: Callable[[], float],
    ) -> None:
        self.request = request
        self.place = place
        self.executor = executor
        self.job = new_job_id()
        self._listener = listener
        self._cancel = cancel
        self._lineage = lineage
        self._clock = clock
        self._deadline = request.deadline or Deadline.after(request.timeout)
        self._timed_out = False
        self._tasks = TaskOwner("a delegation to another machine")
        self._machines = 0
        self._begun = 0
        """Number of attempts started, on all machines."""
        self._recorder: DirectRecorder | None = None
        self._recorders: list[DirectRecorder] = []
        self._journal: Journal

    async def run(self) -> Delegation:
        place, request = self.place, self.request
        await require_executable(
            request.role,
            place,
            where=self.executor.name,
            lineage=self._lineage,
            now=self._clock(),
        )
        self.executor.require(request)
        async with Journal(place, clock=self._clock, on_notice=self._listener.notice) as journal:
            self._journal = journal
            journal.job_began(self.job, request, request.peer or self.executor.name)
            outcome = Outcome.FAILED
            try:
                await journal.flush()
                self._listener.job(self.job)
                executed = await self._execute()
                done = await self._ended(executed)
            except BaseException as error:
                if isinstance(error, asyncio.CancelledError):
                    outcome = Outcome.CANCELLED
                try:
                    await finish(self._close_recorders(outcome))
                finally:
                    journal.job_ended(self.job, None, outcome.value, "")
                raise
            finally:
                await self._tasks.aclose()
            journal.job_ended(self.job, done.final, done.outcome.value, done.text)
            return done

    async def _execute(self) -> ExecutedJob:
        stop = asyncio.Event()
        note = obey_note(self.job, self.place.paths, self._cancel.pull)
        self._tasks.start(note, "watch for a stop request")

        def expire(why: BudgetExceeded) -> None:
            self._timed_out = not stop.is_set()
            stop.set()

        timer = None if self._deadline is None else self._deadline.call(expire)
        self._cancel.between_turns(stop.set)
        try:
            return await self.executor.execute(self.job, self.request, listener=self, stop=stop)
        finally:
            self._cancel.between_turns(None)
            if timer is not None:
                timer.cancel()

    # -- what the executor reports

    def notice(self, text: str) -> None:
        self._listener.notice(text)

    def placed(self, machine: str) -> None:
        self._machines += 1
        if self._machines > 1:
            self._end_recorder(Result(outcome=Outcome.CRASHED, text=""))
        again = "" if self._machines == 1 else " again, because another machine was lost"
        self._listener.notice(f"job {self.job} is running on {machine}{again}")

    def decided(self, decision: Decision) -> None:
        self._listener.decided(decision)

    def attempt(self, number: int, candidate: Candidate, reason: str) -> None:
        self._end_recorder(Result(outcome=Outcome.UNKNOWN, text=""))
        self._begun += 1
        self._journal.job_tries(self.job, candidate.peer)
        recorder = recorder_for(
            candidate.peer,
            workspace=self.request.workspace,
            on_trouble=self._listener.notice,
            paths=self.place.paths,
            on_stop=self._cancel.pull,
        )
        recorder.opened_elsewhere(self._attempt_id)
        recorder.began(self._attempt_id, [Text(self.request.prompt)])
        self._recorder = recorder
        self._recorders.append(recorder)
        self._listener.attempt(self._begun, candidate, reason)

    def event(self, event: Event) -> None:
        if self._recorder is not None:
            self._recorder.event(event)
        self._listener.event(event)

    # -- the store

    @property
    def _attempt_id(self) -> str:
        return f"{self.job}-{self._begun}"

    def _end_recorder(self, result: Result) -> None:
        if self._recorder is not None:
            self._recorder.ended(result)
            self._recorder = None

    async def _close_recorders(self, outcome: Outcome) -> None:
        self._end_recorder(Result(outcome=outcome, text=""))
        recorders, self._recorders = self._recorders, []
        await all_ended(*(recorder.aclose() for recorder in recorders))

    # -- the end

    async def _ended(self, executed: ExecutedJob) -> Delegation:
        reports = list(reports_of(executed))
        reports[-1] = final = await self._patched(self._in_time(reports[-1]), executed.patch)
        self._end_recorder(
            Result(outcome=final.outcome, text=final.text, stop=final.stop, failure=final.failure)
        )
        await finish(self._close_recorders(final.outcome))
        if self._begun:
            self._journal.job_follows(self.job, self._attempt_id)
            self._journal.keep_report(self._attempt_id, final)
        for number, report in enumerate(reports, 1):
            self._listener.reported(number, report)
        decision_id = new_decision_id()
        if executed.confirmed:
            record_executed(
                self._journal,
                executed,
                reports,
                decision_id=decision_id,
                known_peers=self.place.catalogue.names,
                now=self._clock(),
            )
        done = executed.delegation
        return Delegation(
            job=self.job,
            decision_id=decision_id,
            decision=decision_of(executed, prompt=self.request.prompt),
            attempts=tuple(reports),
            stopped=executed.why if done is None else done.stopped,
            interrupted=self._cancel.pulled and not final.ok,
            adaptive=self.place.config.settings.adaptive,
            depth=self._lineage.depth,
        )

    def _in_time(self, report: AttemptReport) -> AttemptReport:
        if not self._timed_out or report.ok or self._deadline is None:
            return report
        why = f"the time limit of {self._deadline.seconds:g} s was reached"
        return structs.replace(
            report,
            outcome=Outcome.TIMED_OUT,
            error_class=Outcome.TIMED_OUT.value,
            failure=Failure(why),
        )

    async def _patched(self, report: AttemptReport, patch: bytes) -> AttemptReport:
        """Apply or save the patch, and return the report, updated for it. If the caller is
        cancelled, the work on the patch is finished first, and a notice says where the changes
        are."""
        done = report

        async def work() -> None:
            nonlocal done
            done = await self._with_patch(report, patch)

        try:
            await finish(work())
        except asyncio.CancelledError:
            if done.applied is not None and done.applied.ok:
                self._listener.notice(f"the changes of job {self.job} were applied")
            elif kept := done.patch or (done.applied and done.applied.kept):
                self._listener.notice(f"the changes of job {self.job} are saved in {kept}")
            raise
        return done

    async def _with_patch(self, report: AttemptReport, patch: bytes) -> AttemptReport:
        report = structs.replace(report, isolated=True)
        if not patch:
            return report
        workspace, patches = self.request.workspace, self.place.paths.state / PATCHES
        try:
            if self.request.apply and not report.patch_obstacle():
                applied = await apply_received(patch, workspace, patches=patches, name=self.job)
                return structs.replace(report, applied=applied)
            kept, top = await keep_received(patch, workspace, patches=patches, name=self.job)
            return structs.replace(
                report, patch=str(kept), patch_stat=await stat_of(kept), patch_top=str(top)
            )
        except DragomanError as error:
            # A patch that git cannot read, or a full disk: not the peer's fault.
            return structs.replace(
                report,
                outcome=Outcome.FAILED if report.outcome.good else report.outcome,
                failure=report.failure or outcome_of_error(error)[1],
                error_class=report.error_class or error.error_class,
            )
