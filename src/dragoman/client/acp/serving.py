"""What an agent asks of its client, answered.

Owns the inbound half of a client: updates find their session, requests find their service, and
what a service raises becomes the protocol's error codes. It does not decide about permissions
(`dragoman.client.permissions`) and does not touch files itself (`dragoman.client.services`).
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar

import msgspec
from msgspec import Raw

from dragoman.client.permissions import Answer, Question, choose
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1.table import Method
from dragoman.errors import (
    ArgumentInvalid,
    FileMissing,
    RemoteError,
    ServiceError,
    TerminalUnknown,
)
from dragoman.rpc import Connection, boundary
from dragoman.wire import codes
from dragoman.wire.messages import Notification, Request
from dragoman.wire.peer import Noise, Stray

if TYPE_CHECKING:
    from dragoman.client.acp.client import ClientOptions
    from dragoman.client.acp.session import Session

P = TypeVar("P")
R = TypeVar("R")

log: Final = logging.getLogger("dragoman.client")

Elicit: TypeAlias = Callable[
    [acp.CreateElicitationRequest], Awaitable[acp.CreateElicitationResponse]
]
"""Answers a question of the agent to its user."""

Serve: TypeAlias = Callable[[Any, bytes], Coroutine[Any, Any, Any]]
"""Answers a request, given its params and the line it came in."""

_UPDATE: Final = acp.SESSION_UPDATE.name

EARLY_SESSIONS: Final = 64
EARLY_UPDATES: Final = 1024
"""Updates kept for sessions whose id is not known yet: some agents talk before they answer."""


class Extension(Protocol):
    """Answers methods that are the agent's own."""

    async def request(self, method: str, params: Any) -> Any:
        """Answer a request, or raise `RemoteError` with METHOD_NOT_FOUND."""

    def notification(self, method: str, params: Any) -> None:
        """Hear a notification."""


class Serving:
    """The handlers of a client's connection."""

    def __init__(self, sessions: dict[str, Session], options: ClientOptions) -> None:
        self._sessions = sessions
        self._options = options
        self._early: dict[str, list[tuple[acp.SessionUpdate, bytes]]] = {}
        self._connection: Connection | None = None
        self._requests: dict[str, tuple[Method[Any, Any], Serve]] = {}
        self._serve(acp.SESSION_REQUEST_PERMISSION, self._permission)
        if options.read_files:
            self._serve(acp.FS_READ_TEXT_FILE, self._read)
        if options.write_files:
            self._serve(acp.FS_WRITE_TEXT_FILE, self._write)
        if options.terminals:
            self._serve(acp.TERMINAL_CREATE, self._create_terminal)
            self._serve(acp.TERMINAL_OUTPUT, self._terminal_output)
            self._serve(acp.TERMINAL_WAIT_FOR_EXIT, self._wait_terminal)
            self._serve(acp.TERMINAL_KILL, self._kill_terminal)
            self._serve(acp.TERMINAL_RELEASE, self._release_terminal)
        if options.elicit is not None:
            self._serve(acp.ELICITATION_CREATE, self._elicit)

    def _serve(
        self, method: Method[P, R], handler: Callable[[P, bytes], Coroutine[Any, Any, R]]
    ) -> None:
        self._requests[method.name] = (method, handler)

    # -- called by the connection

    def attach(self, connection: Connection) -> None:
        self._connection = connection

    def notification(self, notification: Notification) -> None:
        if notification.method == _UPDATE:
            try:
                message = acp.decode(notification.params, acp.SessionNotification)
            except msgspec.ValidationError as error:
                self.noise(Noise(notification.line, f"session/update: {error}"))
                return
            session = self._sessions.get(message.session_id)
            if session is not None:
                session.deliver(message.update, notification.line)
            else:
                self._keep(message, notification.line)
        elif notification.method == acp.CANCEL_REQUEST.name:
            self._cancel(notification)
        elif self._options.extension is not None:
            self._options.extension.notification(notification.method, _plain(notification.params))

    def request(self, request: Request) -> Any:
        known = self._requests.get(request.method)
        if known is None:
            if self._options.extension is not None:
                return self._options.extension.request(request.method, _plain(request.params))
            raise boundary.method_not_found(request.method)
        method, handler = known
        try:
            params = method.decode_params(request.params)
        except msgspec.ValidationError as error:
            raise boundary.invalid_params(error) from error
        return self._mapped(handler(params, request.line))

    def noise(self, noise: Noise | Stray) -> None:
        log.debug("noise: %.200r", noise.line)
        if self._options.on_noise is not None:
            self._options.on_noise(noise)

    # -- sessions

    def adopt(self, session: Session) -> None:
        """A session's id is known now: it gets what came for it before."""
        self._sessions[session.id] = session
        for update, line in self._early.pop(session.id, ()):
            session.deliver(update, line)

    def _keep(self, message: acp.SessionNotification, line: bytes) -> None:
        kept = self._early.get(message.session_id)
        if kept is None:
            if len(self._early) >= EARLY_SESSIONS:
                # The oldest is most likely a session that was closed and still talks.
                del self._early[next(iter(self._early))]
            kept = self._early[message.session_id] = []
        if len(kept) < EARLY_UPDATES:
            kept.append((message.update, line))

    def _session(self, session_id: str) -> Session:
        session = self._sessions.get(session_id)
        if session is None:
            raise RemoteError(codes.NOT_FOUND, "unknown session", {"sessionId": session_id})
        return session

    def _cancel(self, notification: Notification) -> None:
        assert self._connection is not None
        try:
            message = acp.decode(notification.params, acp.CancelRequestNotification)
        except msgspec.ValidationError as error:
            self.noise(Noise(notification.line, f"$/cancel_request: {error}"))
            return
        if message.request_id is not None:
            self._connection.cancel_inbound(message.request_id)

    # -- permission

    async def _permission(
        self, params: acp.RequestPermissionRequest, line: bytes
    ) -> acp.RequestPermissionResponse:
        session = self._session(params.session_id)
        call = params.tool_call
        session.asked(params, line)
        question = Question(
            session_id=params.session_id,
            tool_call_id=call.tool_call_id,
            title=call.title or "",
            kind=call.kind or "other",
            options=params.options,
            tool_call=call,
        )
        answer = await self._asked(session, self._decide(question), Answer.CANCEL)
        option_id = choose(params.options, answer)
        session.answered(question, answer, option_id)
        return acp.cancelled() if option_id is None else acp.selected(option_id)

    async def _decide(self, question: Question) -> Answer:
        answer = self._options.permit(question)
        return await answer if inspect.isawaitable(answer) else answer

    async def _asked(self, session: Session, work: Coroutine[Any, Any, Any], cancelled: Any) -> Any:
        """Wait for somebody to answer; cancelling the turn answers at once with `cancelled`."""
        if session.turn is not None and session.turn.cancelling:
            work.close()
            return cancelled
        assert self._connection is not None
        turn = session.turn
        task = self._connection.tasks.start(work, "ask")
        session.question_opened(task)
        try:
            await asyncio.wait([task])
        finally:
            session.question_closed(task, turn)
            if not task.done():
                task.cancel()
        return cancelled if task.cancelled() else task.result()

    # -- elicitation

    async def _elicit(
        self, params: acp.CreateElicitationRequest, line: bytes
    ) -> acp.CreateElicitationResponse:
        assert self._options.elicit is not None
        if isinstance(params, acp.UnknownElicitation) or (
            isinstance(params, acp.ElicitationUrl) and not self._options.elicit_url
        ):
            raise RemoteError(codes.INVALID_PARAMS, "this mode of elicitation was not offered")
        session_id = getattr(params, "session_id", None)
        session = None if session_id is None else self._sessions.get(session_id)
        if session is None:
            return await self._options.elicit(params)
        answer: acp.CreateElicitationResponse = await self._asked(
            session, _awaited(self._options.elicit(params)), acp.ElicitationCancelled()
        )
        return answer

    # -- files

    async def _read(self, params: acp.ReadTextFileRequest, line: bytes) -> acp.ReadTextFileResponse:
        files = self._session(params.session_id).files()
        content = await files.read_text(params.path, line=params.line, limit=params.limit)
        return acp.ReadTextFileResponse(content=content)

    async def _write(
        self, params: acp.WriteTextFileRequest, line: bytes
    ) -> acp.WriteTextFileResponse:
        await self._session(params.session_id).files().write_text(params.path, params.content)
        return acp.WriteTextFileResponse()

    # -- terminals

    async def _create_terminal(
        self, params: acp.CreateTerminalRequest, line: bytes
    ) -> acp.CreateTerminalResponse:
        terminals = self._session(params.session_id).terminals()
        terminal_id = await terminals.create(
            params.command,
            params.args,
            env={variable.name: variable.value for variable in params.env},
            cwd=params.cwd,
            output_byte_limit=params.output_byte_limit,
        )
        return acp.CreateTerminalResponse(terminal_id=terminal_id)

    async def _terminal_output(
        self, params: acp.TerminalOutputRequest, line: bytes
    ) -> acp.TerminalOutputResponse:
        output = self._session(params.session_id).terminals().output(params.terminal_id)
        status = output.exit_status
        return acp.TerminalOutputResponse(
            output=output.output,
            truncated=output.truncated,
            exit_status=None
            if status is None
            else acp.TerminalExitStatus(exit_code=status.exit_code, signal=status.signal),
        )

    async def _wait_terminal(
        self, params: acp.WaitForTerminalExitRequest, line: bytes
    ) -> acp.WaitForTerminalExitResponse:
        terminals = self._session(params.session_id).terminals()
        status = await terminals.wait_for_exit(params.terminal_id)
        return acp.WaitForTerminalExitResponse(exit_code=status.exit_code, signal=status.signal)

    async def _kill_terminal(
        self, params: acp.KillTerminalRequest, line: bytes
    ) -> acp.KillTerminalResponse:
        await self._session(params.session_id).terminals().kill(params.terminal_id)
        return acp.KillTerminalResponse()

    async def _release_terminal(
        self, params: acp.ReleaseTerminalRequest, line: bytes
    ) -> acp.ReleaseTerminalResponse:
        await self._session(params.session_id).terminals().release(params.terminal_id)
        return acp.ReleaseTerminalResponse()

    async def _mapped(self, work: Coroutine[Any, Any, Any]) -> Raw:
        """The answer of a service, with its refusals as the protocol's errors."""
        try:
            return Raw(acp.encode(await work))
        except ServiceError as error:
            raise RemoteError(
                _code(error), str(error), {"errorClass": error.error_class}
            ) from error


def _code(error: ServiceError) -> int:
    match error:
        case FileMissing() | TerminalUnknown():
            return codes.NOT_FOUND
        case ArgumentInvalid():
            return codes.INVALID_PARAMS
        case _:
            return codes.INTERNAL_ERROR if error.blame == "world" else codes.INVALID_PARAMS


async def _awaited(work: Awaitable[Any]) -> Any:
    return await work


def _plain(raw: Raw) -> Any:
    try:
        return msgspec.json.decode(raw) if memoryview(raw).nbytes else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise boundary.invalid_params(error) from error
