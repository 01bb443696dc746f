"""Execute `dragoman run` for a peer with a Python adapter: the adapter does the work of the turn.

Loads the adapter, hands it the plan as an `Assignment`, renders and records what happens. An
interrupt cancels the adapter, which closes its peer. Peers without one are prompted by
`cli.prompt_session`; `runs.adapter_run` calls the adapter.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, cast

from dragoman.adapters import Assignment
from dragoman.catalogue.enforcement import violated
from dragoman.cli.error_messages import exit_code
from dragoman.cli.exit_codes import ExitCode, of_result
from dragoman.cli.output.renderer import TurnReport
from dragoman.cli.permission_flags import permit_of
from dragoman.client.results import Result, explain
from dragoman.delegation.parked import note_success
from dragoman.delegation.permission_ceiling import environment
from dragoman.errors import AdapterFailed, DragomanError, PolicyNotEnforced, UsageError
from dragoman.events import fold
from dragoman.events.model import MessageDelta, TurnStarted
from dragoman.events.parts import Text
from dragoman.events.view import View
from dragoman.events.words import Outcome, Role
from dragoman.rpc.tasks import TaskOwner
from dragoman.runs import model_choice
from dragoman.runs.adapter_run import choose_role, dispatch
from dragoman.runs.adapters import adapter_source, load_adapter
from dragoman.runs.changed_files import ViolationWatch
from dragoman.runs.context import load_context
from dragoman.runs.direct_recorder import keeper_for
from dragoman.runs.sessions import ANSWER_SIZE, NEW, OpenedSession
from dragoman.store.records import new_job_id, new_session_key

if TYPE_CHECKING:
    from dragoman.adapters import Adapter
    from dragoman.cli.command_loop import CommandLoop
    from dragoman.cli.output.renderer import Renderer
    from dragoman.cli.run_plan import RunPlan
    from dragoman.client.conversation import Conversation
    from dragoman.events.model import Event
    from dragoman.policy import Approver


def refuse_options(plan: RunPlan, *, images: int = 0) -> None:
    """Raise `UsageError` for options of `run` that an adapter cannot be handed."""
    what = f"{plan.name} is run by its Python adapter"
    if plan.session is not None:
        raise UsageError(
            f"{what}, which opens a session of its own for every prompt: leave --session out, "
            f"or use `dragoman chat {plan.name} -s {plan.session}`, which does without the adapter"
        )
    if plan.no_wait:
        raise UsageError(
            f"{what}, inside of this command, and a broker cannot go on with it: leave --no-wait "
            "out, or run the command in the background"
        )
    if plan.mcp_servers:
        raise UsageError(f"{what}, which cannot be handed MCP servers: leave --mcp-config out")
    if images:
        raise UsageError(f"{what}, which takes a prompt of text only: leave --image out")


class AdapterTurn:
    """One prompt that an adapter runs, and its renderer."""

    def __init__(self, plan: RunPlan, live: CommandLoop, show: Renderer, role: str | None) -> None:
        context = load_context(plan.workspace)
        known = context.catalogue.known(plan.name)
        self._plan = plan
        self._live = live
        self._show = show
        self._source = adapter_source(known, context.config)
        self._adapter: Adapter = load_adapter(known, context.config)
        self._role = choose_role(self._adapter, role, source=self._source)
        self._view = View()
        self._said: list[str] = []
        self._said_size = 0
        self._session = ""
        """The id of the first session that the adapter opened."""
        self._job = new_job_id()
        self._key = new_session_key()
        self._text = ""
        self._recorded = False
        self._unenforced = plan.enforced.gap
        self._refusal: PolicyNotEnforced | None = None
        self._over = False
        self._tasks = TaskOwner("the adapter")
        self._main = asyncio.current_task()
        self._work: asyncio.Task[Result | DragomanError] | None = None
        self._approver: Approver = permit_of(
            plan.policy,
            live,
            rules=plan.rules,
            ceilings=plan.ceilings,
            peer=plan.name,
            workspace=str(plan.workspace),
            titled=plan.way.quirks.command_titles,
            role=self._role,
        )
        self._recorder = keeper_for(
            plan.name,
            workspace=plan.workspace,
            credentials=plan.way.inherit,
            handed=plan.env,
            on_trouble=show.notice,
        )

    async def run(self, text: str) -> TurnReport:
        """Run the prompt to its end. Raises what fails before a session is open; a later failure
        is a part of the report."""
        plan, clock = self._plan, asyncio.get_running_loop().time
        began_at = clock()
        self._text = text
        before = None
        if plan.enforced.restricts:
            before = await ViolationWatch.take(plan.workspace, self._approver)
        try:
            result = await self._result(text)
        except DragomanError as error:
            if not self._recorded:
                raise
            result = self._result_of(error)
        finally:
            self._over = True
        # An adapter may do its work without a session at all.
        self._begin("")
        self._recorder.ended(result)
        if result.ok:
            note_success(plan.name, plan.way.descriptor, env=plan.env)
        interrupted = self._live.interrupts > 0 and not result.ok
        code = of_result(result) if result.error is None else exit_code(result.error)
        if interrupted:
            code = ExitCode.TERMINATED if self._live.terminated else ExitCode.INTERRUPTED
        report = TurnReport(
            peer=plan.name,
            session=self._session,
            result=result,
            seconds=clock() - began_at,
            exit_code=code,
            model=model_choice.model_in_use(self._view),
            mode=self._view.mode,
            interrupted=interrupted,
            job=self._job,
            session_key=self._key,
            unenforced=self._unenforced,
            violations=() if before is None else await before.violations(),
        )
        if not self._show.broken:
            if report.violations:
                self._show.notice(f"policy violated: {violated(report.violations)}")
            self._show.ended(report)
        return report

    async def aclose(self) -> None:
        await self._tasks.aclose()
        await self._recorder.aclose()

    # -- the work

    def _assignment(self) -> Assignment:
        plan = self._plan
        lineage = dict(plan.lineage)
        if lineage:
            # The rules of the role count for a nested delegation, too; it may be the default one.
            lineage |= environment(plan.whole_policy, peer=plan.name, role=self._role)
        way = dataclasses.replace(
            plan.way,
            # What a nested delegation has to know of us; an adapter passes nothing else on.
            env={**plan.way.env, **lineage},
            protocol=plan.dialect or plan.way.protocol,
        )
        return Assignment(
            way=way,
            cwd=plan.workspace,
            permit=self._approver,
            budgets=plan.budgets,
            env=tuple(plan.env),
            model=plan.model,
            mode=plan.mode,
        )

    async def _result(self, text: str) -> Result:
        self._work = task = self._tasks.start(self._dispatch(text), "dispatch")
        self._show.on_broken = self._cancel
        self._live.listen(self._interrupted)
        await asyncio.wait([task])
        if self._refusal is not None:
            raise self._refusal
        if task.cancelled():
            return Result(Outcome.CANCELLED, "".join(self._said), "cancelled")
        ended = task.result()
        if isinstance(ended, DragomanError):
            raise ended
        return ended

    async def _dispatch(self, text: str) -> Result | DragomanError:
        try:
            return await dispatch(
                self._adapter,
                self._assignment(),
                role=self._role,
                text=text,
                source=self._source,
                on_event=self._event,
            )
        except DragomanError as error:
            # Returned, because the owner of the task logs what it raises.
            return error

    def _event(self, event: Event) -> None:
        if self._over:
            return
        fold.apply_settings(self._view, event)
        if isinstance(event, MessageDelta) and event.role is Role.AGENT:
            self._said_size += len(event.text)
            if self._said_size <= ANSWER_SIZE:
                self._said.append(event.text)
        if event.session:
            self._begin(event.session)
        if isinstance(event, TurnStarted):
            self._check_enforced()
        self._recorder.event(event)
        self._show.event(event)

    def _check_enforced(self) -> None:
        """Stop the adapter if it prompts in a session in which the peer does not ask."""
        enforced = self._plan.enforced
        self._unenforced = enforced.unkept(self._view)
        if self._unenforced and not enforced.allow_unenforced:
            self._refusal = PolicyNotEnforced(self._plan.name, self._unenforced)
            self._cancel()

    # -- recording

    def _begin(self, session: str) -> None:
        """Store the session and the job, and say so, once the id of the session is known."""
        if self._recorded:
            return
        self._recorded = True
        self._session = session
        conversation = cast("Conversation", _SessionId(session))
        opened = OpenedSession(conversation=conversation, key=self._key, context=NEW)
        self._recorder.opened(opened, None, name=None)
        self._recorder.began(self._job, [Text(self._text)])
        self._show.began(self._job, self._key)

    def _result_of(self, error: DragomanError) -> Result:
        outcome, failure = explain(error)
        if isinstance(error, AdapterFailed):
            outcome = Outcome.FAILED
        return Result(outcome, "".join(self._said), failure=failure, error=error)

    # -- stopping

    def _interrupted(self, count: int) -> None:
        if count > 1:
            if self._main is not None:
                self._main.cancel()
            return
        self._cancel()
        if not self._live.terminated:
            self._show.notice("cancelling; Ctrl-C once more leaves at once")

    def _cancel(self) -> None:
        if self._work is not None:
            self._work.cancel()


@dataclasses.dataclass(frozen=True, slots=True)
class _SessionId:
    """Stands for a conversation where only its id is recorded: the adapter has the real one."""

    id: str


async def run_adapter(
    plan: RunPlan, live: CommandLoop, show: Renderer, *, role: str | None, text: str
) -> int:
    """Run one prompt through the adapter of a plan's peer; the exit code."""
    turn = AdapterTurn(plan, live, show, role)
    try:
        report = await turn.run(text)
    finally:
        await turn.aclose()
    return report.exit_code or int(show.lost)
