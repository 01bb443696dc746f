"""One session with an agent for `run`, `chat` and `sessions`: its request, rendering and
interrupts.

`runs.run` connects, opens the session and runs the turns. The first interrupt cancels the turn and
shows the result so far; the second leaves at once and terminates an agent without a broker. Before
a turn, the first interrupt ends the command. If the terminal is closed, a turn in a broker
continues. Rendering is in `cli.output`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from dragoman.catalogue.enforcement import violated
from dragoman.cli.command_loop import CommandLoop
from dragoman.cli.exit_codes import ExitCode, of_result
from dragoman.cli.output.renderer import Renderer, TurnReport
from dragoman.cli.output.terminal import is_interactive
from dragoman.cli.permission_flags import permit_of
from dragoman.cli.run_plan import RunPlan
from dragoman.client.conversation import Peer
from dragoman.client.options import AUTO, ConnectOptions
from dragoman.errors import PolicyNotEnforced
from dragoman.events.model import Event
from dragoman.events.parts import Block
from dragoman.policy.rules import unattended
from dragoman.rpc.tasks import TaskOwner
from dragoman.runs.run import Run
from dragoman.runs.run_values import CancelHandle, RunListener, RunRequest
from dragoman.store.peer_recovery import note_success

if TYPE_CHECKING:
    from dragoman.client.inquiries import Inquire, Inquiry, Reply
    from dragoman.runs.adapter_run import AdapterWork
    from dragoman.store.records import SessionRecord

TERMINATE_GRACE: Final = 2.0
"""Seconds that an agent has to end its turn after this process gets SIGTERM. What sent the signal
usually kills the process five or ten seconds later; the agent's processes must be gone by then."""


NOT_BEGUN: Final = "cancelled before the agent was prompted"


class PromptSession(RunListener):
    """A run of a plan, shown with a renderer. The caller enters `run`, which connects to the agent
    and opens the session."""

    def __init__(
        self,
        plan: RunPlan,
        live: CommandLoop,
        show: Renderer,
        *,
        record: SessionRecord | None = None,
        adapter: AdapterWork | None = None,
    ) -> None:
        self.plan = plan
        self.show = show
        show.asks_forms = is_interactive()
        # If another command cancels the job, this command was not interrupted.
        self._cancel = CancelHandle(one_turn=True)
        self.run = Run(
            request_of(
                plan,
                live,
                on_stderr=show.agent_stderr if plan.agent_stderr else None,
                record=record,
                adapter=adapter,
            ),
            listener=self,
            cancel=self._cancel,
        )
        self.on_event: Callable[[Event], None] | None = None
        """Callback for every event that is shown."""
        self._live = live
        self._waiting_since: float | None = time.monotonic()
        """When the user started waiting for the first turn, which includes starting the agent."""
        self._muted = False
        self._tasks = TaskOwner("the command")
        self._main = asyncio.current_task()
        self._closing = False

    async def turn(self, blocks: Sequence[Block]) -> TurnReport:
        """Run one prompt to its end and show the result."""
        plan = self.plan
        since, self._waiting_since = self._waiting_since or time.monotonic(), None
        seen = await self.run.prompt(blocks)
        result = seen.result
        assert result is not None
        if result.ok:
            await note_success(plan.name, plan.way.descriptor, env=plan.env)
        interrupted = self._live.interrupts > 0 and not result.ok
        code = of_result(result)
        if isinstance(result.error, PolicyNotEnforced):
            # An adapter sent a prompt in a session in which its peer does not ask for permission.
            code = ExitCode.USAGE
        if interrupted:
            code = self._live.interrupt_code
        report = TurnReport(
            peer=plan.name,
            session=self.run.opened.conversation.id,
            result=result,
            seconds=time.monotonic() - since,
            exit_code=code,
            model=seen.model,
            mode=seen.view.mode,
            interrupted=interrupted,
            job=seen.job,
            session_key=self.run.opened.key,
            context=seen.context,
            permissions=plan.policy.value,
            ignored_servers=plan.ignored_servers,
            unenforced=seen.unenforced,
            violations=seen.violations,
        )
        if not self.show.broken:
            if report.violations:
                self.show.notice(f"policy violated: {violated(report.violations)}")
            self.show.ended(report)
        return report

    def wait_for_prompt(self) -> None:
        """Count the time of the first turn from its prompt, which has not been typed yet."""
        self._waiting_since = None

    def mute(self) -> None:
        """Show no more events. Used after the result of a one-turn command, which has to be its
        last output."""
        self._muted = True

    # -- callbacks of the run

    def connected(self, peer: Peer) -> None:
        if self.plan.cards is None:
            return
        from dragoman.catalogue.card import CardStore

        outdated = CardStore(self.plan.cards).outdated(self.plan.name, peer.info.version)
        if outdated is not None:
            self.show.notice(outdated)

    def began(self, job: str, key: str) -> None:
        self.show.began(job, key)

    def event(self, event: Event) -> None:
        if not self._muted:
            self.show.event(event)
            if self.on_event is not None:
                self.on_event(event)

    def notice(self, text: str) -> None:
        self.show.notice(text)

    # -- stopping

    def interrupted(self, count: int) -> None:
        """Callback for interrupts, called with their number. Before a turn, an interrupt ends the
        command. In a turn, the first one cancels the turn, and the second one leaves at once. If
        the terminal was closed, a turn in a broker continues without this command."""
        run = self.run
        if not run.in_turn:
            if self._main is not None:
                self._main.cancel()
            return
        if self._live.hung_up and run.warm:
            # Only the terminal is gone. The broker runs the turn and stores its output.
            self._end_agent_after(0.0)
            return
        run.cancel_turn()
        if self._live.terminated:
            self._end_agent_after(TERMINATE_GRACE)
        elif count == 1:
            then = "quit immediately" if run.warm else "end the agent"
            self.show.notice(f"cancelling; press Ctrl-C again to {then}")
        else:
            self._end_agent_after(0.0)

    def hang_up(self) -> None:
        """Callback for output that can no longer be written: cancel the turn without a message, and
        close the connection after a grace period. A turn that has not begun yet is cancelled when
        it begins."""
        self._cancel.pull()
        self._end_agent_after(TERMINATE_GRACE)

    def _end_agent_after(self, seconds: float) -> None:
        if not self._closing:
            self._closing = True
            self._tasks.start(self._end_agent(seconds), "ending the agent")

    async def _end_agent(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        # The turn ends when its connection is closed, and everything else ends from there.
        await self.run.peer.aclose()

    async def aclose(self) -> None:
        await self._tasks.aclose()


def request_of(
    plan: RunPlan,
    live: CommandLoop,
    *,
    on_stderr: Callable[[bytes], None] | None = None,
    record: SessionRecord | None = None,
    adapter: AdapterWork | None = None,
) -> RunRequest:
    """Build the request for `runs.run` from a plan. A `record` is the stored session to open
    instead of the one that the plan names."""
    asks = is_interactive()
    return RunRequest(
        peer=plan.name,
        enforced=plan.enforced,
        adapter=adapter,
        workspace=plan.workspace,
        session=plan.session if record is None else None,
        record=record,
        fresh=plan.fresh,
        brief=plan.brief,
        once=plan.session is None and (plan.no_wait or not plan.keep_open),
        keep_open=plan.keep_open,
        mcp_servers=plan.mcp_servers,
        metadata=plan.metadata,
        mode=plan.mode,
        model=plan.model,
        approver=permit_of(
            plan.policy,
            live,
            rules=plan.rules,
            ceilings=plan.ceilings,
            peer=plan.name,
            role=plan.role,
            workspace=str(plan.workspace),
            titled=plan.way.quirks.command_titles,
        ),
        unattended=unattended(plan.whole_policy, peer=plan.name, role=plan.role),
        budgets=plan.budgets,
        deadline=plan.deadline,
        # A change by a tool that the user allowed is not a violation.
        watch_changes=not plan.tools_allowed,
        warm=plan.warm,
        ttl=plan.ttl,
        max_idle=plan.max_idle,
        options=ConnectOptions(
            inherit=plan.env,
            env=plan.lineage,
            max_line_size=plan.max_line_size,
            dialect=plan.dialect or AUTO,
            any_version=plan.any_version,
            terminals=plan.terminals,
            inquire=inquire_at(live) if asks else None,
            visits=asks,
            on_stderr=on_stderr,
        ),
    )


def inquire_at(live: CommandLoop) -> Inquire:
    """Return a callback that asks the agent's questions at the terminal."""
    inquirer: Callable[[Inquiry], Awaitable[Reply]] | None = None

    async def inquire(inquiry: Inquiry) -> Reply:
        nonlocal inquirer
        if inquirer is None:
            # Imported here: most agents ask nothing.
            from dragoman.cli.forms import TerminalInquirer

            inquirer = TerminalInquirer(live)
        return await inquirer(inquiry)

    return inquire


@asynccontextmanager
async def started(
    plan: RunPlan,
    live: CommandLoop,
    show: Renderer,
    *,
    record: SessionRecord | None = None,
    adapter: AdapterWork | None = None,
) -> AsyncIterator[PromptSession]:
    """Context manager: a session that gets the interrupts of the command. Its `run` is not entered
    yet."""
    session = PromptSession(plan, live, show, record=record, adapter=adapter)
    show.doing(f"starting {plan.name}")
    show.on_broken = session.hang_up
    live.listen(session.interrupted)
    try:
        yield session
    finally:
        show.agent_stderr_ended()
        await session.aclose()


@asynccontextmanager
async def talking(
    plan: RunPlan, live: CommandLoop, show: Renderer, *, adapter: AdapterWork | None = None
) -> AsyncIterator[PromptSession]:
    """Context manager: a session whose `run` has been entered, so that the agent is connected and
    the session is open at the agent."""
    async with started(plan, live, show, adapter=adapter) as session, session.run:
        if not show.tells_jobs:
            # In a conversation there is nothing to wait for until there is a prompt.
            show.doing("")
        yield session
