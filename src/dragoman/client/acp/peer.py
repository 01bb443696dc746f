"""The conversation API over ACP v1: sessions and turns that produce events.

Wraps the typed `client`, `session` and `turn` of this package and sends nothing that they do not.
`event_source` makes the events that belong to no session.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Raw
from msgspec.structs import replace

from dragoman.client.acp.client import AcpClient
from dragoman.client.acp.event_source import EventSource, peer_info
from dragoman.client.acp.options import ClientOptions
from dragoman.client.acp.session import APPLY, Session
from dragoman.client.base import ClientPeer, started
from dragoman.client.conversation import (
    Conversation,
    ConversationTurn,
    Opening,
    SessionSummary,
    blocks_of,
)
from dragoman.client.permissions import Answer, Decision, Permit, Question
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1 import translate
from dragoman.dialects.acp.v1.session import listed_in
from dragoman.errors import CallCancelled, ConnectionLost, DragomanError
from dragoman.events import model
from dragoman.events.parts import (
    AuthMethod,
    Block,
    Capabilities,
    Choice,
    Cost,
    Failure,
    PeerInfo,
    Usage,
)
from dragoman.events.words import Outcome
from dragoman.rpc import Call
from dragoman.transports.base import Stream
from dragoman.wire.messages import Notification

if TYPE_CHECKING:
    from dragoman.client.inquiries import Inquire

_NOTHING_SPENT: Final = Cost(0.0, "")
"""The cost of a session that has just begun, in any currency."""


async def open_peer(
    stream: Stream,
    workspace: Path,
    options: ClientOptions | None = None,
    *,
    launch: Sequence[str] = (),
) -> AcpPeer:
    """Shake hands with an agent on a stream. The stream is closed if that fails.

    `launch` is the command line that started the agent; empty if it was reached by an address.
    """
    return await started(
        stream, lambda: AcpPeer(AcpClient(stream, options, launch=launch), workspace)
    )


class AcpPeer(ClientPeer):
    """An agent that speaks ACP v1. May be made before or after its client shakes hands."""

    dialect = translate.DIALECT
    client: AcpClient

    def __init__(self, client: AcpClient, workspace: Path) -> None:
        self.record = EventSource(client)
        super().__init__(client, self.record, workspace)

    @property
    def info(self) -> PeerInfo:  # type: ignore[override]
        return peer_info(self.client.agent)

    @property
    def capabilities(self) -> Capabilities:  # type: ignore[override]
        can = translate.capabilities(self.client.agent.agent_capabilities)
        return can if self.client.options.unstable else replace(can, fork=False)

    @property
    def auth_methods(self) -> tuple[AuthMethod, ...]:  # type: ignore[override]
        return tuple(
            translate.auth_method(method, self.client.login_command(method))
            for method in self.client.agent.auth_methods
        )

    def answer_with(self, permit: Permit) -> None:
        super().answer_with(permit)
        self.client.permit_with(permit)

    def inquire_with(self, inquire: Inquire) -> None:
        from dragoman.client.acp.inquiries import elicit_by

        self.client.elicit_with(elicit_by(inquire))

    async def open(self, opening: Opening) -> AcpConversation:
        client = self.client
        shared: dict[str, Any] = {
            "additional_directories": opening.additional_directories,
            "mcp_servers": opening.mcp_servers,
            "mode": opening.mode,
            "model": opening.model,
            "meta": opening.metadata or None,
        }

        def make(client: AcpClient, id: str, cwd: Path, others: Sequence[Path]) -> AcpSession:
            return AcpSession(self.record, client, id, cwd, others)

        match opening.how:
            case "load":
                assert opening.session_id is not None
                session = await client.load_session(
                    opening.session_id, opening.cwd, make=make, **shared
                )
            case "resume":
                assert opening.session_id is not None
                session = await client.resume_session(
                    opening.session_id, opening.cwd, make=make, **shared
                )
            case "fork":
                assert opening.session_id is not None
                session = await client.fork_session(opening.session_id, opening.cwd, make=make)
            case _:
                session = await client.new_session(opening.cwd, make=make, **shared)
        assert isinstance(session, AcpSession)
        session.began_here = opening.how == "new"
        if opening.mode or opening.model or client.options.starting_mode:
            session.settings_changed()
        return AcpConversation(session)

    async def list_sessions(self, cwd: str | Path | None = None) -> AsyncIterator[SessionSummary]:
        async for info in self.client.list_sessions(cwd):
            yield SessionSummary(
                info.session_id,
                info.cwd,
                info.title,
                info.updated_at,
                *listed_in(info.meta),
            )

    async def delete_session(self, session_id: str) -> None:
        await self.client.delete_session(session_id)

    async def authenticate(self, method_id: str) -> None:
        await self.client.authenticate(method_id)

    async def logout(self) -> None:
        await self.client.logout()


class AcpSession(Session):
    """A session whose updates become events as they arrive."""

    __slots__ = ("_early", "_turns", "began_here", "events", "place", "record")

    def __init__(
        self,
        record: EventSource,
        client: AcpClient,
        id: str,
        cwd: Path,
        others: Sequence[Path] = (),
    ) -> None:
        super().__init__(client, id, cwd, others)
        self.record = record
        self._turns = itertools.count(1)
        self.place = record.place(id)
        self._early = record.early_told.pop(id, 0)
        """Updates that come once more because the session is open now. They were told before."""
        self.events: list[model.Event] = []
        """The replayed history."""
        self.began_here = False
        """Whether the session is a new one, so that nothing was spent in it before."""

    # -- settings

    def opened(self, modes: Any, models: Any, config_options: Any) -> None:
        super().opened(modes, models, config_options)
        self.record.opened = self

    def announce(self, how: str, line: bytes | None) -> None:
        """Say that the session is there, and what its settings are."""
        native = f"session/{how}"
        model_id = self.models.current_model_id if self.models else None
        opened = model.SessionOpened(
            *self.place.base(native, line), how, str(self.cwd), None, model_id
        )
        self.record.emit(opened)
        self.settings_changed(native, line)

    def settings_changed(self, native: str = "", line: bytes | None = None) -> None:
        """Tell the settings as they are now."""
        fields = translate.settings(self.modes, self.config_options, self.models)
        if fields:
            event = model.SettingsChanged(*self.place.base(native, line), **fields)
            self._hand_over(event, 0)

    # -- what arrives

    def new_turn(self) -> None:
        self.place.turn = f"t{next(self._turns)}"
        self.place.replay = False

    def deliver(self, update: acp.SessionUpdate, line: bytes) -> None:
        apply = APPLY.get(type(update))
        if apply is not None:
            apply(self, update)
        turn = self.turn
        if turn is None:
            self._deliver_outside(update, line)
            return
        size = len(line)
        on_event = self.record.on_event
        for event in translate.of_update(update, self.place, line):
            if on_event is not None:
                self.record.emit(event)
            turn.event(event, size)  # type: ignore[attr-defined]
            # The line counts once, however many events it makes.
            size = 0

    def _deliver_outside(self, update: acp.SessionUpdate, line: bytes) -> None:
        if self._early:
            self._early -= 1
        else:
            place = self.place
            place.turn = None
            place.replay = self.replaying
            for event in translate.of_update(update, place, line):
                self.record.emit(event)
                if place.replay:
                    self.events.append(event)
        self.keep(update)

    def heard(self, message: Notification, reason: str) -> bool:
        if self.turn is None:
            self.place.turn = None
        unknown = model.Unknown(*self.place.base(message.method, message.line), reason)
        self._hand_over(unknown, len(message.line))
        return True

    def _hand_over(self, event: model.Event, size: int) -> None:
        """An event that is no update's: to whoever watches, and to the turn if one runs."""
        self.record.emit(event)
        turn = self.turn
        if turn is not None:
            assert isinstance(turn, AcpConversationTurn)
            turn.event(event, size)

    # -- questions

    def asked(self, request: acp.RequestPermissionRequest, line: bytes) -> str:
        request_id = self.record.new_request_id()
        if self.turn is None:
            self.place.turn = None
        size = len(line)
        for event in translate.of_permission(request, request_id, self.place, line):
            self._hand_over(event, size)
            size = 0
        return request_id

    def answered(self, question: Question, answer: Decision, option_id: str | None) -> None:
        turn = self.turn
        super().answered(question, answer, option_id)
        event = model.PermissionAnswered(
            *self.place.base(acp.SESSION_REQUEST_PERMISSION.name, None),
            question.request_id,
            answer.allows,
            option_id,
            "cancel" if answer is Answer.CANCEL else "caller",
        )
        self.record.emit(event)
        if turn is not None:
            # It is history: the agent has its answer before anybody is told of it.
            turn.put_unhurried(event, 0)  # type: ignore[arg-type]


class AcpConversation(Conversation):
    """A conversation with an agent that speaks ACP v1."""

    def __init__(self, session: AcpSession) -> None:
        self.session = session
        self.id = session.id

    @property
    def replayed(self) -> Sequence[model.Event]:  # type: ignore[override]
        return self.session.events

    @property
    def turn(self) -> Any:
        return self.session.turn

    @property
    def models(self) -> Sequence[Choice]:
        state = self.session.models
        return [
            Choice(each.model_id, each.name, each.description)
            for each in (() if state is None else state.available_models)
        ]

    async def wait_replayed(self) -> None:
        await self.session.wait_replayed()

    def prompt(
        self, prompt: str | Block | Sequence[Block], *, meta: dict[str, Any] | None = None
    ) -> ConversationTurn:
        """A turn with this prompt; `meta` travels with it as its `_meta`."""
        blocks = blocks_of(prompt)
        wire = [translate.to_block(block) for block in blocks]
        self.session.client.require_content(wire)
        return AcpConversationTurn(self.session, blocks, wire, meta)

    async def set_mode(self, mode_id: str) -> None:
        await self.session.set_mode(mode_id)
        self.session.settings_changed()

    async def switch_mode(self, mode_id: str) -> None:
        """`set_mode` in the words of modes, for somebody who was asked in these words."""
        before = self.session.modes
        await self.session.switch_mode(mode_id)
        if self.session.modes is not before:
            self.session.settings_changed()

    async def set_model(self, model_id: str) -> None:
        await self.session.set_model(model_id)
        self.session.settings_changed()

    async def set_option(self, option_id: str, value: str | bool) -> None:
        await self.session.set_config_option(option_id, value)
        self.session.settings_changed()

    async def close(self) -> None:
        if self.session.client.connection.failure is not None:
            await self.session.release()
            return
        # An agent that goes away while it is told has ended the session too.
        with suppress(ConnectionLost):
            await self.session.close()


class AcpConversationTurn(ConversationTurn):
    """A prompt over ACP v1 as a stream of events."""

    __slots__ = ("_blocks", "_client", "_cost_before", "_here", "_meta", "_wire")

    def __init__(
        self,
        session: AcpSession,
        blocks: Sequence[Block],
        wire: Sequence[acp.ContentBlock],
        meta: dict[str, Any] | None = None,
    ) -> None:
        self._here = session
        self._meta = meta
        self._cost_before: Cost | None = None
        self._client = session.client
        self._blocks = blocks
        self._wire = wire
        super().__init__(session, self._client.connection.flow, self._client.budgets)

    def _send(self) -> Call:
        session = self._here
        session.new_turn()
        told = None if session.usage is None else session.usage.cost
        if told is not None:
            self._cost_before = Cost(told.amount, told.currency)
        elif session.began_here:
            self._cost_before = _NOTHING_SPENT
        request = acp.PromptRequest(session_id=session.id, prompt=self._wire, meta=self._meta)
        started = model.TurnStarted(
            *session.place.base(acp.SESSION_PROMPT.name, None), tuple(self._blocks)
        )
        self._client.prompting()
        call = self._client.connection.begin(
            acp.SESSION_PROMPT.name, Raw(acp.encode(request)), settle=self._settled
        )
        session.record.emit(started)
        self.put(started, 0)
        return call

    def _send_cancel(self) -> None:
        cancel = acp.CancelNotification(
            session_id=self.session.id, meta=self._client.cancel_meta(self._why)
        )
        self._client.connection.post(acp.SESSION_CANCEL.name, cancel)

    def _ended(self, outcome: Outcome, stop: str, failure: Failure | None) -> model.TurnEnded:
        base = self._here.place.base(acp.SESSION_PROMPT.name, self._line())
        return model.TurnEnded(*base, outcome, stop, failure)

    def _line(self) -> bytes | None:
        """The line that answered the prompt, with a result or an error."""
        return None if self._call is None else self._call.line

    def made(self, event: model.Event) -> None:
        self._here.record.tell(event)

    def _of_turn(self, usage: Usage) -> Usage:
        """An agent tells what the whole session has cost. What a session had cost that goes on is
        not known before it is told once."""
        cost, before = usage.cost, self._cost_before
        if cost is None:
            return usage
        if before is None:
            return replace(usage, cost=None)
        if before.unit == cost.unit and before.amount <= cost.amount:
            cost = Cost(cost.amount - before.amount, cost.unit)
        # Else the agent counts from nothing again, as one does that was started again.
        return replace(usage, cost=cost)

    def _settled(self, raw: Raw | None, error: DragomanError | None) -> None:
        if isinstance(error, CallCancelled) and self.cancelling:
            self._answered(self._ended(Outcome.CANCELLED, "cancelled", None))
            return
        if raw is not None:
            try:
                response = self._client.decode(acp.SESSION_PROMPT, raw)
            except DragomanError as invalid:
                error = invalid
            else:
                self._answered(translate.of_answer(response, self._here.place, self._line()))
        if error is not None:
            self.failed(self._client.explain(error))

    def _answered(self, ended: model.TurnEnded) -> None:
        if self._why is None:
            self.made(ended)
        self.conclude(ended)
