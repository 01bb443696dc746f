"""Run one attempt: choose its directory, run the turn, detect changes, run the check, report.

An attempt works in the workspace or in a git worktree, whose changes become a patch. The turn
itself is in `runs.run`, `host_attempt` and `local_model`; which peer to try, retry and fallback are
in `execution`. A peer's failure is returned as a report and never raised.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

from dragoman.broker.endpoint import console_is_open
from dragoman.catalogue.enforcement import Enforced, enforce, unapproved
from dragoman.catalogue.launch import LaunchSpec, way_to
from dragoman.catalogue.session_settings import with_settings
from dragoman.client.budgets import Budgets
from dragoman.delegation import permission_ceiling
from dragoman.delegation.attempt_report import AttemptReport, report_of, report_of_error
from dragoman.delegation.collect_facts import LOCAL, local_model
from dragoman.delegation.host_attempt import HostTurn
from dragoman.delegation.learning import outcome_of_error
from dragoman.delegation.local_model import LocalModel, ask
from dragoman.delegation.peer_request import peer_request
from dragoman.delegation.prices import Price, price
from dragoman.delegation.request import DelegationRequest
from dragoman.delegation.routing import Candidate
from dragoman.delegation.spending_limits import OVER_BUDGET, TurnLimits, tightened
from dragoman.delegation.unfinished_turn import unrest
from dragoman.delegation.worktree.check_command import CHECK_TIMEOUT, run_check
from dragoman.delegation.worktree.isolation import Isolation
from dragoman.delegation.worktree.outside_writes import outside_writes
from dragoman.delegation.worktree.patch import stat_of
from dragoman.delegation.worktree.snapshot import Changed, Snapshot, changes
from dragoman.errors import DragomanError, FileFailed, IsolationFailed, UsageError
from dragoman.events.model import Event, EventEnvelope, MessageDelta, Source, TurnEnded, TurnStarted
from dragoman.events.parts import Failure, Text
from dragoman.events.words import ErrorKind, Outcome, Role
from dragoman.policy import Policy, allows_everything
from dragoman.policy.approver import Approver
from dragoman.runs.adapter_run import AdapterWork, adapter_work
from dragoman.runs.changed_files import by_others, without_own
from dragoman.runs.context import ALWAYS_ENABLED, RunContext, redacted_stderr
from dragoman.runs.git import is_folder
from dragoman.runs.run import Run
from dragoman.runs.run_values import CancelHandle, Deadline, RunListener, RunRequest, RunResult
from dragoman.store.ledger.records import RuntimeRole
from dragoman.store.values import FREE, UNKNOWN, Charge

if TYPE_CHECKING:
    from dragoman.client.inquiries import Inquire
    from dragoman.client.permissions import Permit
    from dragoman.runs.lineage import Lineage

WORKTREES: Final = "worktrees"
"""Directory of the worktrees, below the state directory."""

LATE_LOOK_TIMEOUT: Final = 0.5
"""Seconds to look for changed files after the deadline. This and the time needed to end the agent
let a command exceed its time limit by at most two seconds, even in a large workspace."""


def runtime_role(peer: str) -> RuntimeRole:
    """Return the runtime role of a peer: `host` for scout and the local model, which are part of
    dragoman, and `peer` for all others."""
    return "host" if peer == LOCAL or peer in ALWAYS_ENABLED else "peer"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptSetup:
    """Values that all attempts of one delegation have in common."""

    request: DelegationRequest
    place: RunContext
    job: str
    lineage: Lineage
    """The chain of delegations down to this job, to pass to its peer."""
    ceilings: permission_ceiling.Ceilings
    caller: Permit | None
    inquire: Inquire | None
    prices: Mapping[str, Price]
    cancel: CancelHandle
    deadline: Deadline | None
    """When all attempts must have ended; None without a time limit."""
    clock: Callable[[], float]
    on_event: Callable[[Event], None]
    on_notice: Callable[[str], None]


class Attempt:
    """One attempt with one candidate."""

    def __init__(
        self,
        setting: AttemptSetup,
        candidate: Candidate,
        *,
        number: int,
        reason: str,
        trace: Mapping[str, str],
    ) -> None:
        self.setting = setting
        self.candidate = candidate
        self.id = f"{setting.job}-{number}"
        self.seen = RunResult()
        self.workspace_fault = False
        """Whether a problem with the workspace kept the peer from being prompted, or the peer's
        changes cannot be taken out of the worktree or applied. Neither is the peer's fault."""
        self.blameless = False
        """Whether the attempt failed for another reason that is not the peer's fault: the peer
        cannot do what was requested, such as use a model that it does not have, or files cannot be
        packed, sent or applied for a peer on another machine."""
        self._reason = reason
        self._trace = trace
        self._started_at = setting.clock()
        self._known: AttemptReport | None = None
        self._copy: Path | None = None
        self._root: Path | None = None
        """The remote workspace, against which paths in tool calls are resolved; None if the peer
        works on this machine."""
        self._isolation: Isolation | None = None
        self._top: str | None = None
        """The directory in which the patch applies; None without a worktree."""
        self._enforced: Enforced
        self._adapter: AdapterWork | None = None
        self._approver: Approver | None = None
        self._cost: Charge | None = None
        """The cost, if it is known before the turn."""

    async def run(self) -> AttemptReport:
        """Run the attempt and return its report. A peer's failure is in the report and never
        raised."""
        setting = self.setting
        if self.candidate.peer == LOCAL:
            return await self._ask_local()
        if self.candidate.host is not None:
            return await self._on_host()
        try:
            way = way_to(
                self.candidate.peer,
                catalogue=setting.place.catalogue,
                settings=setting.place.config.settings,
                environ=setting.place.environ,
            )
            way = with_settings(way, setting.request.session)
            if way.descriptor is not None and way.descriptor.free:
                self._cost = FREE
            self._adapter = adapter_work(way.name, setting.place, role=setting.request.role)
            own = setting.place.config.settings.for_peer(way.name)
            self._enforced = enforce(
                way,
                restricts=not allows_everything(self._policy()),
                mode=own.mode,
                card=setting.place.cards().latest(way.name),
                allow_unenforced=setting.request.allow_unenforced or own.allow_unenforced,
            )
        except DragomanError as error:
            return self._without_turn(error, Changed())
        try:
            if setting.request.isolate:
                return await self._in_copy(
                    lambda workspace: self._try(self._enforced.way, workspace),
                    apply=setting.request.apply,
                )
            return await self._in_place(self._enforced.way)
        except (DragomanError, OSError) as raised:
            # The worktree or a snapshot failed; the turn handles its own errors.
            problem = _explained(raised, setting.request.workspace)
            if not self.seen.prompted:
                self.workspace_fault = self.seen.error is None
                return self._without_turn(self.seen.error or problem, Changed())
            setting.on_notice(f"the changes of {self.candidate.peer} are unknown: {problem}")
            if not setting.request.isolate:
                return self._report(setting.clock(), None, setting.request.workspace)
            return self._stuck(problem)

    def _stuck(self, error: DragomanError) -> AttemptReport:
        """Return the report for a turn whose changes cannot be taken out of the worktree or
        applied, and set `workspace_fault`: the work counts as failed, but it is not the peer's
        fault."""
        self.workspace_fault = True
        copy = self._copy or self.setting.request.workspace
        report = self._known or self._report(self.setting.clock(), None, copy)
        if self._kept is None and is_folder(copy):
            self.setting.on_notice(f"the changes of {self.candidate.peer} stay in {copy}")
        return structs.replace(
            report,
            isolated=True,
            outcome=Outcome.FAILED if report.outcome.good else report.outcome,
            failure=report.failure or outcome_of_error(error)[1],
            error_class=report.error_class or error.error_class,
            patch=self._kept,
        )

    async def _in_place(self, way: LaunchSpec) -> AttemptReport:
        workspace, deadline = self.setting.request.workspace, self.setting.deadline
        before = Snapshot.take(workspace)
        if deadline is None:
            taken = await before
        else:
            taken = await deadline.limit(before, lambda: f"reading {workspace}")
        ended_at = await self._try(way, workspace)
        changed = await self._changes_since(taken, workspace)
        self._known = report = self._report(ended_at, changed, workspace)
        return await self._checked(report, workspace)

    async def _changes_since(self, before: Snapshot, workspace: Path) -> Changed | None:
        """Return what changed in the workspace; None if finding out takes too long at the end of
        the time limit."""
        left = self._seconds_left
        try:
            async with asyncio.timeout(None if left is None else left + LATE_LOOK_TIMEOUT):
                changed = changes(before, await Snapshot.take(workspace))
        except TimeoutError:
            self.setting.on_notice(
                f"the changes of {self.candidate.peer} are unknown: no time was left to check"
            )
            return None
        return structs.replace(
            changed,
            files=by_others(changed.files, workspace),
            ignored=by_others(changed.ignored, workspace),
        )

    async def _on_host(self) -> AttemptReport:
        """Work on another machine, in a copy of the workspace. Unless a patch was requested, the
        changes are applied here, under the same rules as those of isolated work: a failed attempt
        changes nothing here."""
        setting, request = self.setting, self.setting.request

        async def work(worktree: Path) -> float:
            turn = HostTurn(setting, self.candidate, policy=self._policy(), seen=self.seen)
            self._root = Path(await turn.run(worktree))
            return setting.clock()

        try:
            return await self._in_copy(work, apply=request.apply or not request.isolate)
        except (DragomanError, OSError) as raised:
            error = _explained(raised, request.workspace)
            if self.seen.result is None:
                return self._without_turn(self.seen.error or error, Changed())
            report = self._known or self._report(setting.clock(), Changed(), request.workspace)
            self.blameless = _is_blameless(error)
            outcome, failure = outcome_of_error(error)
            return structs.replace(
                report,
                isolated=True,
                outcome=outcome if report.outcome.good else report.outcome,
                failure=report.failure or failure,
                error_class=report.error_class or error.error_class,
                patch=self._kept,
            )

    async def _in_copy(
        self, work: Callable[[Path], Awaitable[float]], *, apply: bool
    ) -> AttemptReport:
        folder = self.setting.place.paths.state / WORKTREES
        self._isolation = isolation = Isolation(self.setting.request.workspace, folder=folder)
        async with isolation:
            self._copy = workspace = isolation.workspace
            self._top = isolation.top
            ended_at = await work(workspace)
            changed = Changed(files=await isolation.files())
            report = structs.replace(
                self._report(ended_at, changed, workspace), isolated=True, patch_top=self._top
            )
            self._known = report
            report = await self._checked(report, workspace)
            if apply and not report.patch_obstacle():
                return structs.replace(report, applied=await isolation.apply())
            # Changes are never lost, even if they are not to be applied.
            kept = await isolation.save()
            if kept is None:
                return report
            return structs.replace(report, patch=str(kept), patch_stat=await stat_of(kept))

    @property
    def _kept(self) -> str | None:
        """Path of the patch that was saved because work in the worktree raised, or None."""
        kept = None if self._isolation is None else self._isolation.kept
        return None if kept is None else str(kept)

    async def _try(self, way: LaunchSpec, workspace: Path) -> float:
        setting = self.setting
        run = Run(
            self._run_request(way, workspace),
            listener=_Forward(setting),
            cancel=setting.cancel,
            clock=setting.clock,
        )
        self.seen = run.seen
        await run.run()
        return setting.clock()

    async def _ask_local(self) -> AttemptReport:
        setting = self.setting
        settings = setting.place.config.settings
        try:
            model = local_model(setting.place)
        except DragomanError as error:
            return self._without_turn(error, Changed())
        await ask_local(
            self.seen,
            model,
            setting.request.prompt,
            budgets=tightened(settings.budgets(), [settings.limits], self._seconds_left),
            environ=setting.place.environ,
            clock=setting.clock,
            on_event=setting.on_event,
        )
        report = self._report(setting.clock(), Changed(), setting.request.workspace)
        return await self._checked(report, setting.request.workspace)

    @property
    def _seconds_left(self) -> float | None:
        deadline = self.setting.deadline
        return None if deadline is None else deadline.left

    def _policy(self) -> Policy:
        setting = self.setting
        return permission_ceiling.policy_for(
            setting.place.config.settings,
            self.candidate.peer,
            wished=setting.request.permissions,
            # A person at the console can be asked as well.
            attended=setting.caller is not None or console_is_open(setting.place.paths.runtime),
            ceilings=setting.ceilings,
        )

    def _run_request(self, way: LaunchSpec, workspace: Path) -> RunRequest:
        setting, name = self.setting, self.candidate.peer
        request, settings = setting.request, setting.place.config.settings
        own = settings.for_peer(name)
        policy = self._policy()
        # A turn in a worktree must not outlive this process, which alone can use its result.
        warm = settings.warm and not (request.cold or request.isolate or self._adapter)
        limits = [settings.limits, own.limits]
        turn_limits = TurnLimits(limits)

        def limit(event: Event) -> Failure | None:
            crossed = turn_limits.crossed(event)
            if crossed is None:
                return None
            return Failure(crossed, ErrorKind.QUOTA, OVER_BUDGET, False, None)

        usual = peer_request(
            way,
            place=setting.place,
            workspace=workspace,
            policy=policy,
            lineage=setting.lineage,
            adapter=self._adapter,
            warm=warm,
            caller=setting.caller,
            ask_before_preset=policy.preset == "ask",
            enforced=self._enforced,
            role=request.role,
        )
        self._approver = usual.approver
        return structs.replace(
            usual,
            project=request.workspace,
            prompt=[Text(prefixed(request.prompt, request.role, way))],
            attach=lambda can: request.attach(workspace, can),
            job=self.id,
            once=True,
            model=self.candidate.model or own.model,
            model_strict=request.model is not None or self.candidate.model is None,
            budgets=tightened(usual.budgets, limits, self._seconds_left),
            deadline=setting.deadline,
            limit=limit,
            still_running=lambda peer, session: unrest(peer, session, setting.place.paths),
            meta=setting.lineage.meta(),
            trace=self._trace,
            options=structs.replace(
                usual.options, inquire=setting.inquire, visits=setting.inquire is not None
            ),
            # The snapshots before and after the turn show what it changed.
            watch_changes=False,
            # Writes outside the workspace show up in the tool calls.
            keep_tools=True,
        )

    # -- the report

    def torn(self) -> AttemptReport:
        """Return the report of an attempt that was cancelled while no turn was running."""
        setting = self.setting
        interrupted = DragomanError("it was interrupted")
        interrupted.may_have_run = self.seen.prompted
        if self._known is not None:
            report = self._known
        elif self.seen.result is not None:
            report = self._report(setting.clock(), None, setting.request.workspace)
        else:
            report = self._without_turn(interrupted, None if self.seen.prompted else Changed())
        if self._isolation is not None and self._copy is not None:
            applied, patch = report.applied or self._isolation.applied, report.patch or self._kept
            report = structs.replace(
                report, isolated=True, applied=applied, patch=patch, patch_top=self._top
            )
        return _cancelled(report, interrupted)

    def _report(self, ended_at: float, changed: Changed | None, workspace: Path) -> AttemptReport:
        seen = self.seen
        if seen.model_error is not None:
            self.setting.on_notice(str(seen.model_error))
        if seen.result is None:
            assert seen.error is not None
            return self._without_turn(seen.error, changed, ended_at)
        result = seen.result
        model = seen.model or self.candidate.model
        return report_of(
            result,
            **self._always(ended_at),
            error_class=_error_class(seen),
            may_have_run=seen.prompted and (result.error is None or result.error.may_have_run),
            model=model,
            changed=changed,
            unenforced=seen.unenforced or None,
            violations=self._violations(changed, workspace),
            outside=outside_writes(seen.view.tools.values(), [self._root or workspace]),
            cost=self._cost or price(model, result.usage, self.setting.prices),
            first_event_at=seen.first_event_at,
        )

    def _stderr(self) -> str:
        seen, setting = self.seen, self.setting
        return redacted_stderr(
            seen.error if seen.result is None else seen.result.error,
            peer=self.candidate.peer,
            place=setting.place,
            workspace=setting.request.workspace,
        )

    def _violations(self, changed: Changed | None, workspace: Path) -> tuple[str, ...]:
        if changed is None or self._approver is None or not self._enforced.restricts:
            return ()
        if self.setting.request.session.allow_tool:
            # A change by a tool that the user allowed is not a violation.
            return ()
        if self._approver.dropped:
            # An answer that is no longer known may have granted the change.
            return ()
        files = without_own(str(workspace), [one.path for one in changed.files])
        return unapproved(files, self._approver.rulings, workspace=workspace)

    def _without_turn(
        self, error: DragomanError, changed: Changed | None, ended_at: float | None = None
    ) -> AttemptReport:
        outcome, failure = outcome_of_error(error)
        self.blameless = _is_blameless(error)
        return report_of_error(
            error,
            outcome,
            failure,
            **self._always(self.setting.clock() if ended_at is None else ended_at),
            may_have_run=self.seen.prompted and error.may_have_run,
            changed=changed,
            cost=self._cost or UNKNOWN,
        )

    def _always(self, ended_at: float) -> dict[str, Any]:
        candidate = self.candidate
        return {
            "peer": candidate.peer,
            "role": self.setting.request.role,
            "reason": self._reason,
            "runtime_role": runtime_role(candidate.peer),
            "machine": candidate.host,
            "tier": candidate.tier,
            "asked_model": candidate.model,
            "started_at": self._started_at,
            "ended_at": ended_at,
            "stderr_tail": self._stderr(),
        }

    async def _checked(self, report: AttemptReport, workspace: Path) -> AttemptReport:
        request = self.setting.request
        settings = self.setting.place.config.settings
        command = settings.check if request.check is None else request.check
        # The denied action may not have been needed; the check decides whether the work is good.
        over = report.outcome in (Outcome.OK, Outcome.DENIED)
        if not command or not over:
            return report
        if self.setting.cancel.pulled:
            # Work that was not checked must not be applied, even if the peer had finished it.
            unchecked = DragomanError("it was interrupted before the check")
            return _cancelled(report, unchecked) if report.outcome.good else report
        left = self._seconds_left
        limit = CHECK_TIMEOUT if left is None else min(max(left, 0.1), CHECK_TIMEOUT)
        return structs.replace(report, check=await run_check(command, workspace, timeout=limit))


def _is_blameless(error: DragomanError) -> bool:
    """Return whether an error says nothing about the peer."""
    if isinstance(error, UsageError):
        return error.blame == "us"
    return isinstance(error, FileFailed | IsolationFailed)


def _explained(error: DragomanError | OSError, workspace: Path) -> DragomanError:
    if isinstance(error, DragomanError):
        return error
    # Such as a full disk: copies and indexes are temporary files.
    where = str(error.filename or workspace)
    return FileFailed(where, error.strerror or str(error), error.errno)


def _cancelled(report: AttemptReport, why: DragomanError) -> AttemptReport:
    return structs.replace(
        report,
        outcome=Outcome.CANCELLED,
        error_class="cancelled",
        failure=report.failure or outcome_of_error(why)[1],
    )


class _Forward(RunListener):
    """Passes the events and notices of a run to the callbacks of the delegation."""

    def __init__(self, setting: AttemptSetup) -> None:
        self._setting = setting

    def event(self, event: Event) -> None:
        self._setting.on_event(event)

    def notice(self, text: str) -> None:
        self._setting.on_notice(text)


def prefixed(prompt: str, role: str, way: LaunchSpec) -> str:
    """Return the prompt, preceded by the peer's prefix for the role (a slash command), if any.

    A prompt for a Python adapter is not changed: the adapter adds its own prefixes.
    """
    if way.descriptor is None or way.has_adapter:
        return prompt
    prefix = way.descriptor.role_prefixes.get(role, "")
    return prompt if not prefix else f"{prefix.rstrip()} {prompt}"


def _error_class(seen: RunResult) -> str | None:
    result = seen.result
    assert result is not None
    if result.error is not None:
        return result.error.error_class
    if seen.over is not None:
        return OVER_BUDGET
    return None if result.failure is None else str(result.failure.kind.value)


SOURCE: Final = Source(LOCAL, LOCAL)
TURN: Final = "1"


async def ask_local(
    seen: RunResult,
    model: LocalModel,
    prompt: str,
    *,
    budgets: Budgets,
    environ: Mapping[str, str],
    clock: Callable[[], float],
    on_event: Callable[[Event], None],
) -> None:
    """Send the prompt to the local model once. The turn is reported to `on_event` as events, and
    its result, which may be an error, is stored in `seen`."""
    place = EventEnvelope(SOURCE, itertools.count(1), None)
    place.turn = TURN
    seen.prompted, seen.model = True, model.model

    def said(text: str) -> None:
        seen.acted = True
        if seen.first_event_at is None:
            seen.first_event_at = clock()
        on_event(MessageDelta(*place.base("text", None), role=Role.AGENT, text=text))

    on_event(TurnStarted(*place.base("ask", None), prompt=(Text(prompt),)))
    answer = await ask(model, prompt, budgets=budgets, environ=environ, on_text=said)
    result = answer.result
    seen.result, seen.model = result, answer.model
    on_event(
        TurnEnded(
            *place.base("end", None),
            outcome=result.outcome,
            stop=result.stop,
            failure=result.failure,
            usage=result.usage,
        )
    )
