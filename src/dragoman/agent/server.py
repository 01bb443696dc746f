"""One client being served: the protocol's side of an agent.

Owns the state of one connection: the handshake, its sessions, the turn of each. Requests of
different sessions, and cancels, are read while a prompt runs. It does not know what the agent does;
the handlers of an `Agent` do.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import secrets
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path, PureWindowsPath
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from dragoman.agent import commands
from dragoman.agent.blocking import BlockingTurn, run_in_thread
from dragoman.agent.session import Session
from dragoman.agent.turn import Turn
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1.table import Method
from dragoman.errors import RemoteError
from dragoman.rpc import Connection, boundary
from dragoman.wire import codes
from dragoman.wire.messages import Notification, Request
from dragoman.wire.peer import Noise, Stray

if TYPE_CHECKING:
    from dragoman.agent.agent import Agent

log: Final = logging.getLogger("dragoman.agent")

CANCEL_GRACE: Final = 5.0
"""How long a cancelled handler may take to end before its prompt is answered without it."""

Serve: TypeAlias = Callable[[Any], Coroutine[Any, Any, Any]]


class Server:
    """The handlers of one agent-side connection."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._handlers = agent.handlers
        self._connection: Connection | None = None
        self._client: acp.InitializeRequest | None = None
        self._sessions: dict[str, Session] = {}
        self._requests: dict[str, tuple[Method[Any, Any], Serve]] = {}
        self._serve(acp.SESSION_NEW, self._new)
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
                self._requests[method.name] = (method, serve)

    def _serve(self, method: Method[Any, Any], serve: Serve) -> None:
        self._requests[method.name] = (method, serve)

    # -- called by the connection

    def attach(self, connection: Connection) -> None:
        self._connection = connection

    @property
    def connection(self) -> Connection:
        assert self._connection is not None
        return self._connection

    def request(self, request: Request) -> Any:
        if request.method == acp.INITIALIZE.name:
            return self._initialize(request)
        known = self._requests.get(request.method)
        extension = self._handlers.extensions.get(request.method)
        if known is None and extension is None:
            raise boundary.method_not_found(request.method)
        if self._client is None:
            raise RemoteError(codes.INVALID_REQUEST, "initialize comes first")
        if known is None:
            assert extension is not None
            return _run(extension, _plain(request.params))
        method, serve = known
        try:
            params = method.decode_params(request.params)
        except msgspec.ValidationError as error:
            raise boundary.invalid_params(error) from error
        return _encoded(serve(params))

    def notification(self, notification: Notification) -> None:
        if notification.method == acp.SESSION_CANCEL.name:
            self._cancel(notification)
        elif notification.method == acp.CANCEL_REQUEST.name:
            self._cancel_request(notification)
        else:
            handler = self._handlers.extension_notifications.get(notification.method)
            if handler is not None:
                self.connection.tasks.start(
                    _run(handler, _plain(notification.params)), notification.method
                )

    def noise(self, noise: Noise | Stray) -> None:
        log.debug("noise: %.200r", noise.line)

    # -- the handshake

    def _initialize(self, request: Request) -> Raw:
        try:
            client = acp.INITIALIZE.decode_params(request.params)
        except msgspec.ValidationError as error:
            raise boundary.invalid_params(error) from error
        if self._client is None:
            # A second handshake is answered like the first and changes nothing.
            self._client = client
        methods = [
            method
            for method in self._agent.auth_methods
            if not isinstance(method, acp.AuthMethodTerminal)
            or self._client.client_capabilities.auth.terminal
        ]
        return Raw(
            acp.encode(
                acp.InitializeResponse(
                    protocol_version=acp.PROTOCOL_VERSION,
                    agent_info=self._agent.info,
                    agent_capabilities=self._agent.capabilities,
                    auth_methods=methods,
                )
            )
        )

    async def _authenticate(self, params: acp.AuthenticateRequest) -> acp.AuthenticateResponse:
        usable = [
            method.id
            for method in self._agent.auth_methods
            if not isinstance(method, acp.AuthMethodTerminal)
        ]
        if params.method_id not in usable:
            raise _invalid(f"there is no login method {params.method_id!r} to call")
        await _run(self._handlers.authenticate, params.method_id)
        return acp.AuthenticateResponse()

    async def _logout(self, params: acp.LogoutRequest) -> acp.LogoutResponse:
        await _run(self._handlers.logout)
        return acp.LogoutResponse()

    # -- sessions

    def _make(self, id: str, params: Any) -> Session:
        assert self._client is not None
        return Session(
            id,
            _absolute(params.cwd),
            additional_directories=[_absolute(path) for path in params.additional_directories],
            mcp_servers=params.mcp_servers,
            meta=params.meta,
            client=self._client,
            mode=self._agent.modes[0].id if self._agent.modes else None,
            options={option.id: option.current_value for option in self._agent.options},
        )

    def _session(self, id: str) -> Session:
        session = self._sessions.get(id)
        if session is None:
            raise RemoteError(codes.NOT_FOUND, "there is no such session", {"sessionId": id})
        return session

    async def _new(self, params: acp.NewSessionRequest) -> acp.NewSessionResponse:
        session = self._make(secrets.token_hex(16), params)
        if self._handlers.new_session is not None:
            await _run(self._handlers.new_session, session)
        self._sessions[session.id] = session
        self._announce_commands(session)
        return acp.NewSessionResponse(
            session_id=session.id,
            modes=self._modes(session),
            config_options=self._options(session),
        )

    async def _load(self, params: acp.LoadSessionRequest) -> acp.LoadSessionResponse:
        session = self._make(params.session_id, params)
        replay = Turn(self.connection, session, ())
        try:
            await _run_with(self._handlers.load_session, replay, session)
        finally:
            replay.over = True
        self._sessions[session.id] = session
        self._announce_commands(session)
        return acp.LoadSessionResponse(
            modes=self._modes(session), config_options=self._options(session)
        )

    async def _resume(self, params: acp.ResumeSessionRequest) -> acp.ResumeSessionResponse:
        session = self._make(params.session_id, params)
        await _run(self._handlers.resume_session, session)
        self._sessions[session.id] = session
        self._announce_commands(session)
        return acp.ResumeSessionResponse(
            modes=self._modes(session), config_options=self._options(session)
        )

    async def _list(self, params: acp.ListSessionsRequest) -> acp.ListSessionsResponse:
        if params.cwd is not None:
            _absolute(params.cwd)
        found = await _run(self._handlers.list_sessions, params)
        if isinstance(found, acp.ListSessionsResponse):
            return found
        return acp.ListSessionsResponse(sessions=list(found))

    async def _delete(self, params: acp.DeleteSessionRequest) -> acp.DeleteSessionResponse:
        await self._drop(params.session_id)
        await _run(self._handlers.delete_session, params.session_id)
        return acp.DeleteSessionResponse()

    async def _close(self, params: acp.CloseSessionRequest) -> acp.CloseSessionResponse:
        session = self._session(params.session_id)
        await self._drop(session.id)
        if self._handlers.close_session is not None:
            await _run(self._handlers.close_session, session)
        return acp.CloseSessionResponse()

    async def _drop(self, id: str) -> None:
        session = self._sessions.pop(id, None)
        if session is not None and session.turn is not None:
            turn = session.turn
            turn.stop()
            await turn.ended.wait()

    def _announce_commands(self, session: Session) -> None:
        """Tell the commands once the answer that opens the session has been sent."""
        if not self._handlers.commands:
            return
        update = acp.AvailableCommandsUpdate(
            available_commands=[
                acp.AvailableCommand(
                    name=spec.name,
                    description=spec.description,
                    input=None
                    if spec.hint is None
                    else acp.UnstructuredCommandInput(hint=spec.hint),
                )
                for spec in self._handlers.commands.values()
            ]
        )
        message = acp.SessionNotification(session_id=session.id, update=update)
        asyncio.get_running_loop().call_soon(self._post, message)

    def _post(self, message: acp.SessionNotification) -> None:
        if self.connection.failure is None:
            self.connection.post(acp.SESSION_UPDATE.name, Raw(acp.encode(message)))

    # -- modes and options

    def _modes(self, session: Session) -> acp.SessionModeState | None:
        if not self._agent.modes or session.mode is None:
            return None
        return acp.SessionModeState(current_mode_id=session.mode, available_modes=self._agent.modes)

    def _options(self, session: Session) -> Sequence[acp.SessionConfigOption] | None:
        """The options as this client may see them; modes are offered as an option, too."""
        options: list[acp.SessionConfigOption] = []
        if self._agent.modes and session.mode is not None:
            options.append(
                acp.SessionConfigSelect(
                    id=_MODE_OPTION,
                    name="Mode",
                    category="mode",
                    current_value=session.mode,
                    options=[
                        acp.SessionConfigSelectOption(
                            value=mode.id, name=mode.name, description=mode.description
                        )
                        for mode in self._agent.modes
                    ],
                )
            )
        boolean = _takes_booleans(session.client.client_capabilities)
        for option in self._agent.options:
            value = session.options[option.id]
            if isinstance(option, acp.SessionConfigSelect):
                options.append(replace(option, current_value=str(value)))
            elif boolean:
                options.append(replace(option, current_value=bool(value)))
        return options or None

    async def _set_mode(self, params: acp.SetSessionModeRequest) -> acp.SetSessionModeResponse:
        session = self._session(params.session_id)
        await self._switch_mode(session, params.mode_id)
        return acp.SetSessionModeResponse()

    async def _switch_mode(self, session: Session, mode_id: str) -> None:
        if mode_id not in [mode.id for mode in self._agent.modes]:
            raise _invalid(f"there is no mode {mode_id!r}")
        if self._handlers.set_mode is not None:
            await _run(self._handlers.set_mode, session, mode_id)
        session.mode = mode_id

    async def _set_option(
        self, params: acp.SetSessionConfigOptionRequest
    ) -> acp.SetSessionConfigOptionResponse:
        session = self._session(params.session_id)
        if params.config_id == _MODE_OPTION and self._agent.modes:
            await self._switch_mode(session, str(params.value))
            self._post(
                acp.SessionNotification(
                    session_id=session.id,
                    update=acp.CurrentModeUpdate(current_mode_id=str(params.value)),
                )
            )
        else:
            option = next((o for o in self._agent.options if o.id == params.config_id), None)
            if option is None or not _allowed(option, params.value):
                raise _invalid(f"the option {params.config_id!r} has no value {params.value!r}")
            if self._handlers.set_option is not None:
                await _run(self._handlers.set_option, session, option.id, params.value)
            session.options[option.id] = params.value
        return acp.SetSessionConfigOptionResponse(config_options=self._options(session) or [])

    # -- turns

    async def _prompt(self, params: acp.PromptRequest) -> acp.PromptResponse:
        session = self._session(params.session_id)
        if session.turn is not None:
            raise RemoteError(codes.INVALID_REQUEST, "a turn of this session is still running")
        turn = Turn(self.connection, session, params.prompt, params.meta)
        session.turn = turn
        work = self.connection.tasks.start(self._answer(turn), "answer a prompt")
        turn.begin(work)
        try:
            await asyncio.wait([work, turn.stopped], return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                await asyncio.wait([work], timeout=CANCEL_GRACE)
            if not work.done():
                log.warning("a cancelled prompt handler does not end; answering without it")
        finally:
            work.cancel()
            session.turn = None
            turn.finish()
        if turn.cancelled:
            return acp.PromptResponse(stop_reason="cancelled")
        reason = work.result()
        return (
            reason
            if isinstance(reason, acp.PromptResponse)
            else acp.PromptResponse(stop_reason=reason or "end_turn")
        )

    async def _answer(self, turn: Turn) -> Any:
        command = commands.parse(turn.prompt) if self._handlers.commands else None
        if command is None:
            return await _run_with(self._handlers.prompt, turn)
        spec = self._handlers.commands.get(command.name)
        if spec is not None:
            return await _run_with(spec.handler, turn, after=(command.input,))
        known = ", ".join(f"/{name}" for name in self._handlers.commands)
        await turn.say(f"There is no command /{command.name}. The commands are: {known}.")
        return None

    def _cancel(self, notification: Notification) -> None:
        try:
            message = acp.SESSION_CANCEL.decode_params(notification.params)
        except msgspec.ValidationError:
            return
        session = self._sessions.get(message.session_id)
        if session is not None and session.turn is not None:
            session.turn.stop()

    def _cancel_request(self, notification: Notification) -> None:
        try:
            message = acp.CANCEL_REQUEST.decode_params(notification.params)
        except msgspec.ValidationError:
            return
        if message.request_id is not None:
            self.connection.cancel_inbound(message.request_id)


_MODE_OPTION: Final = "mode"


async def _run(handler: Callable[..., Any] | None, *args: Any) -> Any:
    """Call an author's handler, in a thread if it is a plain function."""
    assert handler is not None
    if inspect.iscoroutinefunction(handler):
        return await handler(*args)
    return await run_in_thread(handler, *args)


async def _run_with(
    handler: Callable[..., Any] | None, turn: Turn, *before: Any, after: tuple[Any, ...] = ()
) -> Any:
    """Call a handler that gets a turn: the blocking one if it is a plain function."""
    face = turn if inspect.iscoroutinefunction(handler) else BlockingTurn(turn)
    return await _run(handler, *before, face, *after)


async def _encoded(work: Coroutine[Any, Any, Any]) -> Raw:
    return Raw(acp.encode(await work))


def _absolute(path: str) -> Path:
    if not Path(path).is_absolute() and not PureWindowsPath(path).is_absolute():
        raise _invalid(f"the path {path!r} is not absolute")
    return Path(path)


def _invalid(message: str) -> RemoteError:
    return RemoteError(codes.INVALID_PARAMS, message)


def _takes_booleans(capabilities: acp.ClientCapabilities) -> bool:
    session = capabilities.session
    return (
        session is not None
        and session.config_options is not None
        and session.config_options.boolean is not None
    )


def _allowed(option: acp.SessionConfigSelect | acp.SessionConfigBoolean, value: object) -> bool:
    if isinstance(option, acp.SessionConfigBoolean):
        return isinstance(value, bool)
    for entry in option.options:
        if isinstance(entry, acp.SessionConfigSelectGroup):
            if value in [choice.value for choice in entry.options]:
                return True
        elif entry.value == value:
            return True
    return False


def _plain(raw: Raw) -> Any:
    try:
        return msgspec.json.decode(raw) if memoryview(raw).nbytes else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise boundary.invalid_params(error) from error
