"""Talking with an agent from a terminal: what `run` and `chat` have in common.

Owns the connection and the session of one command, the choice of the model, what an interrupt does
to a running turn, and the report at its end. It decides nothing about the agent (the hub does) and
prints nothing itself (`output` does).

The first interrupt cancels the turn in the agent and shows what there is, the second ends the
agent. Before a turn, the first one ends everything.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from typing import Final

from dragoman.cli import models
from dragoman.cli.exits import Exit, of_result
from dragoman.cli.output.showing import Report, Show
from dragoman.cli.permitting import permit_of
from dragoman.cli.plans import Plan
from dragoman.cli.stage import Stage
from dragoman.client.conversation import Conversation, ConversationTurn, Peer
from dragoman.dialects.discovery import ACP
from dragoman.errors import DragomanError, ProtocolMismatch, Unsupported
from dragoman.events import fold
from dragoman.events.model import Event
from dragoman.events.parts import Block
from dragoman.events.view import View
from dragoman.hub.launching import Way
from dragoman.hub.opening import judge, open_peer
from dragoman.hub.verify.store import CardStore
from dragoman.rpc.tasks import TaskOwner

TERMINATE_GRACE: Final = 2.0
"""Seconds that an agent has to end its turn when we are told to end. Whoever ends us kills us
after five or ten; the agent's processes have to be gone by then."""


LEAVE_TIMEOUT: Final = 2.0
"""Seconds for an agent to close its session. It is ended right after that, whatever it says."""


async def _leave(opened: AbstractAsyncContextManager[Conversation]) -> None:
    """Close a session. The turn has ended and was shown: how the agent takes its leave changes
    nothing about that."""
    with suppress(DragomanError, TimeoutError):
        async with asyncio.timeout(LEAVE_TIMEOUT):
            await opened.__aexit__(None, None, None)


class Talk:
    """A session with an agent, and the show of it."""

    def __init__(self, plan: Plan, stage: Stage, show: Show) -> None:
        self.plan = plan
        self.show = show
        self.view = View()
        """The session as it looks now."""
        self.peer: Peer
        self.conversation: Conversation
        self._stage = stage
        self._turn: ConversationTurn | None = None
        self._tasks = TaskOwner("the command")
        self._main = asyncio.current_task()
        self._closing = False

    # -- opening

    async def open(self, stack: AsyncExitStack, way: Way) -> None:
        """Connect and open a session; both end with the stack."""
        plan = self.plan
        self.view = View()
        self.peer = await stack.enter_async_context(
            open_peer(
                way,
                workspace=plan.workspace,
                permit=permit_of(plan.policy, self._stage),
                budgets=plan.budgets,
                dialect=plan.dialect,
                env=plan.env,
                on_event=self._watch,
                write_files=plan.policy.writes,
                max_line_size=plan.max_line_size,
            )
        )
        if plan.cards is not None:
            outdated = CardStore(plan.cards).outdated(plan.name, self.peer.info.version)
            if outdated is not None:
                self.show.notice(outdated)
        # In ACP the models are known only when the session is open, and then one is chosen of them.
        asked = plan.model if self.peer.dialect != ACP else None
        opened = self.peer.session(mode=plan.mode, model=asked, mcp_servers=plan.mcp_servers)
        self.conversation = await opened.__aenter__()
        stack.push_async_callback(_leave, opened)

    async def choose_model(self, wanted: str, stack: AsyncExitStack) -> None:
        """Let the agent use a model: by its option, by its method, else by starting it again with
        its argument. What it then uses is read back."""
        option = models.model_option(self.view.options)
        if option is not None:
            wanted = models.match(wanted, option.choices, peer=self.plan.name)
            if option.value != wanted:
                await self.conversation.set_option(option.id, wanted)
        elif self.view.model is not None:
            await self.conversation.set_model(wanted)
        else:
            await self._start_with(wanted, stack)
            option = models.model_option(self.view.options)
            if option is not None:
                wanted = models.match(wanted, option.choices, peer=self.plan.name)
        taken = self.model_in_use
        if taken is None:
            self.show.notice(f"{self.plan.name} does not tell which model it uses")
        elif taken != wanted:
            raise ProtocolMismatch(
                f"{self.plan.name} was asked for the model {wanted!r} and took {taken!r}"
            )

    async def _start_with(self, wanted: str, stack: AsyncExitStack) -> None:
        way = self.plan.way
        flag = way.descriptor.models.flag if way.descriptor is not None else None
        if flag is None or way.command is None:
            raise Unsupported(f"{self.plan.name} offers no choice of models, and --model was given")
        words = (f"{flag}{wanted}",) if flag.endswith("=") else (flag, wanted)
        await stack.aclose()
        await self.open(stack, replace(way, command=(*way.command, *words)))

    @property
    def model_in_use(self) -> str | None:
        """The model as the agent tells it."""
        option = models.model_option(self.view.options)
        if option is not None and isinstance(option.value, str):
            return option.value
        return self.view.model

    def _watch(self, event: Event) -> None:
        fold.apply(self.view, event)
        self.show.event(event)

    def mute(self) -> None:
        """Show nothing more: the end of a turn is the last word of a command that has only one."""
        self.peer.on_event = None

    # -- turns

    async def turn(self, blocks: Sequence[Block]) -> Report:
        """One prompt, to its end, whatever that is."""
        clock = asyncio.get_running_loop().time
        began_at = clock()
        try:
            async with self.conversation.prompt(blocks) as turn:
                self._turn = turn
                result = await turn.wait()
        finally:
            self._turn = None
        result = judge(result, self.plan.way.quirks)
        interrupted = self._stage.interrupts > 0 and not result.ok
        code = of_result(result)
        if interrupted:
            code = Exit.TERMINATED if self._stage.terminated else Exit.INTERRUPTED
        report = Report(
            peer=self.plan.name,
            session=self.conversation.id,
            result=result,
            seconds=clock() - began_at,
            exit_code=code,
            model=self.model_in_use,
            mode=self.view.mode,
            interrupted=interrupted,
        )
        if not self.show.broken:
            self.show.ended(report)
        return report

    # -- stopping

    def interrupted(self, count: int) -> None:
        """Somebody wants it to stop."""
        turn = self._turn
        if turn is None:
            if self._main is not None:
                self._main.cancel()
            return
        turn.cancel()
        if self._stage.terminated:
            self._end_agent_after(TERMINATE_GRACE)
        elif count == 1:
            self.show.notice("cancelling; Ctrl-C once more ends the agent")
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
async def talking(plan: Plan, stage: Stage, show: Show) -> AsyncIterator[Talk]:
    """A session with the agent of a plan, with the model that was asked for."""
    talk = Talk(plan, stage, show)
    show.on_broken = talk.hang_up
    stage.listen(talk.interrupted)
    try:
        async with AsyncExitStack() as stack:
            await talk.open(stack, plan.way)
            if plan.model is not None and talk.peer.dialect == ACP:
                await talk.choose_model(plan.model, stack)
            yield talk
    finally:
        await talk.aclose()
