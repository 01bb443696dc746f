"""Run prompts through a peer's adapter: choose its role, call it, and report failures.

A failure of the adapter's own code is an `AdapterFailed`; errors that the adapter raises about its
peer are passed on unchanged. `AdapterPeer` makes an adapter look like a connected peer, for
`runs.run`. `runs.adapters` loads adapters, `dragoman.adapters` is their contract.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from dragoman.adapters import Assignment
from dragoman.catalogue.open import dialect_of
from dragoman.client.budgets import Budgets
from dragoman.client.conversation import (
    Conversation,
    ConversationTurn,
    Opening,
    Peer,
    SessionSummary,
    blocks_of,
)
from dragoman.client.results import Result, explain
from dragoman.client.turns import TurnEndMark, TurnStage
from dragoman.errors import (
    AdapterFailed,
    BudgetExceeded,
    DragomanError,
    PolicyNotEnforced,
    RoleNotClaimed,
    Unsupported,
    UsageError,
)
from dragoman.events import fold, model
from dragoman.events.model import EventEnvelope
from dragoman.events.parts import (
    Audio,
    Block,
    Capabilities,
    Failure,
    Image,
    Link,
    PeerInfo,
    Resource,
    Text,
)
from dragoman.events.view import View
from dragoman.events.words import Outcome
from dragoman.rpc import Call
from dragoman.rpc.lanes import Flow, Limits
from dragoman.rpc.tasks import TaskOwner, await_callback
from dragoman.store.records import new_session_key

if TYPE_CHECKING:
    from dragoman.adapters import Adapter, Notified
    from dragoman.catalogue.launch import LaunchSpec
    from dragoman.runs.context import RunContext
    from dragoman.runs.run_values import RunRequest

TOTAL_GRACE: Final = 5.0
"""Seconds after the total budget of an assignment during which the adapter may still report the
timeout itself, with the peer's text so far. After that the adapter is cancelled."""

log: Final = logging.getLogger("dragoman.adapters")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterWork:
    """The adapter of a peer, and the role in which it works."""

    adapter: Adapter
    role: str
    source: str
    """The file or module of the adapter, for messages."""


def adapter_work(
    peer: str, context: RunContext, *, role: str | None = None, prefer: str | None = None
) -> AdapterWork | None:
    """Return the Python adapter of a peer and the role to use, or None for a peer without one.

    The role is `prefer` if the adapter claims it, `role` if no role is preferred (the adapter must
    claim it), or else the first that the adapter claims. Raises `ConfigInvalid` if the adapter
    cannot be loaded, and what `choose_role` raises.
    """
    loaded = context.adapter(peer)
    if loaded is None:
        return None
    adapter, source = loaded.adapter, loaded.source
    if prefer is not None:
        try:
            role = choose_role(adapter, prefer, source=source)
        except RoleNotClaimed:
            role = None
    return AdapterWork(
        adapter=adapter, role=choose_role(adapter, role, source=source), source=source
    )


def choose_role(adapter: Adapter, wanted: str | None, *, source: str) -> str:
    """Return the role to work in: the wanted one, or else the first that the adapter claims.

    Raises `RoleNotClaimed` if the adapter does not claim the wanted role, `UsageError` if none is
    wanted and it claims none, and `AdapterFailed` if its code fails. `source` names the adapter in
    messages.
    """
    try:
        claimed = tuple(str(role) for role in adapter.ROLES_CLAIMED)
        if wanted is not None and not adapter.claims(wanted):
            raise RoleNotClaimed(adapter.name, wanted, claimed)
    except DragomanError:
        raise
    except Exception as error:
        raise _failed(adapter, source, error) from error
    if wanted is not None:
        return wanted
    if not claimed:
        raise UsageError(
            f"the adapter of {adapter.name} ({source}) has no roles in ROLES_CLAIMED: add one "
            "there, or use --role with a role that its `claims` function accepts"
        )
    return claimed[0]


async def dispatch(
    adapter: Adapter,
    assignment: Assignment,
    *,
    role: str,
    text: str,
    source: str,
    on_event: Notified | None = None,
) -> Result:
    """Let an adapter run one prompt, and return its result.

    Raises `AdapterFailed` if its code fails or does not return a `Result`, `BudgetExceeded` if it
    takes `TOTAL_GRACE` longer than the total budget of the assignment, and any `DragomanError` from
    its peer.
    """
    total = None if assignment.budgets is None else assignment.budgets.total
    limit = None if total is None else total + TOTAL_GRACE
    clock = asyncio.timeout(limit)
    try:
        async with clock:
            work = adapter.dispatch(assignment, role, text, on_event)
            result: object = await await_callback(work)
    except DragomanError:
        raise
    except (Exception, SystemExit) as error:
        if clock.expired() and total is not None:
            raise BudgetExceeded("total", total) from error
        raise _failed(adapter, source, error) from error
    if not isinstance(result, Result):
        raise AdapterFailed(
            adapter.name, source, f"its dispatch returned {type(result).__name__}, not a Result"
        )
    return result


def _failed(adapter: Adapter, source: str, error: BaseException) -> AdapterFailed:
    log.debug("%s, the adapter of %s, failed", source, adapter.name, exc_info=error)
    return AdapterFailed(adapter.name, source, f"{type(error).__name__}: {error}")


# -- an adapter in place of a peer

DIALECT: Final = "adapter"

_CAPABILITIES: Final = Capabilities(set_mode=True, set_model=True, cancel=True, permissions=True)


class AdapterPeer(Peer):
    """Makes an adapter look like a connected peer. The adapter starts and ends the actual peer for
    each prompt."""

    dialect = DIALECT
    capabilities = _CAPABILITIES
    auth_methods = ()

    def __init__(
        self,
        work: AdapterWork,
        request: RunRequest,
        way: LaunchSpec,
        *,
        on_event: Callable[[model.Event], None] | None = None,
    ) -> None:
        _refuse_session(request)
        self.work = work
        self.assignment = Assignment(
            way=replace(
                way,
                # The adapter does not get the options, so these go into the launch spec.
                env={**way.env, **(request.options.env or {})},
                protocol=dialect_of(way, request.options),
            ),
            cwd=request.workspace,
            permit=request.approver,
            budgets=request.budgets,
            env=tuple(request.options.inherit),
        )
        self.enforced = request.enforced
        self.on_event = on_event
        self.workspace = request.workspace
        self.info = PeerInfo(name=request.peer)
        # A stub for callers that check the connection: it never fails, and there is no broker.
        self.client = SimpleNamespace(connection=SimpleNamespace(failure=None), greeting=None)
        self.tasks = TaskOwner("the adapter")

    async def open(self, opening: Opening) -> Conversation:
        if opening.how != "new":
            raise Unsupported(
                f"{self.info.name} is run by its adapter, which cannot continue a session"
            )
        return AdapterConversation(self, mode=opening.mode, model=opening.model)

    async def list_sessions(self, cwd: str | Path | None = None) -> AsyncIterator[SessionSummary]:
        nothing: tuple[SessionSummary, ...] = ()
        for summary in nothing:
            yield summary

    async def stop(self) -> bool:
        """Cancel the adapter's running work. Returns False if it does not end."""
        await self.tasks.aclose()
        return not len(self.tasks)

    async def aclose(self) -> None:
        await self.tasks.aclose()


class AdapterConversation(Conversation):
    """The conversation of one run with an adapter, which opens a separate session for each
    prompt."""

    replayed: Sequence[model.Event] = ()

    def __init__(self, peer: AdapterPeer, *, mode: str | None, model: str | None) -> None:
        self.peer = peer
        self.id = new_session_key()
        self.turn: DispatchTurn | None = None
        self.mode = mode
        self.model = model

    @property
    def unusable(self) -> bool:
        """Always False: each prompt has its own session, so an unfinished one does not matter."""
        return False

    @unusable.setter
    def unusable(self, value: bool) -> None:
        pass

    async def wait_replayed(self) -> None:
        pass

    def cancel_questions(self) -> None:
        pass

    def prompt(self, prompt: str | Block | Sequence[Block]) -> ConversationTurn:
        texts = [_text_of(block, self.peer.info.name or "") for block in blocks_of(prompt)]
        return DispatchTurn(self, "\n\n".join(texts))

    async def set_mode(self, mode_id: str) -> None:
        self.mode = mode_id

    async def set_model(self, model_id: str) -> None:
        self.model = model_id

    async def set_option(self, option_id: str, value: str | bool) -> None:
        raise Unsupported(f"{self.peer.info.name} is run by its adapter, which takes no options")

    async def close(self) -> None:
        pass


class DispatchTurn(ConversationTurn):
    """One prompt that an adapter runs. `dispatch` and the adapter apply the budgets of the
    assignment; the turn's own total budget is larger."""

    __slots__ = ("_conversation", "_place", "_prompt", "_view", "_work")

    def __init__(self, conversation: AdapterConversation, text: str) -> None:
        flow = Flow(_nothing, _nothing, Limits())
        grace = conversation.peer.assignment.budgets or Budgets()
        total = None if grace.total is None else grace.total + 2 * TOTAL_GRACE
        budgets = Budgets(
            first_event=None, silence=None, total=total, cancel_grace=grace.cancel_grace
        )
        super().__init__(conversation, flow, budgets)
        self._conversation = conversation
        self._prompt = text
        source = model.Source(DIALECT, conversation.id)
        self._place = EventEnvelope(source, itertools.count(1), conversation.id)
        self._view = View()
        self._work: asyncio.Task[None] | None = None

    def _send(self) -> Call:
        self._work = self._conversation.peer.tasks.start(self._run(), "dispatch")
        # A task cancelled before its first step never enters `_run`; `_left` ends the turn.
        self._work.add_done_callback(self._left)
        return Call("dispatch", lambda call: None)

    def _send_cancel(self) -> None:
        if self._work is not None:
            self._work.cancel()

    async def _run(self) -> None:
        conversation = self._conversation
        peer = conversation.peer
        assignment = dataclasses.replace(
            peer.assignment, mode=conversation.mode, model=conversation.model
        )
        work = peer.work
        try:
            result = await dispatch(
                work.adapter,
                assignment,
                role=work.role,
                text=self._prompt,
                source=work.source,
                on_event=self._happened,
            )
        except DragomanError as error:
            outcome, failure = explain(error)
            self.conclude(self._ended(outcome, error.error_class, failure), error)
            return
        if self.state is not TurnStage.ENDED:
            ended = self._ended(result.outcome, result.stop, result.failure)
            self.put(replace(ended, usage=result.usage), 0)
            self._finish(TurnEndMark(result))

    def _left(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            self.conclude(self._ended(Outcome.CANCELLED, "cancelled", None))
        elif (error := task.exception()) is not None:
            # The owner of the task logs it.
            peer = self._conversation.peer
            why = f"{type(error).__name__}: {error}"
            failed = AdapterFailed(peer.work.adapter.name, peer.work.source, why)
            outcome, failure = explain(failed)
            self.conclude(self._ended(outcome, failed.error_class, failure), failed)

    def _happened(self, event: model.Event) -> None:
        """Called when the adapter reports an event of one of its sessions."""
        if self.state is TurnStage.ENDED:
            return
        peer = self._conversation.peer
        fold.apply_settings(self._view, event)
        if isinstance(event, model.TurnStarted):
            why = peer.enforced.unkept(self._view)
            if why and not peer.enforced.allow_unenforced:
                self.fail(PolicyNotEnforced(peer.info.name, why))
                return
        if peer.on_event is not None:
            peer.on_event(event)
        # The end of one of the adapter's prompts is not the end of its work.
        if not isinstance(event, model.TurnEnded):
            self.event(event, len(event.raw or b"") or 1)

    def _ended(self, outcome: Outcome, stop: str, failure: Failure | None) -> model.TurnEnded:
        base = self._place.base("", None)
        return model.TurnEnded(*base, outcome=outcome, stop=stop, failure=failure)


def _refuse_session(request: RunRequest) -> None:
    """Raise `UsageError` for options that an adapter does not support."""
    what = f"{request.peer} is run by its Python adapter"
    if request.session is not None:
        raise UsageError(
            f"{what}, which opens a new session for every prompt: leave the session out"
        )
    if request.mcp_servers and request.mcp_strict:
        raise UsageError(f"{what}, which does not take MCP servers: leave them out")


def _text_of(block: Block, peer: str) -> str:
    match block:
        case Text(text):
            return text
        case Resource(uri, str() as text):
            return f"{uri}:\n{text}"
        case Link(uri):
            return uri
        case _:
            raise UsageError(
                f"{peer} is run by its Python adapter, which accepts only text prompts: leave out "
                f"{_named(block)}"
            )


def _named(block: Block) -> str:
    match block:
        case Image():
            return "the image"
        case Audio():
            return "the audio"
        case Resource(uri):
            return f"the binary data of {uri}"
        case _:
            return "the content that dragoman does not know"


def _nothing() -> None:
    pass


__all__ = ["TOTAL_GRACE", "AdapterPeer", "AdapterWork", "adapter_work", "choose_role", "dispatch"]
