"""Handle what an ACP agent sends to the client: session updates, requests and cancellations.

Routes each update to its session and each request to a service or callback, and maps service
errors to JSON-RPC error codes. `client.permissions` defines the permission callbacks;
`client.services` implements files and terminals.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar

import msgspec
from msgspec import Raw

from dragoman.client.base import fail_turn, service_refusal
from dragoman.client.early_messages import EarlyMessages
from dragoman.client.file_guard import decided, reading, require, running, writing
from dragoman.client.permissions import (
    Answer,
    Chosen,
    Decision,
    Question,
    choose,
    failed_permit,
    wrong_answer,
)
from dragoman.client.turns import TurnStage
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1.codec import decoder, session_of
from dragoman.dialects.acp.v1.methods import Method
from dragoman.errors import DragomanError, RemoteError, ServiceError, SpawnError, UsageError
from dragoman.events.words import INVALID_UPDATE
from dragoman.rpc import Connection, boundary
from dragoman.wire import codes
from dragoman.wire.messages import Notification, Request
from dragoman.wire.peer import Noise, Stray

if TYPE_CHECKING:
    from dragoman.client.acp.event_source import EventSource
    from dragoman.client.acp.options import ClientOptions
    from dragoman.client.acp.session import Session
    from dragoman.client.acp.turn import Turn

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")

log: Final = logging.getLogger("dragoman.client")

Elicit: TypeAlias = Callable[
    [acp.CreateElicitationRequest],
    Awaitable[acp.CreateElicitationResponse] | acp.CreateElicitationResponse,
]
"""Callback that answers an agent's question to its user."""

Elsewhere: TypeAlias = Callable[[str, Any], Coroutine[Any, Any, Any] | None]
"""Called with the method and params of a file or terminal request. Returns a coroutine that serves
it, or None to have it served here."""

Serve: TypeAlias = Callable[[Any, bytes], Any]
"""Called with the params and the line of a request. Returns its result, or a coroutine that returns
it. What is done before the call returns is done in wire order."""

_UPDATE: Final = acp.SESSION_UPDATE.name
_decode_update: Final = decoder(acp.SessionNotification)
_UNKNOWN: Final = "session/update: no such session is open here"
_QUESTIONS: Final = (acp.SESSION_REQUEST_PERMISSION.name, acp.ELICITATION_CREATE.name)
_CANCELLING: Final = TurnStage.CANCELLING
"""Cached, because looking up a member of an enum takes as long as two calls."""


class Extension(Protocol):
    """Handles the requests and notifications of an agent's extensions."""

    async def request(self, method: str, params: Any) -> Any:
        """Return the result of a request. Raise `RemoteError` with METHOD_NOT_FOUND if there is no
        such method."""

    def notification(self, method: str, params: Any) -> None:
        """Handle a notification."""


class InboundHandlers:
    """Handlers for the messages of a client's connection."""

    def __init__(self, sessions: dict[str, Session], options: ClientOptions) -> None:
        self._sessions = sessions
        self._options = options
        self.permit = options.permit
        self.guard = options.guard
        self.elicit = options.elicit
        if self.elicit is None and options.inquire is not None:
            # Not at the top: most clients have no such callback.
            from dragoman.client.acp.inquiries import elicit_by

            self.elicit = elicit_by(options.inquire)
        self.elsewhere: Elsewhere | None = None
        self.between: Callable[[str, Raw], bool] | None = None
        """Callback for notifications that ACP does not define, with their method and params. It
        handles those that a gateway or broker sends, and returns whether it did."""
        self.watch: EventSource | None = None
        """Turns incoming messages into events, except the updates and permission requests of open
        sessions."""
        self.early: EarlyMessages[tuple[acp.SessionUpdate, bytes]] = EarlyMessages(
            lambda early: self._complain(Noise(early[1], _UNKNOWN))
        )
        self.greeting: Raw | None = None
        """The params of an `initialize` request from the other side, or None. An agent sends none;
        a program that only repeats its input does."""
        self.stray: Stray | None = None
        """The last response with an id that no request had, or None if there was none since the
        last prompt."""
        self._urls: set[str] = set()
        self._connection: Connection | None = None
        self._requests: dict[str, tuple[Callable[[Raw], Any], Serve]] = {}
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
        if self.elicit is not None:
            self._serve(acp.ELICITATION_CREATE, self._elicit)

    def _serve(
        self, method: Method[P, R], handler: Callable[[P, bytes], Coroutine[Any, Any, R]]
    ) -> None:
        self._requests[method.name] = (decoder(method.params), handler)

    # -- called by the connection

    def attach(self, connection: Connection) -> None:
        self._connection = connection

    def notification(self, notification: Notification) -> None:
        if notification.method == _UPDATE:
            try:
                message = _decode_update(notification.params)
            except msgspec.ValidationError as error:
                self._invalid(notification, f"{INVALID_UPDATE}: {error}")
                return
            session = self._sessions.get(message.session_id)
            if session is not None:
                session.deliver(message.update, notification.line)
            else:
                self._keep(message, notification.line)
        elif notification.method == acp.CANCEL_REQUEST.name:
            self._cancel(notification)
        elif notification.method == acp.ELICITATION_COMPLETE.name:
            self._url_done(notification)
        elif self.between is None or not self.between(notification.method, notification.params):
            self._heard(notification, "an unknown notification")
            if self._options.extension is not None:
                self._options.extension.notification(
                    notification.method, boundary.plain_params(notification.params)
                )

    def request(self, request: Request) -> Any:
        known = self._requests.get(request.method)
        if known is None:
            if request.method == acp.INITIALIZE.name:
                self.greeting = request.params
            self._heard(request, "an unknown request")
            extension = self._options.extension
            # A method of the protocol that was not offered is not an extension.
            if extension is None or acp.method_table().request(request.method) is not None:
                raise boundary.method_not_found(request.method)
            return extension.request(request.method, boundary.plain_params(request.params))
        decode, handler = known
        try:
            params = decode(request.params)
        except msgspec.ValidationError as error:
            self._heard(request, str(error))
            raise boundary.invalid_params(error) from error
        if self.watch is not None and request.method not in _QUESTIONS:
            self.watch.served(request.method, params.session_id, request.line)
        if self.elsewhere is not None and request.method not in _QUESTIONS:
            served = self.elsewhere(request.method, params)
            if served is not None:
                return self._served(served, params.session_id)
        try:
            answer = handler(params, request.line)
            # A question is answered by a person, not by a service.
            if type(answer) is CoroutineType and request.method not in _QUESTIONS:
                return self._served(answer, params.session_id)
            return answer
        except RemoteError as error:
            self._heard(request, str(error))
            raise

    def _heard(self, message: Notification | Request, reason: str) -> None:
        if self.watch is not None:
            self.watch.heard(message.method, message.line, reason)

    def noise(self, noise: Noise | Stray) -> None:
        if isinstance(noise, Stray) and noise.why == "unknown":
            self.stray = noise
        if self.watch is not None:
            reason = noise.reason if isinstance(noise, Noise) else f"a stray response: {noise.why}"
            self.watch.heard("", noise.line, reason)
        self._complain(noise)

    def _invalid(self, notification: Notification, reason: str) -> None:
        """Report an update that cannot be decoded, as noise and as an event: of its session if that
        is open, else of the connection."""
        session = self._sessions.get(session_of(notification.params) or "")
        if session is None or not session.heard(notification, reason):
            self._heard(notification, reason)
        self._complain(Noise(notification.line, reason))

    def _complain(self, noise: Noise | Stray) -> None:
        log.debug("noise: %.200r", noise.line)
        if self._options.on_noise is not None:
            try:
                self._options.on_noise(noise)
            except Exception:
                # The observer may run while a session is being opened, and its errors must not make
                # that fail.
                log.exception("the on_noise callback failed")

    # -- sessions

    def adopt(self, session: Session) -> None:
        """Register a session whose id is now known, and deliver the updates that came early."""
        self._sessions[session.id] = session
        for update, _ in self.early.take(session.id):
            session.deliver_early(update)

    def _keep(self, message: acp.SessionNotification, line: bytes) -> None:
        if not self.early.keep(message.session_id, (message.update, line), len(line)):
            self.noise(Noise(line, _UNKNOWN))
        elif self.watch is not None:
            self.watch.early(message, line)

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
        self._heard(notification, "the agent cancelled one of its own requests")
        if message.request_id is not None:
            self._connection.cancel_inbound(message.request_id)

    # -- permission

    def _permission(self, params: acp.RequestPermissionRequest, line: bytes) -> Any:
        # `_session` written out.
        session = self._sessions.get(params.session_id) or self._session(params.session_id)
        # Not in the coroutine: it would start after everything that arrived in the same read.
        request_id = session.asked(params, line)
        # Some agents describe a call first and then ask about its id alone.
        question = session.calls.question(params, request_id)
        turn = session.turn
        # An abandoned session still works on a turn that was cancelled.
        if session.unusable or (turn is not None and turn.state is _CANCELLING):
            return self._decided(session, question, Answer.CANCEL)
        try:
            answer = self.permit(question)
        except DragomanError:
            raise
        except Exception as error:
            _fail(session, failed_permit(self.permit, error))
            raise
        # A plain function has already decided; only an awaitable needs a task.
        if type(answer) is Answer or not inspect.isawaitable(answer):
            return self._decided(session, question, answer)
        return self._decided_later(session, turn, question, answer)

    def _decided(
        self, session: Session, question: Question, answer: Decision
    ) -> acp.RequestPermissionResponse:
        if type(answer) is not Answer and not isinstance(answer, Chosen):
            # The caller of the turn gets the error, the agent a refusal.
            _fail(session, wrong_answer(self.permit, answer))
            answer = Answer.REJECT_ONCE
        option_id = choose(question.options, answer)
        if option_id is None and answer.allows:
            # No option matches this answer, so it becomes a refusal and is reported as one.
            answer = Answer.REJECT_ONCE
        if session.turn is not None:
            session.turn.answered(question, answer)
        if session.record is not None:
            session.answered(session.record, question, answer, option_id)
        return acp.cancelled() if option_id is None else acp.selected(option_id)

    async def _decided_later(
        self, session: Session, turn: Turn | None, question: Question, asking: Awaitable[Decision]
    ) -> acp.RequestPermissionResponse:
        try:
            answer = await self._answered(session, turn, asking, Answer.CANCEL)
        except asyncio.CancelledError:
            # The agent cancelled its question, or disconnected.
            self._decided(session, question, Answer.CANCEL)
            raise
        except DragomanError:
            raise
        except Exception as error:
            _fail(session, failed_permit(self.permit, error))
            raise
        return self._decided(session, question, answer)

    async def _answered(
        self, session: Session, turn: Turn | None, asking: Awaitable[T], cancelled: T
    ) -> T:
        """Wait for an answer. Returns `cancelled` at once if the turn is cancelled or the session
        is closed."""
        if session.unusable:
            # The session ended before this started.
            if inspect.iscoroutine(asking):
                asking.close()
            return cancelled
        return await session.questions.ask(turn, asking, cancelled)

    async def _guarded(self, session: Session, question: Question) -> None:
        """Ask the guard whether the client may do what the agent requests. Raises `NotPermitted`
        unless the guard allows it."""
        guard = self.guard
        assert guard is not None
        asking = decided(guard, question, lambda error: _fail(session, error))
        answer = await self._answered(session, session.turn, asking, Answer.CANCEL)
        # An agent would not ask for permission to read a file.
        if session.turn is not None and (question.kind != "read" or not answer.allows):
            session.turn.answered(question, answer)
        require(question, answer)

    # -- elicitation

    def _elicit(
        self, params: acp.CreateElicitationRequest, line: bytes
    ) -> Coroutine[Any, Any, acp.CreateElicitationResponse]:
        if isinstance(params, acp.UnknownElicitation) or (
            isinstance(params, acp.ElicitationUrl) and not self._options.visits
        ):
            raise RemoteError(codes.INVALID_PARAMS, "this mode of elicitation was not offered")
        session = None if params.session_id is None else self._session(params.session_id)
        tell = _nobody if self.watch is None else self.watch.elicited(params, line)
        return self._elicited(session, session.turn if session else None, params, tell)

    async def _elicited(
        self,
        session: Session | None,
        turn: Turn | None,
        params: acp.ElicitationForm | acp.ElicitationUrl,
        tell: Callable[[str], None],
    ) -> acp.CreateElicitationResponse:
        elicit = self.elicit
        assert elicit is not None
        answer: acp.CreateElicitationResponse
        asking = _answer(lambda: elicit(params))
        try:
            if session is None:
                answer = await asking
            else:
                answer = await self._answered(session, turn, asking, acp.ElicitationCancelled())
        except BaseException:
            # The agent cancelled its question or disconnected, or the callback failed.
            tell("cancel")
            raise
        if isinstance(params, acp.ElicitationUrl) and isinstance(answer, acp.ElicitationAccepted):
            self._urls.add(params.elicitation_id)
        tell(_action(answer))
        return answer

    def _url_done(self, notification: Notification) -> None:
        try:
            message = acp.ELICITATION_COMPLETE.decode_params(notification.params)
        except msgspec.ValidationError as error:
            self.noise(Noise(notification.line, f"elicitation/complete: {error}"))
            return
        if self.watch is not None:
            self.watch.url_done(message.elicitation_id, notification.line)
        # Ignore ids that are unknown or already completed.
        if message.elicitation_id in self._urls:
            self._urls.discard(message.elicitation_id)
            if self._options.on_url_done is not None:
                self._options.on_url_done(message.elicitation_id)

    # -- files

    async def _read(self, params: acp.ReadTextFileRequest, line: bytes) -> acp.ReadTextFileResponse:
        session = self._session(params.session_id)
        if self.guard is not None:
            await self._guarded(session, reading(session.id, params.path))
        files = session.files()
        content = await files.read_text(params.path, line=params.line, limit=params.limit)
        return acp.ReadTextFileResponse(content=content)

    async def _write(
        self, params: acp.WriteTextFileRequest, line: bytes
    ) -> acp.WriteTextFileResponse:
        session = self._session(params.session_id)
        if self.guard is not None:
            await self._guarded(session, writing(session.id, params.path, params.content))
        await session.files().write_text(params.path, params.content)
        return acp.WriteTextFileResponse()

    # -- terminals

    async def _create_terminal(
        self, params: acp.CreateTerminalRequest, line: bytes
    ) -> acp.CreateTerminalResponse:
        session = self._session(params.session_id)
        if self.guard is not None:
            asked = running(session.id, params.command, params.args, cwd=params.cwd, env=params.env)
            await self._guarded(session, asked)
        terminal_id = await session.terminals().create(
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

    async def _served(self, work: Awaitable[Any], session_id: str) -> Any:
        """Await `work` of a service and return its result; raise its errors as protocol errors.
        Meanwhile the agent waits for us, so the agent's silence does not count."""
        session = self._sessions.get(session_id)
        if session is not None:
            session.serving += 1
        try:
            return await work
        except (ServiceError, SpawnError) as error:
            raise service_refusal(error) from error
        finally:
            if session is not None:
                session.serving -= 1


def _action(answer: acp.CreateElicitationResponse) -> str:
    match answer:
        case acp.ElicitationAccepted():
            return "accept"
        case acp.ElicitationDeclined():
            return "decline"
        case _:
            return "cancel"


def _nobody(action: str) -> None:
    """Do nothing. Used if there is no event source."""


async def _answer(ask: Callable[[], Any]) -> Any:
    """Return the result of a user's callback, plain or `async`."""
    answer = ask()
    return await answer if inspect.isawaitable(answer) else answer


def _fail(session: Session, error: UsageError) -> None:
    """Fail the running turn of a session with `error`; if none runs, raise `error`."""
    if session.turn is None:
        raise error
    fail_turn(session, error)
