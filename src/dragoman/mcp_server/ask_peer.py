"""Prompt one named peer once and wait for the end of the turn, in a new or a stored session.

Delegation depth comes from `runs.lineage`, permissions from `delegation.permission_ceiling` and
`policy`. Choosing a peer by role is in `delegation`.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dragoman.catalogue.enforcement import Enforced, enforce, unapproved
from dragoman.catalogue.launch import LaunchSpec, way_to
from dragoman.catalogue.open import judge, open_peer
from dragoman.client.conversation import Conversation, Peer
from dragoman.delegation import CancelHandle, DelegationListener, permission_ceiling
from dragoman.delegation.limits import tightened
from dragoman.delegation.parked import note_success
from dragoman.delegation.prices import price, read_prices
from dragoman.delegation.report import AttemptReport, report_of
from dragoman.delegation.worktree.changed_files import ChangeWatch
from dragoman.dialects.discovery import ACP
from dragoman.errors import BrokerUnavailable, DragomanError, NoPeer
from dragoman.events import fold
from dragoman.events.model import Event, SessionOpened, TurnEnded
from dragoman.events.parts import Text
from dragoman.events.view import View
from dragoman.policy import allows_everything
from dragoman.policy.approver import Approver
from dragoman.runs import model_choice
from dragoman.runs.open_by_name import ttl_of
from dragoman.runs.sessions import (
    ANSWER_SIZE,
    LIVE,
    RESTORED,
    OpenedSession,
    WantedSession,
    blame,
    broker_of,
    context_of,
    discard,
    job_terms,
    open_session,
    recall,
)
from dragoman.store.records import new_job_id, new_session_key

if TYPE_CHECKING:
    from dragoman.client.budgets import Budgets
    from dragoman.client.results import Result
    from dragoman.config.schema import Permissions
    from dragoman.runs.context import RunContext
    from dragoman.runs.lineage import Lineage
    from dragoman.runs.recorder import SessionRecorder
    from dragoman.store.records import SessionRecord

LEAVE_TIMEOUT: Final = 2.0
"""Seconds for an agent to close its session. What it says of that changes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerQuestion:
    """What one peer is asked."""

    peer: str
    prompt: str
    workspace: Path
    session: str | None = None
    """The name or key of a conversation that is kept; None is one for this question alone."""
    fresh: bool = False
    timeout: float | None = None
    permissions: Permissions | None = None
    lasting: bool = False
    """Whether a broker goes on with it when we are gone, however that came."""


class PeerLead(CancelHandle):
    """A cancel handle that can also leave a running turn to its broker."""

    def __init__(self) -> None:
        super().__init__()
        self._peer: Peer | None = None

    def reached(self, peer: Peer | None) -> None:
        """Set the peer that runs in a broker; None if there is no broker."""
        self._peer = peer

    async def drop(self) -> bool:
        """Leave a running turn to its broker. False if there is none to leave it to."""
        if self._peer is None or not self.in_turn:
            return False
        await self._peer.aclose()
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerAnswer:
    """What came of a question."""

    job: str
    session: str
    """The key of the conversation."""
    context: str
    report: AttemptReport


async def ask(
    question: PeerQuestion,
    *,
    place: RunContext,
    lineage: Lineage,
    audience: DelegationListener,
    lead: PeerLead,
) -> PeerAnswer:
    """Ask, and wait for the end of the turn.

    Raises what kept the peer from being asked; a turn that went wrong is a result.
    """
    settings = place.config.settings
    if lineage.depth >= settings.max_depth:
        raise NoPeer(
            "an answer",
            {
                question.peer: f"this is delegated work already, at depth {lineage.depth}, and "
                f"{settings.max_depth} is the limit; do the work here, or raise the limit"
            },
        )
    launch = way_to(
        question.peer, catalogue=place.catalogue, settings=settings, environ=place.environ
    )
    asking = _Asking(question, place, lineage, audience, lead)
    launch = asking.enforce(launch)
    async with AsyncExitStack() as stack:
        opened = await asking.open(stack, launch)
        return await asking.turn(opened, launch)


class _Asking:
    """One question while it is asked."""

    def __init__(
        self,
        question: PeerQuestion,
        place: RunContext,
        lineage: Lineage,
        audience: DelegationListener,
        lead: PeerLead,
    ) -> None:
        self._question = question
        self._place = place
        self._audience = audience
        self._lead = lead
        # Read before the prompt: a broken file must not lose an answer.
        self._prices = read_prices(place.paths.config)
        self._job = new_job_id()
        self._lineage = lineage.child(self._job)
        settings = place.config.settings
        self._policy = permission_ceiling.policy_for(
            settings,
            question.peer,
            wished=question.permissions,
            attended=False,
            ceilings=permission_ceiling.inherited_ceilings(lineage, place.environ),
        )
        self._budgets: Budgets | None = None
        self._view = View()
        self._told: dict[type[Event], Event] = {}
        self._keeper: SessionRecorder | None = None
        self._warm = False
        self._peer: Peer
        self._approver: Approver
        self._enforced: Enforced
        self._unenforced = ""

    # -- opening

    def enforce(self, launch: LaunchSpec) -> LaunchSpec:
        """The launch spec with which the peer obeys the policy. Raises `PolicyNotEnforced`."""
        own = self._place.config.settings.for_peer(self._question.peer)
        self._enforced = enforce(
            launch,
            restricts=not allows_everything(self._policy),
            mode=own.mode,
            card=self._place.cards().latest(launch.name),
            allow_unenforced=own.allow_unenforced,
        )
        return self._enforced.way

    async def open(self, stack: AsyncExitStack, launch: LaunchSpec) -> OpenedSession:
        question = self._question
        record: SessionRecord | None = None
        if question.session is not None:
            record = recall(question.session, peer=question.peer, folder=question.workspace)
        opened = await self._reach(stack, launch, record)
        wanted = self._place.config.settings.for_peer(question.peer).model
        if wanted is None:
            return opened

        async def restart(flagged: LaunchSpec) -> tuple[Conversation, View]:
            # Nothing was prompted, so that it can be started again with other words.
            nonlocal opened
            await discard(opened)
            await stack.aclose()
            self._view = View()
            opened = await self._reach(stack, flagged, record)
            return opened.conversation, self._view

        try:
            await model_choice.choose_model(
                opened.conversation,
                self._view,
                wanted,
                way=launch,
                restart=restart,
                peer=question.peer,
            )
        except DragomanError:
            await discard(opened)
            raise
        return opened

    async def _reach(
        self, stack: AsyncExitStack, launch: LaunchSpec, record: SessionRecord | None
    ) -> OpenedSession:
        question, place = self._question, self._place
        own = place.config.settings.for_peer(question.peer)
        self._peer = await stack.enter_async_context(self._connected(launch))
        self._warm = broker_of(self._peer) is not None
        self._lead.reached(self._peer if self._warm else None)
        self._keeper = None
        if not self._warm:
            from dragoman.runs.recorder import keeper_for

            self._keeper = keeper_for(
                question.peer,
                workspace=question.workspace,
                credentials=launch.inherit,
                handed=own.env,
                on_trouble=self._audience.notice,
                paths=place.paths,
                on_stop=self._lead.pull,
            )
            stack.push_async_callback(self._keeper.aclose)
        name = question.session if record is None else record.name
        opened = await open_session(
            self._peer,
            WantedSession(
                key=new_session_key(),
                name=name,
                record=record,
                once=question.session is None,
                workspace=question.workspace,
                fresh=question.fresh,
                mode=own.mode,
                model=own.model,
            ),
        )
        self._unenforced = await self._enforced.hold(opened.conversation, self._view)
        kept = question.session is not None
        if self._keeper is not None:
            self._keeper.opened(opened, record, name=name, keep_open=kept)
        if not kept:
            stack.push_async_callback(_leave, opened.conversation)
        return opened

    def _connected(self, launch: LaunchSpec) -> AbstractAsyncContextManager[Peer]:
        question, place = self._question, self._place
        settings = place.config.settings
        own = settings.for_peer(question.peer)
        warm = settings.warm
        self._approver = approver = Approver(
            self._policy,
            question.peer,
            str(question.workspace),
            titled=launch.quirks.command_titles,
        )
        self._budgets = tightened(
            settings.budgets(launch.budgets()), [settings.limits, own.limits], question.timeout
        )
        options: dict[str, Any] = {
            "workspace": question.workspace,
            "permit": approver,
            "guard": approver.guard,
            "budgets": self._budgets,
            "env": own.env,
            "extra_env": {
                **self._lineage.environment(warm=warm),
                **permission_ceiling.environment(self._policy, peer=question.peer),
            },
            "on_event": self._watch,
            "max_line_size": settings.max_line_size,
        }
        if not warm:
            return open_peer(launch, **options)
        # Not at the top: without brokers, what speaks with one is not loaded.
        from dragoman.broker.client.connect import open_warm

        return open_warm(
            launch,
            ttl=ttl_of(place.config),
            max_idle=settings.max_idle_brokers,
            paths=place.paths,
            on_fallback=self._without_broker,
            **options,
        )

    def _without_broker(self, error: BrokerUnavailable) -> None:
        self._audience.notice(f"{self._question.peer} is started for this question alone: {error}")

    def _watch(self, event: Event) -> None:
        fold.apply_settings(self._view, event)
        if self._keeper is not None:
            self._keeper.event(event)
        kind = type(event)
        if kind is TurnEnded or kind is SessionOpened:
            self._told[kind] = event
        self._audience.event(event)

    # -- the turn

    async def turn(self, opened: OpenedSession, launch: LaunchSpec) -> PeerAnswer:
        question = self._question
        blocks = [Text(question.prompt)]
        started_at = time.time()
        if self._keeper is not None:
            self._keeper.began(self._job, blocks)
        self._audience.job(self._job)
        before = await ChangeWatch.take(question.workspace) if self._enforced.restricts else None
        try:
            async with self._prompt(opened.conversation, blocks) as turn:
                turn.max_text_size = ANSWER_SIZE
                self._lead.hold(turn)
                result: Result = await turn.wait()
        finally:
            self._lead.hold(None)
        result = judge(blame(result) if self._warm else result, launch.quirks)
        if self._keeper is not None:
            self._keeper.ended(result)
        if result.ok:
            own = self._place.config.settings.for_peer(question.peer)
            note_success(
                question.peer,
                launch.descriptor,
                paths=self._place.paths,
                env=own.env,
                environ=self._place.environ,
            )
        changed = () if before is None else await before.changed()
        model = model_choice.model_in_use(self._view)
        return PeerAnswer(
            job=self._job,
            session=opened.key,
            context=self._context(opened),
            report=report_of(
                result,
                peer=question.peer,
                role="",
                started_at=started_at,
                ended_at=time.time(),
                model=model,
                unenforced=self._unenforced or None,
                violations=unapproved(
                    changed, self._approver.rulings, workspace=question.workspace
                ),
                cost=price(model, result.usage, self._prices),
            ),
        )

    def _prompt(self, conversation: Conversation, blocks: list[Text]) -> Any:
        if self._peer.dialect != ACP and not self._warm:
            return conversation.prompt(blocks)
        ours = self._lineage.meta()
        if self._warm:
            policy = permission_ceiling.unattended(self._policy, peer=self._question.peer, role="")
            ours |= job_terms(self._job, policy=policy, budgets=self._budgets)["dragoman"]
            ours["stay"] = self._question.lasting
        return conversation.prompt(blocks, meta={"dragoman": ours})  # type: ignore[call-arg]

    def _context(self, opened: OpenedSession) -> str:
        """What the agent knew of the conversation."""
        told = context_of(self._told.get(TurnEnded)) or LIVE
        if told != LIVE or opened.context != RESTORED:
            return opened.context if told == LIVE else told
        return context_of(self._told.get(SessionOpened)) or RESTORED


async def _leave(conversation: Conversation) -> None:
    with suppress(DragomanError, TimeoutError):
        async with asyncio.timeout(LEAVE_TIMEOUT):
            await conversation.close()
