"""Serve one client: the protocol side of an agent.

Holds the state of one connection: the handshake, its sessions, the turn of each. Cancels and
requests for other sessions are read while a prompt runs. The agent's work is done by the handlers
of an `Agent`.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path, PureWindowsPath
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec import Raw

from dragoman.agent import checks, commands
from dragoman.agent.session import Session
from dragoman.agent.settings import MODE_OPTION
from dragoman.agent.speech import (
    AcpSpeech,
    Speech,
    choose,
    decode_new,
    recognise,
    refutes,
    speech_of,
)
from dragoman.agent.sync_handlers import run_handler, run_in_thread, run_to_end
from dragoman.agent.turn import Turn
from dragoman.dialects import discovery
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1.codec import decoder
from dragoman.dialects.acp.v1.handshake import version_note
from dragoman.dialects.acp.v1.methods import Method
from dragoman.dialects.acp.v1.shape import ours_in
from dragoman.errors import ConnectionLost, Overflow, RemoteError
from dragoman.errors.usage import alternatives, shown
from dragoman.rpc import Connection, HandlerLane, boundary
from dragoman.wire import codes
from dragoman.wire.messages import Notification, Request
from dragoman.wire.peer import Noise, Stray

if TYPE_CHECKING:
    from dragoman.agent.agent import Agent
    from dragoman.agent.speech.base import DocumentSpeech

log: Final = logging.getLogger("dragoman.agent")

CANCEL_GRACE: Final = 5.0
"""Seconds that a cancelled handler may take to end before its request is answered without it."""

P = TypeVar("P")
R = TypeVar("R")

Serve: TypeAlias = Callable[[Any], Any]
"""Answers a request, given its params, or returns a coroutine that does."""

Served: TypeAlias = dict[str, tuple[Callable[[Raw], Any], Serve]]
"""Methods by name, each with the decoder for its params and its handler."""


class Server:
    """Handles what the client of one connection sends."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._handlers = agent.handlers
        self._connection: Connection | None = None
        self._client: acp.InitializeRequest | None = None
        self._acp: Speech | None = None
        self._document: DocumentSpeech | None = None
        """The client's dialect, if it is not ACP."""
        self._told: HandlerLane[tuple[Callable[..., Any], Any]] | None = None
        self._sessions: dict[str, Session] = {}
        self._requests: Served = {}
        self._open: Served = {}
        """The methods that may be called now: all of them after an ACP handshake and none
        before, so that the usual request needs only one lookup."""
        self._requests[acp.SESSION_NEW.name] = (decode_new, self._new)
        self._serve(acp.SESSION_PROMPT, self._prompt)
        self._serve(acp.SESSION_CLOSE, self._close)
        self._serve(acp.SESSION_SET_MODE, self._set_mode)
        self._serve(acp.SESSION_SET_CONFIG_OPTION, self._set_option)
        handlers = self._handlers
        for handler, method, serve in (
            (handlers.load_session, acp.SESSION_LOAD, self._load),
            (handlers.resume_session, acp.SESSION_RESUME, self._resume),
            (handlers.list_sessions, acp.SESSION_LIST, self._list),
            (handlers.delete_session, acp.SESSION_DELETE, self._delete),
            (handlers.authenticate, acp.AUTHENTICATE, self._authenticate),
            (handlers.logout, acp.LOGOUT, self._logout),
        ):
            if handler is not None:
                self._serve(method, serve)

    def _serve(self, method: Method[Any, Any], serve: Serve) -> None:
        self._requests[method.name] = (decoder(method.params), serve)

    # -- called by the connection

    def attach(self, connection: Connection) -> None:
        self._connection = connection
        self._acp = AcpSpeech(connection)
        if self._agent.dialect not in (None, discovery.ACP):
            self._document = speech_of(self, self._agent.dialect)

    @property
    def connection(self) -> Connection:
        assert self._connection is not None
        return self._connection

    @property
    def speech(self) -> Speech:
        """Sends updates and questions to this client, in its dialect."""
        assert self._acp is not None
        return self._document or self._acp

    def _choose(self, request: Request) -> None:
        """Detect the client's dialect from its first request, unless the agent names one. A later
        handshake, or a first prompt that refutes a presumed dialect, corrects the detection."""
        if self._agent.dialect is not None:
            return
        document = self._document
        if document is not None and document.presumed and refutes(document, request):
            self._document, self._open = None, self._requests
            return
        greets = request.method == acp.INITIALIZE.name
        if (document is None and self._client is None) or (
            document is not None and greets and not document.greeted
        ):
            self._client = None
            self._document = choose(self, request)

    def request(self, request: Request) -> Any:
        known = self._open.get(request.method)
        if known is None:
            return self._request_otherwise(request)
        decode, serve = known
        try:
            params = decode(request.params)
        except msgspec.ValidationError as error:
            speech = recognise(self, request, self._sessions)
            if speech is not None:
                self._document, self._open = speech, {}
                return speech.request(request)
            raise boundary.invalid_params(error) from error
        return serve(params)

    def _request_otherwise(self, request: Request) -> Any:
        """Handle the handshake, requests before it, extensions, and other dialects."""
        self._choose(request)
        if self._document is not None:
            return self._document.request(request)
        if request.method in self._open:
            return self.request(request)
        if request.method == acp.INITIALIZE.name:
            return self._initialize(request)
        extension = self._handlers.extensions.get(request.method)
        if extension is None and request.method not in self._requests:
            raise boundary.method_not_found(request.method)
        if self._client is None:
            raise RemoteError(codes.INVALID_REQUEST, "send initialize first")
        assert extension is not None
        return run_handler(extension, boundary.plain_params(request.params))

    def notification(self, notification: Notification) -> None:
        if self._document is not None:
            self._document.notification(notification)
        elif notification.method in (acp.SESSION_CANCEL.name, acp.CANCEL_REQUEST.name):
            self._cancel(notification)
        else:
            handler = self._handlers.extension_notifications.get(notification.method)
            if handler is not None:
                self._hear(handler, notification)

    def _hear(self, handler: Callable[..., Any], notification: Notification) -> None:
        """Queue a notification for an author's handler. One is handled after the other."""
        if self._told is None:
            connection = self.connection
            self._told = HandlerLane(
                connection.flow,
                lambda call: run_handler(*call),
                connection.tasks,
                on_cut=self._cut,
            )
        self._told.put(
            (handler, boundary.plain_params(notification.params)), len(notification.line)
        )

    def _cut(self, why: Overflow) -> None:
        """Callback of the lane: log that notifications were dropped because their handlers were too
        slow. The ones before them have been handled; later ones get a new lane."""
        log.error("extension notifications from the client were dropped: %s", why)
        self._told = None

    def noise(self, noise: Noise | Stray) -> None:
        log.debug("noise: %.200r", noise.line)

    # -- for dialects other than ACP

    @property
    def agent(self) -> Agent:
        return self._agent

    def greet(self, client: acp.InitializeRequest) -> None:
        """Record what the client reported about itself. Only the first report counts."""
        self._client = self._client or client

    def can(self, method: Method[Any, Any]) -> bool:
        """Return whether the agent serves this method."""
        return method.name in self._requests

    def perform(self, method: Method[P, R], params: P) -> Coroutine[Any, Any, R]:
        """Return a coroutine that answers a request as if it had come in ACP. The call itself
        raises `RemoteError` if the method is not served."""
        if not self.can(method):
            raise boundary.method_not_found(method.name)
        answer = self._requests[method.name][1](params)
        return answer if inspect.iscoroutine(answer) else _just(answer)

    def stop(self, session_id: str) -> None:
        """Cancel the running turn of a session, if any."""
        session = self._sessions.get(session_id)
        if session is not None and session.turn is not None:
            session.turn.stop()

    # -- the handshake

    def _initialize(self, request: Request) -> acp.InitializeResponse:
        try:
            client = acp.INITIALIZE.decode_params(request.params)
        except msgspec.ValidationError as error:
            raise boundary.invalid_params(error) from error
        if self._client is None:
            # A second handshake gets the same response and changes nothing.
            self._client = client
            self._open = self._requests
            if (note := version_note(client)) is not None:
                log.warning("%s", note)
        methods = [
            method
            for method in self._agent.auth_methods
            if not isinstance(method, acp.AuthMethodTerminal)
            or self._client.client_capabilities.auth.terminal
        ]
        return acp.InitializeResponse(
            protocol_version=acp.PROTOCOL_VERSION,
            agent_info=self._agent.info,
            agent_capabilities=self._agent.capabilities,
            auth_methods=methods,
        )

    async def _authenticate(self, params: acp.AuthenticateRequest) -> acp.AuthenticateResponse:
        usable = [
            method.id
            for method in (*self._agent.auth_methods, *self._agent.secret_methods)
            if not isinstance(method, acp.AuthMethodTerminal)
        ]
        if params.method_id not in usable:
            instead = alternatives(params.method_id, usable)
            raise _invalid(f"the agent has no login method {shown(params.method_id)}; {instead}")
        method: str = params.method_id
        secrets = ours_in(params.meta)
        if "password" in secrets or "token" in secrets:
            # Not at the top: a login with a secret is rare.
            from dragoman.agent.speech.keyed import Login

            method = login = Login(method)
            login.password, login.token = secrets.get("password"), secrets.get("token")
        await run_handler(self._handlers.authenticate, method)
        return acp.AuthenticateResponse()

    async def _logout(self, params: acp.LogoutRequest) -> acp.LogoutResponse:
        await run_handler(self._handlers.logout)
        return acp.LogoutResponse()

    # -- sessions

    def _make(self, id: str | None, params: Any) -> Session:
        if self._client is None:
            raise RemoteError(codes.INVALID_REQUEST, "send initialize first")
        return Session(
            self.speech.new_id() if id is None else id,
            _absolute(params.cwd),
            additional_directories=[_absolute(path) for path in params.additional_directories],
            mcp_servers=params.mcp_servers,
            meta=params.meta,
            client=self._client,
            settings=self._agent.choices,
        )

    def _session(self, id: str) -> Session:
        session = self._sessions.get(id)
        if session is None:
            raise RemoteError(
                codes.NOT_FOUND, f"there is no session {shown(id)}", {"sessionId": id}
            )
        return session

    async def _new(self, params: acp.NewSessionRequest) -> acp.NewSessionResponse:
        session = self._make(None, params)
        if self._handlers.new_session is not None:
            await run_handler(self._handlers.new_session, session)
        self._sessions[session.id] = session
        self._announce_commands(session)
        return acp.NewSessionResponse(
            session_id=session.id,
            modes=session.mode_state(),
            config_options=session.config_options() or None,
        )

    async def _load(self, params: acp.LoadSessionRequest) -> acp.LoadSessionResponse:
        session = self._make(params.session_id, params)
        self._require_idle(session.id)
        await self._replay(Turn(self.connection, session, (), speech=self.speech))
        self._require_idle(session.id)
        self._sessions[session.id] = session
        self._announce_commands(session)
        return acp.LoadSessionResponse(
            modes=session.mode_state(), config_options=session.config_options() or None
        )

    async def _replay(self, replay: Turn) -> None:
        """Run, in a separate task, the handler that loads a session. If the load is cancelled,
        stop the handler and wait until it has ended, for at most `CANCEL_GRACE`."""
        handler = run_to_end(self._handlers.load_session, replay, replay.session)
        work = self.connection.tasks.start(_caught(replay, handler), "load a session")
        replay.begin(work)
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError:
            replay.stop()
            await _wait_for_end(work, "load")
            raise
        finally:
            work.cancel()
            replay.finish()
        if isinstance(answer := work.result(), Exception):
            raise answer

    async def _resume(self, params: acp.ResumeSessionRequest) -> acp.ResumeSessionResponse:
        session = self._make(params.session_id, params)
        self._require_idle(session.id)
        await run_handler(self._handlers.resume_session, session)
        self._require_idle(session.id)
        self._sessions[session.id] = session
        self._announce_commands(session)
        return acp.ResumeSessionResponse(
            modes=session.mode_state(), config_options=session.config_options() or None
        )

    def _require_idle(self, session_id: str) -> None:
        """Raise `RemoteError` if a session that is to be reopened has a running turn: reopening
        creates a new object, and neither a cancel nor a second prompt would find the old turn."""
        session = self._sessions.get(session_id)
        if session is not None and session.turn is not None:
            raise RemoteError(codes.INVALID_REQUEST, "a turn of this session is still running")

    async def _list(self, params: acp.ListSessionsRequest) -> acp.ListSessionsResponse:
        if params.cwd is not None:
            _absolute(params.cwd)
        found = await run_handler(self._handlers.list_sessions, params)
        if isinstance(found, acp.ListSessionsResponse):
            return found
        return acp.ListSessionsResponse(sessions=list(found))

    async def _delete(self, params: acp.DeleteSessionRequest) -> acp.DeleteSessionResponse:
        await self._drop(params.session_id)
        await run_handler(self._handlers.delete_session, params.session_id)
        return acp.DeleteSessionResponse()

    async def _close(self, params: acp.CloseSessionRequest) -> acp.CloseSessionResponse:
        session = self._session(params.session_id)
        await self._drop(session.id)
        if self._handlers.close_session is not None:
            await run_handler(self._handlers.close_session, session)
        return acp.CloseSessionResponse()

    async def _drop(self, id: str) -> None:
        session = self._sessions.pop(id, None)
        if session is not None and session.turn is not None:
            turn = session.turn
            turn.stop()
            try:
                # `_run_turn` ends after `CANCEL_GRACE`, whatever the handler does.
                await turn.ended.wait()
            except asyncio.CancelledError:
                # The session was not closed: the client can use it, or close it again.
                self._sessions.setdefault(id, session)
                raise

    def _announce_commands(self, session: Session) -> None:
        """Send the slash commands to the client, after the response that opens the session."""
        if not self._handlers.commands:
            return
        update = acp.AvailableCommandsUpdate(
            available_commands=[
                acp.command(spec.name, description=spec.description, hint=spec.hint)
                for spec in self._handlers.commands.values()
            ]
        )
        # The task starts after the response, and waits while the client reads too slowly.
        self.connection.tasks.start(self._tell(session, update), "send the commands")

    async def _tell(self, session: Session, update: acp.SessionUpdate) -> None:
        with contextlib.suppress(ConnectionLost):
            waiting = self.speech.update(session.id, update)
            if waiting is not None:
                await waiting

    # -- modes and options

    def _set_mode(self, params: acp.SetSessionModeRequest) -> Any:
        session = self._sessions.get(params.session_id) or self._session(params.session_id)
        mode_id = params.mode_id
        self._require_mode(session, mode_id)
        handler = self._handlers.set_mode
        if handler is None and session.mode == mode_id:
            # The mode does not change: there is nothing to send or to wait for.
            return acp.SetSessionModeResponse()
        return self._mode_set(session, mode_id, handler)

    async def _mode_set(
        self, session: Session, mode_id: str, handler: Callable[..., Any] | None
    ) -> acp.SetSessionModeResponse:
        before = session.mode
        if handler is not None:
            await run_handler(handler, session, mode_id)
        if session.mode != mode_id:
            session.switch_mode(mode_id)
        if session.mode != before:
            # The response does not contain the option that also offers the mode.
            options = acp.ConfigOptionUpdate(config_options=session.config_options())
            await self._tell(session, options)
        return acp.SetSessionModeResponse()

    def _require_mode(self, session: Session, mode_id: object) -> None:
        if not isinstance(mode_id, str) or not session.choices.has_mode(mode_id):
            raise _invalid(session.choices.no_mode(mode_id))

    async def _set_option(
        self, params: acp.SetSessionConfigOptionRequest
    ) -> acp.SetSessionConfigOptionResponse:
        session = self._session(params.session_id)
        if params.config_id == MODE_OPTION and session.mode is not None:
            before = session.mode
            self._require_mode(session, params.value)
            assert isinstance(params.value, str)
            if self._handlers.set_mode is not None:
                await run_handler(self._handlers.set_mode, session, params.value)
            session.switch_mode(params.value)
            if session.mode != before:
                await self._tell(session, acp.CurrentModeUpdate(current_mode_id=session.mode))
        else:
            if not session.choices.allows(params.config_id, params.value):
                raise _invalid(session.choices.not_allowed(params.config_id, params.value))
            if self._handlers.set_option is not None:
                await run_handler(
                    self._handlers.set_option, session, params.config_id, params.value
                )
            session.set_option(params.config_id, params.value)
        return acp.SetSessionConfigOptionResponse(config_options=session.config_options())

    # -- turns

    def _prompt(self, params: acp.PromptRequest) -> Coroutine[Any, Any, acp.PromptResponse]:
        """Begin a turn, and return a coroutine that runs it. The turn begins here because a cancel
        that arrives with the prompt is handled before the coroutine starts."""
        session = self._session(params.session_id)
        if session.turn is not None:
            raise RemoteError(codes.INVALID_REQUEST, "a turn of this session is still running")
        turn = session.turn = Turn(
            self.connection, session, params.prompt, params.meta, speech=self.speech
        )
        return self._run_turn(turn)

    async def _run_turn(self, turn: Turn) -> acp.PromptResponse:
        try:
            work = self.connection.tasks.start(self._answer(turn), "answer a prompt")
            turn.begin(work)
            try:
                await asyncio.wait([work, turn.stopped], return_when=asyncio.FIRST_COMPLETED)
                if not work.done():
                    await _wait_for_end(work, "prompt")
            except asyncio.CancelledError:
                # The client has disconnected, or cancelled the request and not the turn. The next
                # prompt of the session must not find this handler at work.
                turn.stop()
                await _wait_for_end(work, "prompt")
                raise
            finally:
                work.cancel()
        finally:
            turn.session.turn = None
            turn.finish()
        if turn.cancelled:
            return acp.PromptResponse(stop_reason=acp.StopReason.CANCELLED)
        answer = work.result()
        if isinstance(answer, Exception):
            raise answer
        return turn.with_tokens(checks.end(answer))

    async def _answer(self, turn: Turn) -> Any:
        """Run the handler for a prompt, or for the slash command at its beginning, and return the
        handler's result, or its exception as a value. An unknown command is refused."""
        known = self._handlers.commands
        command = commands.parse(turn.prompt) if known else None
        spec = None if command is None else known.get(command.name)
        if command is None or (spec is None and not commands.is_meant(command, known)):
            return await _caught(turn, run_to_end(self._handlers.prompt, turn))
        if spec is not None:
            return await _caught(turn, run_to_end(spec.handler, turn, after=(command.input,)))
        await turn.say(commands.missing(command.name, known))
        # Nothing was done, and the client must not mistake this for success.
        return acp.StopReason.REFUSAL

    def _cancel(self, notification: Notification) -> None:
        """Cancel the turn or the request that a notification names."""
        try:
            if notification.method == acp.SESSION_CANCEL.name:
                self.stop(acp.SESSION_CANCEL.decode_params(notification.params).session_id)
                return
            id = acp.CANCEL_REQUEST.decode_params(notification.params).request_id
        except msgspec.ValidationError as error:
            log.warning("a %s could not be decoded: %s", notification.method, error)
            return
        if id is not None:
            self.connection.cancel_inbound(id)


async def _caught(turn: Turn, handler: Coroutine[Any, Any, Any]) -> Any:
    """Return the result of an author's handler, or its exception as a value."""
    try:
        return await handler
    except RemoteError as error:
        return _uncaught(error) if _came_from_client(error) else error
    except Exception as error:
        if turn.cancelled:
            # The response will be "cancelled", so this error would be lost otherwise.
            log.exception("a handler failed after its turn was cancelled")
            return None
        return error.with_traceback(_of_author(error.__traceback__))


async def _wait_for_end(work: asyncio.Task[Any], name: str) -> None:
    """Wait for a cancelled handler to end, for at most `CANCEL_GRACE`."""
    await asyncio.wait([work], timeout=CANCEL_GRACE)
    if not work.done():
        log.warning("a cancelled %s handler is still running; answering without it", name)


async def _just(answer: Any) -> Any:
    return answer


def _of_author(traceback: TracebackType | None) -> TracebackType | None:
    """Return a traceback without dragoman's frames at its beginning, because only part of it is
    shown."""
    rest = traceback
    while rest is not None and rest.tb_frame.f_globals.get("__name__") in (__name__, _THREADS):
        rest = rest.tb_next
    return rest or traceback


_THREADS: Final = run_in_thread.__module__


def _came_from_client(error: RemoteError) -> bool:
    """Return whether this error is the client's response to one of our requests, which is raised in
    `dragoman.rpc`, rather than one that the author raised."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    home = "" if traceback is None else str(traceback.tb_frame.f_globals.get("__name__"))
    return home.startswith("dragoman.rpc.")


def _uncaught(error: RemoteError) -> Exception:
    """Return the error to report if a handler does not catch an error response from its client. The
    code of that response must not be sent back: the client could take it to mean that the session
    or the prompt method is unknown, and send the prompt again."""
    failure = RuntimeError(f"a handler did not catch an error from its client: {error}")
    failure.__cause__ = error
    return failure


def _absolute(path: str) -> Path:
    if not Path(path).is_absolute() and not PureWindowsPath(path).is_absolute():
        raise _invalid(f"the path {path!r} is not absolute")
    return Path(path)


def _invalid(message: str) -> RemoteError:
    return RemoteError(codes.INVALID_PARAMS, message)
