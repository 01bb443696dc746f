"""Typed client for an agent that speaks ACP v1.

Does the handshake, keeps capabilities and sessions, and translates wire errors. `open` starts
programs, `turn` follows turns, `inbound` answers the agent's requests, `options` defines what the
client offers, and `login` describes how a user logs in.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from dragoman.client.acp.inbound import Elicit, Elsewhere, InboundHandlers
from dragoman.client.acp.options import ClientOptions, connection_settings
from dragoman.client.acp.session import Session
from dragoman.client.base import BaseClient, Cursor, EventFeed, call_in_order
from dragoman.client.file_guard import decide_with
from dragoman.client.folders import absolute
from dragoman.client.permissions import Permit
from dragoman.client.results import add_stderr, stderr_since, stderr_size
from dragoman.dialects import discovery
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1 import translate
from dragoman.dialects.acp.v1.codec import decoder
from dragoman.dialects.acp.v1.methods import Gate, Method
from dragoman.errors import (
    DragomanError,
    InvalidAnswer,
    RemoteError,
    Unsupported,
    UsageError,
)
from dragoman.rpc import Connection, End, Handlers
from dragoman.transports.base import Stream
from dragoman.wire import codes
from dragoman.wire.messages import UNDECODABLE
from dragoman.wire.peer import Stray

if TYPE_CHECKING:
    from dragoman.client.acp.event_source import EventSource

log: Final = logging.getLogger("dragoman.client")

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")


class AcpClient(BaseClient[Session]):
    """Drives one agent over one stream. Use with ``async with``."""

    def __init__(
        self,
        stream: Stream | Connection,
        options: ClientOptions | None = None,
        *,
        launch: Sequence[str] = (),
    ) -> None:
        """A connection passed instead of a stream must already be started, with
        `connection_settings`; the client takes it over. `launch` is the command line that started
        the agent, for login hints."""
        self.options = options or ClientOptions()
        super().__init__(self.options)
        self._launch = tuple(launch)
        self._decoders: dict[str, Callable[[Raw], Any]] = {}
        self.agent = acp.InitializeResponse(protocol_version=0)
        """What the agent reported about itself in the handshake."""
        self._stderr_before = 0
        self.hello = Raw(b"")
        """The agent's response to the handshake, as received."""
        self._serving = InboundHandlers(self.conversations, self.options)
        self._taken_over = isinstance(stream, Connection)
        if isinstance(stream, Connection):
            self.connection = stream
            stream.hand_to(self._serving)
        else:
            settings = connection_settings(self.options.max_line_size)
            self.connection = Connection(stream, End.CLIENT, self._serving, settings=settings)
        # Without `events` these are sessions of the typed client.
        self.events: EventSource | None = None
        self.feed = EventFeed(translate.DIALECT, self.connection)

    # -- start and end

    async def start(self) -> None:
        """Start reading and do the handshake. ``async with`` does this."""
        if not self._taken_over:
            self.connection.start()
        request = acp.InitializeRequest(
            protocol_version=acp.PROTOCOL_VERSION,
            client_info=acp.Implementation(
                name=self.options.name,
                title=self.options.title,
                version=self.options.version,
            ),
            client_capabilities=self.options.offered(),
        )
        sent = Raw(acp.encode(request))
        try:
            raw = await self._translated(
                self.connection.call(acp.INITIALIZE.name, sent, timeout=self.budgets.initialize)
            )
        except RemoteError as error:
            from dragoman.client import handshake_errors

            if self._serving.greeting == sent:
                raise handshake_errors.only_repeats() from None
            if error.code == codes.UNSUPPORTED_VERSION:
                raise handshake_errors.refused_version(error) from error
            raise
        self.hello = raw
        try:
            self.agent = acp.INITIALIZE.decode_result(raw)
            version = str(self.agent.protocol_version)
        except msgspec.ValidationError as error:
            version = str(error)
        goes_on = self.options.any_version and version.isdigit()
        if version != str(acp.PROTOCOL_VERSION) and not goes_on:
            from dragoman.client import handshake_errors

            raise handshake_errors.other_version(version, discovery.of_text(raw))

    # -- what the agent can do

    def can(self, capability: str) -> bool:
        """Return whether the agent advertised a capability, given by its dotted name on the
        wire."""
        return Gate("agent", (capability,)).is_open(self.agent.agent_capabilities)

    def require(self, capability: str, what: str) -> None:
        """Raise `Unsupported` (the agent cannot `what`) unless the agent advertised this
        capability."""
        if not self.can(capability):
            raise Unsupported(f"the agent cannot {what}: it does not advertise {capability}")

    def require_content(self, blocks: Sequence[acp.ContentBlock]) -> None:
        """Raise `Unsupported` if a block needs a capability that the agent did not advertise."""
        for block in blocks:
            match block:
                case acp.ImageContent():
                    self.require("promptCapabilities.image", "accept images in a prompt")
                case acp.AudioContent():
                    self.require("promptCapabilities.audio", "accept audio in a prompt")
                case acp.EmbeddedResource():
                    self.require(
                        "promptCapabilities.embeddedContext",
                        "accept embedded resources in a prompt",
                    )
                case _:
                    pass

    # -- authentication

    async def authenticate(self, method_id: str) -> None:
        """Let the agent log in by one of its own methods. No secret is sent. Raises `UsageError` if
        the method is unknown or runs in a terminal."""
        method = next((m for m in self.agent.auth_methods if m.id == method_id), None)
        if method is None:
            known = ", ".join(m.id for m in self.agent.auth_methods) or "none"
            raise UsageError(f"the agent has no login method {method_id!r}; it has {known}")
        if isinstance(method, acp.AuthMethodTerminal):
            raise UsageError(
                f"the login method {method_id!r} runs in a terminal: {self.login_command(method)}"
            )
        # A login may take as long as the user needs.
        await self.ask(acp.AUTHENTICATE, acp.AuthenticateRequest(method_id=method_id), timeout=None)

    async def logout(self) -> None:
        """Log out of the agent."""
        self.require("auth.logout", "log out")
        await self.ask(acp.LOGOUT, acp.LogoutRequest())

    def login_command(self, method: acp.AuthMethod) -> str | None:
        """Return the command a user can run to log in; None if unknown. It is never run here."""
        from dragoman.client.acp import login

        return login.command(method, self._launch)

    # -- sessions

    @property
    def sessions(self) -> Sequence[Session]:
        """The sessions that are open on this connection."""
        return tuple(self.conversations.values())

    async def new_session(
        self,
        cwd: str | Path,
        *,
        additional_directories: Sequence[str | Path] = (),
        mcp_servers: Sequence[acp.McpServer] = (),
        mode: str | None = None,
        model: str | None = None,
        meta: dict[str, Any] | None = None,
    ) -> Session:
        """Open a session in a directory, and set its mode and model if given."""
        root, others = self._roots(cwd, additional_directories, mcp_servers)
        request = acp.NewSessionRequest(**_placed(root, others, mcp_servers, meta))
        session = await self._open(acp.SESSION_NEW, request, root, others)
        return await self._prepare(session, mode, model)

    async def load_session(
        self,
        session_id: str,
        cwd: str | Path,
        *,
        additional_directories: Sequence[str | Path] = (),
        mcp_servers: Sequence[acp.McpServer] = (),
        mode: str | None = None,
        model: str | None = None,
        on_update: Callable[[acp.SessionUpdate], None] | None = None,
        meta: dict[str, Any] | None = None,
    ) -> Session:
        """Open an earlier session with its history, which is then in `Session.replayed`.

        If the agent replays after its response, the first prompt waits for the replay.
        """
        self.require("loadSession", "load sessions")
        root, others = self._roots(cwd, additional_directories, mcp_servers)
        self.require_new(session_id)
        session = Session(self, session_id, root, others, self.events)
        session.on_update = on_update
        session.replaying = True

        def opened(response: acp.LoadSessionResponse) -> None:
            session.answer_meta = response.meta
            session.opened(response.modes, response.models, response.config_options)
            session.replay_answered()

        placed = _placed(root, others, mcp_servers, meta)
        request = acp.LoadSessionRequest(session_id=session_id, **placed)
        return await self._reopen(session, acp.SESSION_LOAD, request, opened, mode, model)

    async def resume_session(
        self,
        session_id: str,
        cwd: str | Path,
        *,
        additional_directories: Sequence[str | Path] = (),
        mcp_servers: Sequence[acp.McpServer] = (),
        mode: str | None = None,
        model: str | None = None,
        meta: dict[str, Any] | None = None,
    ) -> Session:
        """Open an earlier session without replaying its history."""
        self.require("sessionCapabilities.resume", "resume sessions")
        root, others = self._roots(cwd, additional_directories, mcp_servers)
        self.require_new(session_id)
        session = Session(self, session_id, root, others, self.events)

        def opened(response: acp.ResumeSessionResponse) -> None:
            session.answer_meta = response.meta
            session.opened(response.modes, response.models, response.config_options)

        placed = _placed(root, others, mcp_servers, meta)
        request = acp.ResumeSessionRequest(session_id=session_id, **placed)
        return await self._reopen(session, acp.SESSION_RESUME, request, opened, mode, model)

    async def fork_session(
        self,
        session_id: str,
        cwd: str | Path,
        *,
        additional_directories: Sequence[str | Path] = (),
        mcp_servers: Sequence[acp.McpServer] = (),
        mode: str | None = None,
        model: str | None = None,
        meta: dict[str, Any] | None = None,
    ) -> Session:
        """Open a copy of a session under a new id; unstable in the protocol, so the client's
        options need `unstable=True`."""
        if not self.options.unstable:
            raise UsageError("forking is not stable in the protocol: pass unstable=True")
        self.require("sessionCapabilities.fork", "fork sessions")
        from dragoman.dialects.acp.v1.unstable.sessions import ForkSessionRequest

        root, others = self._roots(cwd, additional_directories, mcp_servers)
        fork_session = acp.method_table(unstable=True).request("session/fork")
        assert fork_session is not None
        placed = _placed(root, others, mcp_servers, meta)
        request = ForkSessionRequest(session_id=session_id, **placed)
        session = await self._open(fork_session, request, root, others)
        return await self._prepare(session, mode, model)

    async def list_sessions(self, cwd: str | Path | None = None) -> AsyncIterator[acp.SessionInfo]:
        """Yield the sessions that the agent lists, fetched page by page; with `cwd`, those of that
        directory."""
        self.require("sessionCapabilities.list", "list sessions")
        folder = None if cwd is None else str(absolute(cwd))
        cursor = Cursor("sessions")
        while not cursor.over:
            page = await self.ask(
                acp.SESSION_LIST, acp.ListSessionsRequest(cwd=folder, cursor=cursor.value)
            )
            for info in page.sessions:
                yield info
            cursor.advance(page.next_cursor)

    async def delete_session(self, session_id: str) -> None:
        """Remove a session from the agent's list."""
        self.require("sessionCapabilities.delete", "delete sessions")
        await self.ask(acp.SESSION_DELETE, acp.DeleteSessionRequest(session_id=session_id))

    # -- extensions

    async def call_extension(
        self, method: str, params: Any, *, timeout: float | None | UnsetType = UNSET
    ) -> Any:
        """Call an extension method of the agent (`_…`) and return the decoded result.

        `timeout` defaults to the budget for a request; None means no limit.
        """
        budget = self.budgets.request if isinstance(timeout, UnsetType) else timeout
        raw = await self._translated(
            self.connection.call(_extension(method), params, timeout=budget)
        )
        try:
            return msgspec.json.decode(raw)
        except UNDECODABLE as error:
            raise InvalidAnswer(f"invalid response to {method}: {error}") from error

    async def notify_extension(self, method: str, params: Any) -> None:
        """Send an extension notification to the agent."""
        await self.connection.notify(_extension(method), params)

    # -- for the other modules of this package

    def watch_with(self, record: EventSource) -> None:
        """Pass everything received from now on to `record`, which turns it into events."""
        self.events = self.feed = record
        self._serving.watch = record
        self.connection.on_answer = record.answered
        self.connection.on_end = record.emit_over

    def permit_with(self, permit: Permit) -> None:
        """Use another permission callback, also in a guard derived from the present one."""
        if not decide_with(self._serving.guard, permit):
            self._serving.permit = permit

    def elicit_with(self, elicit: Elicit) -> None:
        """Use another callback for questions to the user from now on."""
        self._serving.elicit = elicit

    def serve_with(self, elsewhere: Elsewhere | None) -> None:
        """Route file and terminal requests to `elsewhere`. Those that it declines, or all if it is
        None, are served here."""
        self._serving.elsewhere = elsewhere

    def relay_with(self, make: Callable[[Handlers], Handlers]) -> None:
        """Use the handlers that `make` returns for all further incoming messages.

        `make` gets the client's own handlers as a fallback.
        """
        self.connection.hand_to(make(self._serving))

    def shelter(
        self, session_id: str, cwd: Path, additional_directories: Sequence[Path] = ()
    ) -> Session:
        """Register a session that was opened and is followed elsewhere.

        Only its file and terminal requests are served here.
        """
        self.require_new(session_id)
        session = Session(self, session_id, cwd, additional_directories)
        self.conversations[session_id] = session
        return session

    def ask(
        self, method: Method[P, R], params: P, *, timeout: float | None | UnsetType = UNSET
    ) -> Coroutine[Any, Any, R]:
        """Call a method of the protocol and return its decoded result. `timeout` defaults to the
        budget for a request; None means no limit."""
        name = method.name
        decode = self._decoders.get(name)
        if decode is None:
            decode = self._decoders[name] = decoder(method.result)
        return self.connection.ask(
            name,
            params,
            decode,
            timeout=self.budgets.request if isinstance(timeout, UnsetType) else timeout,
            explain=self.explain,
        )

    async def ask_then(
        self,
        method: Method[P, R],
        params: P,
        then: Callable[[R], T],
        *,
        timeout: float | None | UnsetType = UNSET,
        undo: Callable[[R], None] | None = None,
    ) -> T:
        """Like `ask`, but return what `then` makes of the result. `then` is called while the
        response is being read, before any later message.

        If the result comes too late for the caller, `undo` is called with it instead.
        """

        def undo_raw(raw: Raw) -> None:
            assert undo is not None
            try:
                undo(self.decode(method, raw))
            except InvalidAnswer as error:
                log.debug("the late response is invalid and cannot be undone: %s", error)

        return await call_in_order(
            self.connection,
            method.name,
            params,
            lambda call, raw: then(self.decode(method, raw)),
            timeout=self.budgets.request if isinstance(timeout, UnsetType) else timeout,
            explain=self.explain,
            undo=None if undo is None else undo_raw,
        )

    def decode(self, method: Method[P, R], raw: Raw) -> R:
        try:
            return method.decode_result(raw)
        except msgspec.ValidationError as error:
            raise InvalidAnswer(f"invalid response to {method.name}: {error}") from error

    def explain(self, error: DragomanError) -> DragomanError:
        """Return the error to raise instead of `error`: `AuthRequired` for a missing login, an
        internal error with the end of the agent's stderr output, and any other unchanged."""
        if isinstance(error, RemoteError):
            stream, before = self.connection.stream, self._stderr_before
            error = add_stderr(error, lambda: stderr_since(stream, before))
        if isinstance(error, RemoteError) and error.code == codes.AUTH_REQUIRED:
            from dragoman.client.acp import login

            return login.required(
                error, self.agent.auth_methods, self._launch, self.options.login_hint
            )
        return error

    def prompting(self) -> None:
        """Called before a prompt is sent: stderr output from now on is attributed to that
        prompt."""
        self._stderr_before = stderr_size(self.connection.stream)
        self._serving.stray = None

    @property
    def stray(self) -> Stray | None:
        return self._serving.stray

    def cancel_meta(self, why: DragomanError | None) -> dict[str, Any] | None:
        """Return the `_meta` of a cancel notification; `why` is None if the user cancelled. Returns
        None here, because an agent cannot use the reason; a broker's client overrides this."""
        return None

    # -- inside

    async def _translated(self, answer: Any) -> Raw:
        try:
            raw: Raw = await answer
            return raw
        except RemoteError as error:
            explained = self.explain(error)
            if explained is error:
                raise
            raise explained from error

    async def _open(
        self,
        method: Method[Any, Any],
        request: Any,
        root: Path,
        others: Sequence[Path],
    ) -> Session:
        """Call a method whose response has the id of the session that it opened, and return that
        session."""
        made: list[Session] = []

        def opened(response: Any) -> None:
            if response.session_id in self.conversations:
                raise InvalidAnswer(
                    f"the agent returned {response.session_id!r}, the id of an open session"
                )
            session = Session(self, response.session_id, root, others, self.events)
            session.began_here = method is acp.SESSION_NEW
            session.answer_meta = response.meta
            session.opened(response.modes, response.models, response.config_options)
            made.append(session)
            self._serving.adopt(session)

        def undo(response: Any) -> None:
            session = made[0] if made else Session(self, response.session_id, root, others)
            self._close_unused(session)

        timeout = self.budgets.session
        try:
            with self._serving.early.expecting():
                await self.ask_then(method, request, opened, timeout=timeout, undo=undo)
        except BaseException:
            for session in made:
                self.forget(session)
            raise
        return made[0]

    async def _reopen(
        self,
        session: Session,
        method: Method[P, R],
        request: P,
        opened: Callable[[R], None],
        mode: str | None,
        model: str | None,
    ) -> Session:
        """Call a method that opens a session whose id is already known, and return the session."""
        self._serving.adopt(session)

        def undo(response: R) -> None:
            self._close_unused(session)

        try:
            await self.ask_then(method, request, opened, timeout=self.budgets.session, undo=undo)
        except BaseException:
            # The agent may have started commands for it already.
            await session.release()
            raise
        return await self._prepare(session, mode, model)

    async def _prepare(self, session: Session, mode: str | None, model: str | None) -> Session:
        try:
            await session.prepare(mode=mode, model=model)
        except DragomanError:
            # The caller never gets this session, so it must be closed here.
            with contextlib.suppress(DragomanError):
                await session.close()
            raise
        except BaseException:
            self._close_unused(session)
            raise
        return session

    def _close_unused(self, session: Session) -> None:
        """Close a session in the background, because its caller was cancelled or gave up."""
        if self.conversations.get(session.id, session) is session:
            self.forget(session)
            if self.connection.failure is None:
                work = _closed(session)
                self.connection.tasks.start(work, "close a session that nothing uses")

    def _roots(
        self,
        cwd: str | Path,
        additional_directories: Sequence[str | Path],
        mcp_servers: Sequence[acp.McpServer],
    ) -> tuple[Path, tuple[Path, ...]]:
        if additional_directories:
            self.require("sessionCapabilities.additionalDirectories", "use additional directories")
        for server in mcp_servers:
            match server:
                case acp.McpServerHttp():
                    self.require("mcpCapabilities.http", "reach MCP servers over HTTP")
                case acp.McpServerSse():
                    self.require("mcpCapabilities.sse", "reach MCP servers over SSE")
                case _:
                    pass
        return absolute(cwd), tuple(absolute(path) for path in additional_directories)


async def _closed(session: Session) -> None:
    if session.id in session.client.conversations:
        # It was opened again in the meantime.
        return
    try:
        await session.close()
    except DragomanError as error:
        log.debug("could not close session %s at the agent: %s", session.id, error)


def _placed(
    root: Path,
    others: Sequence[Path],
    mcp_servers: Sequence[acp.McpServer],
    meta: dict[str, Any] | None,
) -> dict[str, Any]:
    """Return the params common to every request that opens a session."""
    return {
        "cwd": str(root),
        "additional_directories": [str(path) for path in others],
        "mcp_servers": mcp_servers,
        "meta": meta,
    }


def _extension(method: str) -> str:
    if not method.startswith("_"):
        raise UsageError(f"an extension method must begin with an underscore: {method!r}")
    return method
