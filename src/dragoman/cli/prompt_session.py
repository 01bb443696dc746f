"""One session with an agent for `run` and `chat`: connect, open, set the model, run turns, cancel.

The first interrupt cancels the turn and shows the result so far; the second leaves at once and
terminates an agent without a broker. Before a turn, the first interrupt ends the command. If the
terminal is closed, a turn in a broker continues. Rendering is in `cli.output`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from dragoman.catalogue.card_store import CardStore
from dragoman.catalogue.enforcement import unapproved, violated
from dragoman.catalogue.launch import LaunchSpec
from dragoman.catalogue.open import judge, open_peer
from dragoman.cli.command_loop import CommandLoop
from dragoman.cli.exit_codes import ExitCode, of_result
from dragoman.cli.output.renderer import Renderer, TurnReport
from dragoman.cli.permission_flags import permit_of, unattended
from dragoman.cli.run_plan import RunPlan
from dragoman.client.conversation import Conversation, ConversationTurn, Peer
from dragoman.delegation.parked import note_success
from dragoman.errors import BrokerUnavailable, DragomanError, UsageError
from dragoman.events import fold
from dragoman.events.model import Event, SessionOpened, TurnEnded
from dragoman.events.parts import Block
from dragoman.events.view import View
from dragoman.rpc.tasks import TaskOwner
from dragoman.runs import model_choice
from dragoman.runs.sessions import (
    ANSWER_SIZE,
    FRESH,
    LIVE,
    RESTORED,
    OpenedSession,
    WantedSession,
    begun_once,
    blame,
    brief_of,
    broker_of,
    context_of,
    discard,
    job_terms,
    notice_of,
    open_session,
    place_of,
    recall,
    submit,
    unstored_of,
    wait_stored,
)
from dragoman.store.records import new_job_id, new_session_key

if TYPE_CHECKING:
    from dragoman.policy import Approver
    from dragoman.runs.brief import Brief
    from dragoman.runs.changed_files import ChangeWatch
    from dragoman.runs.direct_recorder import DirectRecorder
    from dragoman.store.records import SessionRecord

TERMINATE_GRACE: Final = 2.0
"""Seconds that an agent has to end its turn when we are told to end. Whoever ends us kills us
after five or ten; the agent's processes have to be gone by then."""


LEAVE_TIMEOUT: Final = 2.0
"""Seconds for an agent to close its session. It is ended right after that, whatever it says."""


async def _leave(conversation: Conversation) -> None:
    """Close a session. The turn has ended and was shown: how the agent takes its leave changes
    nothing about that."""
    with suppress(DragomanError, TimeoutError):
        async with asyncio.timeout(LEAVE_TIMEOUT):
            await conversation.close()


class PromptSession:
    """A session with an agent, and its renderer."""

    def __init__(self, plan: RunPlan, live: CommandLoop, show: Renderer) -> None:
        self.plan = plan
        self.show = show
        self.view = View()
        """How the session is set up now. What is said in it is shown and not kept."""
        self.peer: Peer
        self.opened: OpenedSession
        self._approver: Approver
        self.warm = False
        """Whether there is a broker between us and the agent."""
        self.job = ""
        """The job of the running turn, or of the last one."""
        self._live = live
        self._turn: ConversationTurn | None = None
        self._told: dict[type[Event], Event] = {}
        """The last events that say what the agent knew of the session."""
        self._prompted = False
        self._unstored: str | None = None
        self._unenforced = ""
        self._keeper: DirectRecorder | None = None
        self._tasks = TaskOwner("the command")
        self._main = asyncio.current_task()
        self._closing = False
        self._brief: Brief | None = None
        """What the next prompt tells of a session that was lost."""
        self._used = False
        """Whether a prompt was sent."""

    @property
    def conversation(self) -> Conversation:
        return self.opened.conversation

    # -- opening

    async def open(self, stack: AsyncExitStack, launch: LaunchSpec) -> None:
        """Connect and open a session; both end with the stack."""
        plan = self.plan
        name, peer, folder = plan.session, plan.name, plan.workspace
        record = None
        if name is not None:
            record = recall(name, peer=peer, folder=folder, on_notice=self.show.notice)
        if name is None or record is not None:
            await self._open(stack, launch, record)
            return
        async with begun_once(name, peer=peer, folder=folder):
            await self._open(stack, launch, recall(name, peer=peer, folder=folder))

    async def _open(
        self, stack: AsyncExitStack, launch: LaunchSpec, record: SessionRecord | None
    ) -> None:
        plan = self.plan
        if record is not None:
            self.plan = replace(plan, workspace=place_of(record, plan.workspace))
        await self.reach(stack, launch)
        await self.open_session(stack, record)

    async def reach(self, stack: AsyncExitStack, launch: LaunchSpec) -> None:
        """Connect; the connection ends with the stack."""
        plan = self.plan
        self.view = View()
        self.peer = await stack.enter_async_context(self._reach(launch))
        self.warm = broker_of(self.peer) is not None
        if plan.cards is not None:
            outdated = CardStore(plan.cards).outdated(plan.name, self.peer.info.version)
            if outdated is not None:
                self.show.notice(outdated)
        if not self.warm:
            from dragoman.runs.direct_recorder import keeper_for

            self._keeper = keeper_for(
                plan.name,
                workspace=plan.workspace,
                credentials=launch.inherit,
                handed=plan.env,
                on_trouble=self.show.notice,
            )
            stack.push_async_callback(self._keeper.aclose)

    async def open_session(self, stack: AsyncExitStack, record: SessionRecord | None) -> None:
        """Begin a session, or go on with a stored one."""
        plan = self.plan
        name = plan.session if record is None else record.name
        self.opened = await open_session(
            self.peer,
            WantedSession(
                key=new_session_key(),
                name=name,
                record=record,
                once=plan.session is None and (plan.no_wait or not plan.keep_open),
                workspace=plan.workspace,
                fresh=plan.fresh,
                mode=plan.mode,
                model=plan.model,
                mcp_servers=plan.mcp_servers,
                on_notice=self.show.notice,
            ),
        )
        self._unenforced = await plan.enforced.hold(self.conversation, self.view)
        if plan.brief and record is not None and self.opened.context == FRESH:
            self._brief = brief_of(record)
            if self._brief is not None:
                self.show.notice(
                    f"{plan.name} has lost the session; it is told in short what was said: "
                    f"{self._brief}"
                )
        if self._keeper is not None:
            self._keeper.opened(self.opened, record, name=name, keep_open=plan.keep_open)
        if not plan.keep_open:
            stack.push_async_callback(_leave, self.conversation)

    async def keep(self) -> None:
        """Let the session be stored although nothing was prompted in it."""
        if self._keeper is not None:
            self._keeper.begin()
        else:
            await wait_stored(key=self.opened.key)

    def _reach(self, launch: LaunchSpec) -> AbstractAsyncContextManager[Peer]:
        plan = self.plan
        self._approver = permit = permit_of(
            plan.policy,
            self._live,
            rules=plan.rules,
            ceilings=plan.ceilings,
            peer=plan.name,
            role=plan.role,
            workspace=str(plan.workspace),
            titled=launch.quirks.command_titles,
        )
        terms: dict[str, Any] = {
            "workspace": plan.workspace,
            "permit": permit,
            "guard": permit.guard,
            "budgets": plan.budgets,
            "dialect": plan.dialect,
            "env": plan.env,
            "extra_env": plan.lineage,
            "on_event": self._watch,
            "on_stderr": self.show.agent_stderr if plan.agent_stderr else None,
            "max_line_size": plan.max_line_size,
        }
        if not plan.warm:
            return open_peer(launch, **terms)
        # Not at the top: a command without a broker does not load what speaks with one.
        from dragoman.broker.client.connect import open_warm

        return open_warm(
            launch,
            ttl=plan.ttl,
            max_idle=plan.max_idle,
            on_fallback=self._without_broker,
            **terms,
        )

    def _without_broker(self, error: BrokerUnavailable) -> None:
        self.show.notice(f"{self.plan.name} is started for this command alone: {error}")

    async def choose_model(self, wanted: str, stack: AsyncExitStack) -> None:
        """Let the agent use a model, and read back that it does. A session that began for this is
        gone again if it does not."""

        async def restart(launch: LaunchSpec) -> tuple[Conversation, View]:
            await discard(self.opened)
            await stack.aclose()
            await self.open(stack, launch)
            return self.conversation, self.view

        try:
            await model_choice.choose_model(
                self.conversation,
                self.view,
                wanted,
                way=self.plan.way,
                restart=restart,
                peer=self.plan.name,
            )
        except DragomanError:
            await discard(self.opened)
            raise

    @property
    def model_in_use(self) -> str | None:
        """The model as the agent tells it."""
        return model_choice.model_in_use(self.view)

    def _watch(self, event: Event) -> None:
        fold.apply_settings(self.view, event)
        if self._keeper is not None:
            self._keeper.event(event)
        kind = type(event)
        if kind is TurnEnded or kind is SessionOpened:
            self._told[kind] = event
        self.show.event(event)

    def mute(self) -> None:
        """Show nothing more: the end of a turn is the last word of a command that has only one."""
        self.peer.on_event = None

    # -- turns

    def _with_brief(self, blocks: Sequence[Block]) -> Sequence[Block]:
        """The first prompt of a session that took the place of a lost one, with what was before."""
        brief, self._brief = self._brief, None
        return blocks if brief is None else [brief.block(self.peer.capabilities), *blocks]

    async def turn(self, blocks: Sequence[Block]) -> TurnReport:
        """One prompt, to its end, whatever that is."""
        self._unenforced = await self.plan.enforced.hold(self.conversation, self.view)
        blocks = self._with_brief(blocks)
        clock = asyncio.get_running_loop().time
        began_at = clock()
        self.job = new_job_id()
        self.show.began(self.job, self.opened.key)
        if self._keeper is not None:
            self._keeper.began(self.job, blocks)
        before = await self._look()
        ruled = len(self._approver.rulings)
        try:
            async with self._prompt(blocks) as turn:
                self._turn = turn
                turn.max_text_size = ANSWER_SIZE
                result = await turn.wait()
        finally:
            self._turn = None
        self._used = True
        context = self._context()
        result = judge(blame(result) if self.warm else result, self.plan.way.quirks)
        if self._keeper is not None:
            self._keeper.ended(result)
        if result.ok:
            note_success(self.plan.name, self.plan.way.descriptor, env=self.plan.env)
        interrupted = self._live.interrupts > 0 and not result.ok
        code = of_result(result)
        if interrupted:
            code = ExitCode.TERMINATED if self._live.terminated else ExitCode.INTERRUPTED
        report = TurnReport(
            peer=self.plan.name,
            session=self.conversation.id,
            result=result,
            seconds=clock() - began_at,
            exit_code=code,
            model=self.model_in_use,
            mode=self.view.mode,
            interrupted=interrupted,
            job=self.job,
            session_key=self.opened.key,
            context=context,
            ignored_servers=self.plan.ignored_servers,
            unenforced=self._unenforced,
            violations=await self._violations(before, ruled),
        )
        if not self.show.broken:
            self._tell_unstored(unstored_of(self._told.get(TurnEnded)))
            if (notice := notice_of(self._told.get(TurnEnded))) is not None:
                self.show.notice(notice)
            if report.violations:
                self.show.notice(f"policy violated: {violated(report.violations)}")
            self.show.ended(report)
        return report

    async def _look(self) -> ChangeWatch | None:
        """The workspace before a turn, if it matters what the agent changes there."""
        if not self.plan.enforced.restricts:
            return None
        from dragoman.runs.changed_files import ChangeWatch

        return await ChangeWatch.take(self.plan.workspace)

    async def _violations(self, before: ChangeWatch | None, ruled: int) -> tuple[str, ...]:
        """The files that changed in the turn although no request for that was allowed. `ruled`
        requests were answered before it."""
        if before is None:
            return ()
        return unapproved(
            await before.changed(),
            self._approver.rulings[ruled:],
            workspace=self.plan.workspace,
            earlier=self._approver.rulings[:ruled],
        )

    def _tell_unstored(self, why: str | None) -> None:
        """Say once that the broker stores nothing."""
        if why is not None and why != self._unstored:
            self._unstored = why
            self.show.notice(f"this is not stored: {why}")

    def _context(self) -> str:
        """What the agent knew of the session in the turn that is over."""
        told = context_of(self._told.get(TurnEnded)) or LIVE
        if self._prompted or told != LIVE:
            return told
        self._prompted = True
        if self.opened.context != RESTORED:
            return self.opened.context
        return context_of(self._told.get(SessionOpened)) or RESTORED

    def _prompt(self, blocks: Sequence[Block]) -> ConversationTurn:
        if not self.warm:
            return self.conversation.prompt(blocks)
        terms = self._job_terms()
        return self.conversation.prompt(blocks, meta=terms)  # type: ignore[call-arg]

    def _job_terms(self) -> dict[str, Any]:
        plan = self.plan
        return job_terms(
            self.job,
            policy=unattended(plan.whole_policy, peer=plan.name, role=plan.role),
            budgets=plan.budgets,
        )

    async def submit(self, blocks: Sequence[Block]) -> str:
        """Leave a prompt with the broker and do not wait for it; the id of the job."""
        if not self.warm:
            raise BrokerUnavailable(
                "--no-wait needs a broker, which runs the turn when this command has ended"
            )
        self.job = new_job_id()
        blocks = self._with_brief(blocks)
        terms = self._job_terms()
        self._tell_unstored(await submit(self.peer, self.conversation.id, blocks, terms))
        self._used = True
        return self.job

    async def discard_unused(self) -> None:
        """Leave nothing of a session that began for a prompt that could not be sent."""
        if not self._used:
            await discard(self.opened)

    # -- stopping

    def interrupted(self, count: int) -> None:
        """Somebody wants it to stop."""
        turn = self._turn
        if turn is None:
            if self._main is not None:
                self._main.cancel()
            return
        if self._live.hung_up and self.warm:
            # Only the terminal is gone. The broker has the turn, and keeps what is said in it.
            self._end_agent_after(0.0)
            return
        turn.cancel()
        if self._live.terminated:
            self._end_agent_after(TERMINATE_GRACE)
        elif count == 1:
            then = "leaves at once" if self.warm else "ends the agent"
            self.show.notice(f"cancelling; Ctrl-C once more {then}")
        else:
            self._end_agent_after(0.0)

    def hang_up(self) -> None:
        """Nobody reads what is shown: stop, quietly."""
        if self._turn is not None:
            self._turn.cancel()
        self._end_agent_after(TERMINATE_GRACE)

    def _end_agent_after(self, seconds: float) -> None:
        if not self._closing:
            self._closing = True
            self._tasks.start(self._end_agent(seconds), "ending the agent")

    async def _end_agent(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        # The turn settles when its connection is gone, and everything ends from there.
        await self.peer.aclose()

    async def aclose(self) -> None:
        await self._tasks.aclose()


@asynccontextmanager
async def talking(plan: RunPlan, live: CommandLoop, show: Renderer) -> AsyncIterator[PromptSession]:
    """A session with the agent of a plan, with the model that was asked for."""
    session = PromptSession(plan, live, show)
    show.on_broken = session.hang_up
    live.listen(session.interrupted)
    try:
        async with AsyncExitStack() as stack:
            await session.open(stack, plan.way)
            if plan.model is not None:
                await session.choose_model(plan.model, stack)
            try:
                yield session
            except UsageError:
                await session.discard_unused()
                raise
    finally:
        await session.aclose()
