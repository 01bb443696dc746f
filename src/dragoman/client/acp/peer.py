"""The conversation API over ACP v1.

Owns the way from the typed client to events: sessions and turns here are those of `client`,
`session` and `turn` in this room, with events in place of updates. Nothing is sent or decided that
those do not send and decide.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Raw

from dragoman.client.acp.client import AcpClient
from dragoman.client.acp.session import Session
from dragoman.client.conversation import (
    Conversation,
    ConversationTurn,
    Opening,
    Peer,
    SessionSummary,
    blocks_of,
)
from dragoman.client.permissions import Answer, Denial, Question
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1 import meaning
from dragoman.errors import CallCancelled, DragomanError
from dragoman.events import model
from dragoman.events.parts import Block, Failure, PeerInfo
from dragoman.events.place import Place
from dragoman.events.words import Outcome
from dragoman.rpc import Call


class AcpPeer(Peer):
    """An agent that speaks ACP v1."""

    dialect = meaning.DIALECT

    def __init__(self, client: AcpClient, workspace: Path) -> None:
        self.client = client
        self.workspace = workspace
        self.on_event: Callable[[model.Event], None] | None = None
        self._numbers = itertools.count(1)
        self._source = model.Source(self.dialect, client.connection.name)
        agent = client.agent
        implementation = agent.agent_info
        self.info = (
            PeerInfo()
            if implementation is None
            else PeerInfo(implementation.name, implementation.title, implementation.version)
        )
        self.capabilities = meaning.capabilities(agent.agent_capabilities)
        self.auth_methods = tuple(
            meaning.auth_method(method, client.login_command(method))
            for method in agent.auth_methods
        )

    def place(self, session_id: str | None) -> Place:
        return Place(self._source, self._numbers, session_id)

    def emit(self, event: model.Event) -> None:
        if self.on_event is not None:
            self.on_event(event)

    async def open(self, opening: Opening) -> AcpConversation:
        client = self.client
        shared: dict[str, Any] = {
            "additional_directories": opening.additional_directories,
            "mcp_servers": opening.mcp_servers,
            "mode": opening.mode,
            "model": opening.model,
        }

        def make(client: AcpClient, id: str, cwd: Path, others: Sequence[Path]) -> AcpSession:
            return AcpSession(self, client, id, cwd, others)

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
        session.announce(opening)
        return AcpConversation(session)

    async def list_sessions(self, cwd: str | Path | None = None) -> AsyncIterator[SessionSummary]:
        async for info in self.client.list_sessions(cwd):
            yield SessionSummary(info.session_id, info.cwd, info.title, info.updated_at)

    async def aclose(self) -> None:
        await self.client.aclose()


class AcpSession(Session):
    """A session whose updates become events as they arrive."""

    __slots__ = ("_peer", "_turns", "events", "place")

    def __init__(
        self, peer: AcpPeer, client: AcpClient, id: str, cwd: Path, others: Sequence[Path] = ()
    ) -> None:
        super().__init__(client, id, cwd, others)
        self._peer = peer
        self._turns = itertools.count(1)
        self.place = peer.place(id)
        self.events: list[model.Event] = []
        """The replayed history."""

    def announce(self, opening: Opening) -> None:
        """Say that the session is there, and what its settings are."""
        base = self.place.base(f"session/{opening.how}", None)
        model_id = self.models.current_model_id if self.models else None
        self._peer.emit(model.SessionOpened(*base, opening.how, str(self.cwd), None, model_id))
        fields = meaning.settings(self.modes, self.config_options, self.models)
        if fields:
            base = self.place.base(f"session/{opening.how}", None)
            self._peer.emit(model.SettingsChanged(*base, **fields))

    def new_turn(self) -> None:
        self.place.turn = f"t{next(self._turns)}"
        self.place.replay = False

    def deliver(self, update: acp.SessionUpdate, line: bytes) -> None:
        self.apply(update)
        turn = self.turn
        self.place.replay = replay = self.replaying and turn is None
        for event in meaning.of_update(update, self.place, line):
            self._hand_over(event, len(line), replay)
        if turn is None:
            self.keep(update)

    def _hand_over(self, event: model.Event, size: int, replay: bool) -> None:
        self._peer.emit(event)
        if self.turn is not None:
            assert isinstance(self.turn, AcpConversationTurn)
            self.turn.event(event, size)
        elif replay:
            self.events.append(event)

    def asked(self, request: acp.RequestPermissionRequest, line: bytes) -> None:
        request_id = request.tool_call.tool_call_id
        for event in meaning.of_permission(request, request_id, self.place, line):
            self._hand_over(event, len(line), False)

    def answered(self, question: Question, answer: Answer, option_id: str | None) -> None:
        if self.turn is not None and not answer.allows and answer is not Answer.CANCEL:
            assert isinstance(self.turn, AcpConversationTurn)
            self.turn.denied(Denial(question.tool_call_id, question.title, question.kind))
        event = model.PermissionAnswered(
            *self.place.base("session/request_permission", None),
            question.tool_call_id,
            answer.allows,
            option_id,
            "cancel" if answer is Answer.CANCEL else "caller",
        )
        self._hand_over(event, 0, False)


class AcpConversation(Conversation):
    """A conversation with an agent that speaks ACP v1."""

    def __init__(self, session: AcpSession) -> None:
        self.session = session
        self.id = session.id

    @property
    def replayed(self) -> Sequence[model.Event]:  # type: ignore[override]
        return self.session.events

    def prompt(self, prompt: str | Block | Sequence[Block]) -> ConversationTurn:
        blocks = blocks_of(prompt)
        wire = [meaning.to_block(block) for block in blocks]
        self.session.client.require_content(wire)
        return AcpConversationTurn(self.session, blocks, wire)

    async def set_mode(self, mode_id: str) -> None:
        await self.session.set_mode(mode_id)

    async def set_model(self, model_id: str) -> None:
        await self.session.set_model(model_id)

    async def set_option(self, option_id: str, value: str | bool) -> None:
        await self.session.set_config_option(option_id, value)

    async def close(self) -> None:
        if self.session.client.connection.failure is None:
            await self.session.close()
        else:
            await self.session.release()


class AcpConversationTurn(ConversationTurn):
    """A prompt over ACP v1 as a stream of events."""

    __slots__ = ("_blocks", "_client", "_here", "_wire")

    def __init__(
        self,
        session: AcpSession,
        blocks: Sequence[Block],
        wire: Sequence[acp.ContentBlock],
    ) -> None:
        self._here = session
        self._client = session.client
        self._blocks = blocks
        self._wire = wire
        super().__init__(session, self._client.connection.flow, self._client.budgets)

    def _send(self) -> Call:
        session = self._here
        session.new_turn()
        request = acp.PromptRequest(session_id=session.id, prompt=self._wire)
        started = model.TurnStarted(
            *session.place.base("session/prompt", None), tuple(self._blocks)
        )
        call = self._client.connection.begin(
            acp.SESSION_PROMPT.name, Raw(acp.encode(request)), settle=self._settled
        )
        session._peer.emit(started)
        self.put(started, 0)
        return call

    def _send_cancel(self) -> None:
        self._client.connection.post(
            acp.SESSION_CANCEL.name, acp.CancelNotification(session_id=self.session.id)
        )

    def _ended(self, outcome: Outcome, stop: str, failure: Failure | None) -> model.TurnEnded:
        base = self._here.place.base("session/prompt", None)
        return model.TurnEnded(*base, outcome, stop, failure)

    def made(self, event: model.Event) -> None:
        self._here._peer.emit(event)

    def _settled(self, raw: Raw | None, error: DragomanError | None) -> None:
        if isinstance(error, CallCancelled) and self.cancelling:
            cancelled = self._ended(Outcome.CANCELLED, "cancelled", None)
            if self._why is None:
                self.made(cancelled)
            self.conclude(cancelled)
            return
        if raw is not None:
            try:
                response = self._client.decode(acp.SESSION_PROMPT, raw)
            except DragomanError as invalid:
                error = invalid
            else:
                ended = meaning.of_answer(response, self._here.place, bytes(raw))
                self._here._peer.emit(ended)
                self.conclude(ended)
        if error is not None:
            self.failed(self._client.explain(error))
