"""Peers and sessions of the conversation API for the legacy dialects.

Opens and lists sessions, changes their modes and logs in with the keyed dialect. Requests that a
dialect cannot express are refused before anything is sent. `client` has the connection, `turn` the
turns.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from dragoman.client.base import ClientPeer, Cursor, EventConversation, WorkspaceServices
from dragoman.client.conversation import Opening, SessionSummary, blocks_of
from dragoman.client.file_guard import decide_with
from dragoman.client.legacy.client import DocumentClient
from dragoman.client.legacy.content import prompt_blocks, servers
from dragoman.client.legacy.method_names import NONE
from dragoman.client.legacy.turn import DocumentTurn, is_no_login
from dragoman.client.permissions import Permit, require_permit
from dragoman.dialects import discovery
from dragoman.dialects.legacy.base import Listed, SessionOptions
from dragoman.dialects.legacy.keyed import shapes as keyed
from dragoman.errors import (
    AuthRequired,
    InvalidAnswer,
    ProtocolMismatch,
    RemoteError,
    Unsupported,
    UsageError,
)
from dragoman.events import model
from dragoman.events.parts import Block
from dragoman.wire import codes

if TYPE_CHECKING:
    from dragoman.client.services.terminals import Terminals


NO_LOGIN: Final = "none"
"""The keyed dialect's value for an agent that needs no login."""


class DocumentPeer(ClientPeer):
    """An agent that speaks one of the legacy dialects. `use_peer` and `open_peer` start it;
    otherwise call `start`."""

    client: DocumentClient

    def __init__(self, client: DocumentClient, workspace: Path) -> None:
        super().__init__(client, client, workspace)
        self.dialect = client.end.name
        self._take_over()

    def _take_over(self) -> None:
        end = self.client.end
        self.info = end.info
        self.capabilities = end.capabilities
        self.auth_methods = end.auth_methods
        if self.client.method_names.known("list") == NONE:
            self.capabilities = replace(self.capabilities, list=False, load=False)

    async def start(self) -> None:
        await super().start()
        self._take_over()

    async def prove(self) -> None:
        """Raise a `DragomanError`, usually `ProtocolMismatch` or `RemoteError`, unless the agent
        proves that it speaks this dialect, which may have no handshake."""
        client = self.client
        if client.hello is not None:
            found = discovery.of_text(client.hello)
            if found is None:
                raise ProtocolMismatch(
                    "the program answered the handshake, but its response is not that of an agent"
                )
            if (client.end.name, found) == (discovery.ONESHOT, discovery.TAGGED):
                # A tagged agent may accept any text as a version, even the date of oneshot.
                raise ProtocolMismatch(f"the agent speaks {found}", dialect=found)
        await self._learn_names()
        proof = client.end.proof(str(self.workspace))
        if proof is not None:
            concept, messages, read = proof
            await client.ask_any(concept, messages, read, timeout=client.budgets.initialize)

    def answer_with(self, permit: Permit) -> None:
        require_permit(permit)
        if not decide_with(self.client.options.guard, permit):
            super().answer_with(permit)

    # -- sessions

    async def open(self, opening: Opening) -> DocumentConversation:
        end = self.client.end
        self._require(opening)
        await self._learn_names()
        if end.loads_from_list and opening.session_id is not None:
            self.require(self.capabilities.list, "list its sessions")
            await self._find(opening.session_id)
        if opening.session_id is not None:
            self.client.require_new(opening.session_id)
        options = SessionOptions(
            str(opening.cwd),
            opening.mode,
            opening.model,
            servers(opening.mcp_servers),
            opening.metadata,
        )
        messages = end.opening(opening.session_id, options)
        if not messages:
            return self._opened(opening, None)
        made: list[DocumentConversation] = []
        if opening.session_id is not None:
            # The history comes before the response, so the conversation must already exist.
            early = DocumentConversation(self, opening.session_id, opening.cwd)
            early.place.replay = True
            made.append(early)
            self.client.adopt(early)

        def opened(raw: Raw) -> DocumentConversation:
            made.append(self._opened(opening, raw))
            return made[-1]

        concept = "create" if opening.session_id is None else opening.how
        try:
            with self.client.early.expecting():
                return await self.client.ask_any(
                    concept, messages, opened, timeout=self.client.budgets.session
                )
        except BaseException as error:
            # A caller that is cancelled just after the response was read never gets the session.
            for conversation in made:
                # The agent may have started commands for it already.
                await conversation.close()
            if isinstance(error, RemoteError) and self._wants_login(error):
                raise self._login_required(error) from error
            raise

    def _wants_login(self, error: RemoteError) -> bool:
        return error.code == codes.AUTH_REQUIRED and not is_no_login(error)

    def _login_required(self, error: RemoteError) -> AuthRequired:
        named = [method.id for method in self.auth_methods if method.id != NO_LOGIN]
        hint = f"log in first, with {' or '.join(named)}" if named else "log in to the agent first"
        return AuthRequired(error.message, methods=self.auth_methods, hint=hint, data=error.data)

    def _require(self, opening: Opening) -> None:
        can = self.capabilities
        for how, able in (("load", can.load), ("resume", can.resume), ("fork", can.fork)):
            if opening.how == how:
                self.require(able, f"{how} a session")
        supported = self.client.end.opens_with
        for option, given in (
            ("mode", opening.mode),
            ("model", opening.model),
            ("mcp_servers", opening.mcp_servers),
            ("additional_directories", opening.additional_directories),
            ("metadata", opening.metadata),
        ):
            if given and option not in supported:
                self.require(False, f"take {option.replace('_', ' ')} for a session")
        if opening.mode is not None:
            self.require(can.set_mode, "switch modes")

    def _opened(self, opening: Opening, raw: Raw | None) -> DocumentConversation:
        """Create the conversation, or reuse an open one, and emit its first events. This happens as
        soon as the response arrives, before later messages are read."""
        client = self.client
        if opening.session_id in client.conversations:
            client.conversations[opening.session_id].place.replay = False
        # Before the events of the response: events are numbered in the order of emission.
        number = next(client.numbers)
        told_id, events = client.end.opened(raw, opening.session_id, opening.how, client.place_of)
        session_id = _new_id(self.dialect) if told_id is None else told_id
        conversation = client.conversations.get(session_id)
        if conversation is not None and opening.session_id is None:
            raise InvalidAnswer(f"the agent returned {session_id!r}, the id of an open session")
        if conversation is None:
            conversation = DocumentConversation(self, session_id, opening.cwd)
            conversation.implicit = told_id is None
            client.adopt(conversation)
        how = opening.how if raw is not None or opening.session_id else "implicit"
        told = model.SessionOpened(
            client.source,
            number,
            session_id,
            None,
            opening.how,
            client.answer,
            False,
            how,
            str(opening.cwd),
        )
        for event in (told, *events):
            client.deliver(client.of_answer(event), 0)
        if opening.model is not None:
            # No legacy dialect reports the model. An agent that opens a session with a model has
            # thereby accepted it.
            base = conversation.place.base(opening.how, None)
            client.deliver(model.SettingsChanged(*base, model=opening.model), 0)
        return conversation

    async def _learn_names(self) -> None:
        """Find out which method names the agent knows, by listing sessions: that changes nothing at
        the agent. Updates `capabilities`. Does nothing if the names are known."""
        client = self.client
        if (
            client.end.capabilities.list is not None
            or client.method_names.known("list") is not None
        ):
            return
        # A refusal of a known method proves as much as a response.
        with contextlib.suppress(RemoteError):
            await self._page(None)
        known = client.method_names.known("list")
        able = None if known is None else known != NONE
        self.capabilities = replace(self.capabilities, list=able, load=able)

    async def _find(self, session_id: str) -> None:
        async for summary in self.list_sessions():
            if summary.id == session_id:
                return
        raise UsageError(f"the agent does not list a session {session_id!r}")

    async def _page(self, cursor: str | None) -> tuple[Sequence[Listed], str | None]:
        client = self.client
        messages = client.end.listing(cursor)
        if not messages:
            raise Unsupported(f"an agent of the {self.dialect} dialect cannot list its sessions")
        return await client.ask_any(
            "list", messages, client.end.listed, timeout=client.budgets.request
        )

    async def list_sessions(self, cwd: str | Path | None = None) -> AsyncIterator[SessionSummary]:
        # No legacy dialect reports the directory of a session, so all are listed.
        self.require(self.capabilities.list, "list its sessions")
        cursor = Cursor("sessions")
        while not cursor.over:
            page, following = await self._page(cursor.value)
            for entry in page:
                yield SessionSummary(
                    entry.id,
                    None,
                    entry.title,
                    entry.updated_at,
                    entry.created_at,
                    entry.status,
                )
            cursor.advance(following)


class KeyedPeer(DocumentPeer):
    """An agent that speaks the keyed dialect, which supports passwords and tokens."""

    async def authenticate(
        self, method_id: str, *, password: str | None = None, token: str | None = None
    ) -> None:
        """Log in. A secret is sent only if it is passed here; none is looked up anywhere."""
        known = [each.id for each in self.auth_methods]
        if method_id not in known:
            names = ", ".join(known) or "none"
            raise UsageError(f"the agent has no login method {method_id!r}; it has {names}")
        body = keyed.Authenticate(method_id, password, token)
        secrets = [msgspec.json.encode(text)[1:-1] for text in (password, token) if text]
        self.client.secrets += secrets
        await self.client.ask(
            (keyed.AUTHENTICATE, body), lambda raw: None, timeout=self.client.budgets.request
        )
        # Without a raw message: the sent message contains the secret.
        base = self.client.place_of(None).base(keyed.AUTHENTICATE, None)
        self.client.deliver(model.LoginChanged(*base, True), 0)


def _new_id(dialect: str) -> str:
    """Return an id for a session of a dialect without session ids. It is unique among all
    processes: a stored session must not be mistaken for a later one."""
    return f"{dialect}-{os.urandom(8).hex()}"


class DocumentConversation(EventConversation, WorkspaceServices):
    """One session with an agent that speaks a legacy dialect."""

    client: DocumentClient
    turn: DocumentTurn | None
    queued: DocumentTurn | None = None
    """The turn of this session that waits for the turns of other sessions, if any."""

    def __init__(self, peer: DocumentPeer, session_id: str, cwd: Path) -> None:
        EventConversation.__init__(self, peer.client, session_id)
        WorkspaceServices.__init__(self, cwd)
        self.modes: tuple[str, ...] = ()
        self.peer = peer
        self.place = self.client.place(session_id)
        self._turns = itertools.count(1)
        self.serving = 0
        """Number of the agent's file and terminal requests that are being served."""

    # -- prompting

    def prompt(self, prompt: str | Block | Sequence[Block]) -> DocumentTurn:
        blocks = blocks_of(prompt)
        wire = prompt_blocks(blocks, self.client.end, self.peer.capabilities)
        return DocumentTurn(self, blocks, self.client.end.prompting(self.id, wire))

    @property
    def takes_turns(self) -> bool:
        """Whether a turn waits for the turns of other sessions: the agent accepts only one request
        at a time, or its messages do not name their session."""
        return self.implicit or self.client.end.half_duplex

    def new_turn(self) -> None:
        self.place.turn = f"t{next(self._turns)}"
        self.client.active = self

    # -- settings

    async def set_mode(self, mode_id: str) -> None:
        client = self.client
        self.peer.require(self.peer.capabilities.set_mode, "switch modes")
        if self.modes and mode_id not in self.modes:
            raise Unsupported(f"the agent has no mode {mode_id!r}; it has {', '.join(self.modes)}")
        message = client.end.setting_mode(self.id, mode_id)
        assert message is not None
        await client.ask(message, lambda raw: None, timeout=client.budgets.request)
        base = self.place.base(message[0], None)
        client.deliver(model.SettingsChanged(*base, mode=mode_id), 0)

    async def set_model(self, model_id: str) -> None:
        self.peer.require(False, "switch the model of an open session")

    async def set_option(self, option_id: str, value: str | bool) -> None:
        self.peer.require(False, "set options")

    # -- the end

    async def close(self) -> None:
        """Cancel the running turn, if any, and forget the session here; no legacy dialect can end a
        session at the agent."""
        terminals = self.let_go()
        if terminals is not None:
            await terminals.aclose()

    def let_go(self) -> Terminals | None:
        if self.turn is not None and self.client.connection.failure is None:
            self.turn.cancel()
        # Its events would not be delivered. It may still wait for other turns.
        self.unusable = True
        self.client.forget(self)
        self.cancel_questions()
        return self._terminals

    # -- for the client

    def deliver(self, event: model.Event, size: int) -> None:
        if isinstance(event, model.SettingsChanged) and isinstance(event.modes, tuple):
            self.modes = tuple(mode.id for mode in event.modes)
        if event.replay:
            self.replayed.append(event)
        elif self.turn is not None:
            self.turn.happened(event, size)

    async def wait_replayed(self) -> None:
        """Return at once: the history is complete when the session is open."""
