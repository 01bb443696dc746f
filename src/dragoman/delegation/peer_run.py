"""Run one turn of one peer: connect (broker or own process), open the session, prompt, wait.

Sets model and mode, applies permissions, budgets and limits, and records a session without a
broker. The prompt is sent at most once. Retry and fallback are in `execution`, changed files in
`attempt`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dragoman.catalogue.enforcement import Enforced
from dragoman.catalogue.launch import LaunchSpec
from dragoman.catalogue.open import judge, open_peer
from dragoman.client.budgets import Budgets
from dragoman.client.conversation import Conversation, Peer
from dragoman.client.results import Result
from dragoman.delegation.cancel import CancelHandle, unrest
from dragoman.delegation.limits import OVER_BUDGET, TurnLimits
from dragoman.delegation.permission_ceiling import unattended
from dragoman.delegation.request import Attach
from dragoman.dialects.discovery import ACP
from dragoman.errors import BrokerUnavailable, DragomanError, ProtocolMismatch, UsageError
from dragoman.events import fold
from dragoman.events.model import Event, MessageDelta, TurnEnded, TurnStarted
from dragoman.events.parts import Block, Failure, Text
from dragoman.events.view import View
from dragoman.events.words import ErrorKind, Outcome, Role
from dragoman.policy.approver import Approver
from dragoman.runs import model_choice
from dragoman.runs.sessions import (
    ANSWER_SIZE,
    OpenedSession,
    WantedSession,
    broker_of,
    job_terms,
    open_session,
)
from dragoman.store.records import new_session_key

if TYPE_CHECKING:
    from dragoman.paths import Paths
    from dragoman.runs.recorder import SessionRecorder

LEAVE_TIMEOUT: Final = 2.0
"""Seconds for an agent to close its session. A failure to do so is ignored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerRunRequest:
    """Everything that one run needs."""

    way: LaunchSpec
    peer: str
    role: str
    prompt: str
    attach: Attach
    workspace: Path
    project: Path
    """The directory it is recorded for; the workspace may be a worktree of it."""
    model: str | None
    model_strict: bool
    """Whether this exact model was requested, and not a tier."""
    mode: str | None
    budgets: Budgets
    approver: Approver
    enforced: Enforced
    """How the approver's policy is enforced with this peer."""
    job: str
    """The id of this run, which is a job of its own below that of the delegation."""
    lineage: Mapping[str, Any]
    extra_env: Mapping[str, str]
    env: Sequence[str]
    paths: Paths
    limits: TurnLimits
    warm: bool
    stay: bool
    """Whether the turn continues in its broker when this process disconnects."""
    trace: Mapping[str, str]
    ttl: float | None = None
    max_idle: int | None = None
    max_line_size: int | None = None
    cancel: CancelHandle
    clock: Callable[[], float]
    on_event: Callable[[Event], None]
    on_notice: Callable[[str], None]
    on_session: Callable[[str], None]
    """Called with the session key when the prompt is about to be sent."""


@dataclass(slots=True)
class RunResult:
    """What was observed in a run."""

    result: Result | None = None
    error: DragomanError | None = None
    """Why there was no turn."""
    prompted: bool = False
    """Whether the prompt was sent, so that it may have run."""
    acted: bool = False
    """Whether the peer said or did anything in its turn."""
    first_event_at: float | None = None
    greeted_seconds: float | None = None
    model: str | None = None
    restless: str | None = None
    """Why the peer may still be working."""
    over: str | None = None
    """The limit that ended the turn."""
    view: View = field(default_factory=View)
    notes: list[str] = field(default_factory=list)
    unenforced: str = ""
    """Why the policy did not restrict the peer."""


class PeerRun:
    """One run of one peer."""

    def __init__(self, terms: PeerRunRequest) -> None:
        self.terms = terms
        self.seen = RunResult()
        self._keeper: SessionRecorder | None = None
        self._running: Any = None
        self._warm = False

    async def run(self) -> RunResult:
        """Run once. Errors are in the result. The peer has stopped when this returns, unless
        `restless` says otherwise."""
        try:
            async with AsyncExitStack() as stack:
                opened = await self._open(stack)
                await self._turn(opened)
        except DragomanError as error:
            if self.seen.result is None:
                self.seen.error = error
        return self.seen

    # -- opening

    async def _open(self, stack: AsyncExitStack) -> OpenedSession:
        terms = self.terms
        opened = await self._reach(stack, terms.way)
        if terms.model is None:
            return opened

        async def restart(way: LaunchSpec) -> tuple[Conversation, View]:
            # No prompt was sent, so it can be started again with another command line.
            nonlocal opened
            await stack.aclose()
            self.seen.view = View()
            opened = await self._reach(stack, way)
            return opened.conversation, self.seen.view

        try:
            await model_choice.choose_model(
                opened.conversation,
                self.seen.view,
                terms.model,
                way=terms.way,
                restart=restart,
                peer=terms.peer,
            )
        except (UsageError, ProtocolMismatch) as error:
            if terms.model_strict:
                raise
            self.seen.notes.append(str(error))
        return opened

    async def _reach(self, stack: AsyncExitStack, way: LaunchSpec) -> OpenedSession:
        terms = self.terms
        began_at = terms.clock()
        self._peer = await stack.enter_async_context(self._connected(way))
        self.seen.greeted_seconds = max(terms.clock() - began_at, 0.0)
        self._warm = broker_of(self._peer) is not None
        self._keeper = None
        if not self._warm:
            from dragoman.runs.recorder import keeper_for

            self._keeper = keeper_for(
                terms.peer,
                workspace=terms.project,
                credentials=way.inherit,
                handed=terms.env,
                on_trouble=terms.on_notice,
                paths=terms.paths,
                on_stop=terms.cancel.pull,
            )
            stack.push_async_callback(self._keeper.aclose)
        opened = await open_session(
            self._peer,
            WantedSession(
                key=new_session_key(),
                once=True,
                workspace=terms.workspace,
                mode=terms.mode,
                model=terms.model,
            ),
        )
        self.seen.unenforced = await terms.enforced.hold(opened.conversation, self.seen.view)
        if self._keeper is not None:
            self._keeper.opened(opened, None, name=None)
        stack.push_async_callback(_leave, opened.conversation)
        return opened

    def _connected(self, way: LaunchSpec) -> AbstractAsyncContextManager[Peer]:
        terms = self.terms
        approver = terms.approver
        options: dict[str, Any] = {
            "workspace": terms.workspace,
            "permit": approver,
            "guard": approver.guard,
            "budgets": terms.budgets,
            "env": terms.env,
            "extra_env": terms.extra_env,
            "on_event": self._watch,
            "max_line_size": terms.max_line_size,
        }
        if not terms.warm:
            return open_peer(way, **options)
        # Imported here: a delegation without brokers does not need the broker client.
        from dragoman.broker.client.connect import open_warm

        return open_warm(
            way,
            ttl=terms.ttl,
            max_idle=terms.max_idle,
            paths=terms.paths,
            on_fallback=self._without_broker,
            **options,
        )

    def _without_broker(self, error: BrokerUnavailable) -> None:
        self.terms.on_notice(f"{self.terms.peer} is started for this attempt alone: {error}")

    # -- the turn

    async def _turn(self, opened: OpenedSession) -> None:
        terms, seen = self.terms, self.seen
        conversation = opened.conversation
        attached = terms.attach(terms.workspace, self._peer.capabilities)
        blocks: list[Block] = [Text(terms.prompt), *attached]
        if self._keeper is not None:
            self._keeper.began(terms.job, blocks)
        terms.on_session(opened.key)
        self._running = None
        try:
            turn = self._prompt(conversation, blocks)
            turn.max_text_size = ANSWER_SIZE
            seen.prompted = True
            async with turn:
                self._running = turn
                terms.cancel.hold(turn)
                result = await turn.wait()
        finally:
            terms.cancel.hold(None)
            self._running = None
        result = judge(result, terms.way.quirks)
        if seen.over is not None:
            result = replace(
                result,
                outcome=Outcome.TRUNCATED,
                failure=Failure(seen.over, ErrorKind.QUOTA, OVER_BUDGET, False, None),
            )
        seen.result = result
        seen.model = model_choice.model_in_use(seen.view)
        if self._keeper is not None:
            self._keeper.ended(result)
        if result.outcome in (Outcome.TIMED_OUT, Outcome.CANCELLED, Outcome.TRUNCATED):
            seen.restless = await unrest(self._peer, conversation.id, terms.paths)

    def _prompt(self, conversation: Conversation, blocks: Sequence[Block]) -> Any:
        terms = self.terms
        if self._peer.dialect != ACP and not self._warm:
            return conversation.prompt(blocks)
        ours = dict(terms.lineage)
        if self._warm:
            policy = unattended(terms.approver.policy, peer=terms.peer, role=terms.role)
            ours |= {**job_terms(terms.job, policy=policy)["dragoman"], "stay": terms.stay}
        return conversation.prompt(blocks, meta={"dragoman": ours, **terms.trace})  # type: ignore[call-arg]

    def _watch(self, event: Event) -> None:
        seen, terms = self.seen, self.terms
        fold.apply_briefly(seen.view, event)
        if self._keeper is not None:
            self._keeper.event(event)
        if seen.prompted and _is_life(event):
            seen.acted = True
            if seen.first_event_at is None:
                seen.first_event_at = terms.clock()
        if seen.over is None and (crossed := terms.limits.crossed(event)) is not None:
            seen.over = crossed
            if self._running is not None:
                self._running.cancel()
        terms.on_event(event)


_SILENT: Final = (TurnStarted, TurnEnded)


def _is_life(event: Event) -> bool:
    """Whether an event shows that the peer works on the turn."""
    if event.turn is None or event.replay or isinstance(event, _SILENT):
        return False
    return not (isinstance(event, MessageDelta) and event.role is Role.USER)


async def _leave(conversation: Conversation) -> None:
    with suppress(DragomanError, TimeoutError):
        async with asyncio.timeout(LEAVE_TIMEOUT):
            await conversation.close()
