"""Forward messages unchanged between an ACP client and a peer that speaks ACP too.

Tracks only the client's sessions and its open requests, for cancel, timeout and disconnect. The
peer's messages about a session pass through `gateway.acp_route`, and `gateway.acp_filter`
translates what the client does not support. A client that speaks another dialect is served by
`gateway.client_session`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Raw

from dragoman.client.acp.session import Session
from dragoman.dialects import discovery
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1 import translate
from dragoman.dialects.acp.v1.codec import session_of
from dragoman.dialects.acp.v1.handshake import version_note
from dragoman.dialects.acp.v1.methods import SESSION_FORK_NAME
from dragoman.errors import (
    CallCancelled,
    CallTimeout,
    ConnectionBroken,
    ConnectionLost,
    DragomanError,
    InvalidAnswer,
    RemoteError,
    SessionUnusable,
    TurnInProgress,
    UsageError,
)
from dragoman.errors.usage import shown
from dragoman.events import model
from dragoman.events.model import EventEnvelope
from dragoman.gateway import acp_filter, prompt_responses
from dragoman.gateway.acp_filter import UpdateFilter
from dragoman.gateway.acp_route import PassthroughRoute
from dragoman.gateway.relay import Upstream, decoded
from dragoman.rpc import LATER, Call, Connection, Handlers, boundary
from dragoman.rpc.tasks import all_ended
from dragoman.wire import codes
from dragoman.wire.messages import UNDECODABLE, Id, Notification, Request
from dragoman.wire.peer import Noise, Stray

log: Final = logging.getLogger("dragoman.gateway")

_PROMPT: Final = acp.SESSION_PROMPT.name
_ELICIT: Final = acp.ELICITATION_CREATE.name
_CANCEL: Final = acp.SESSION_CANCEL.name
_ALWAYS: Final = frozenset({acp.SESSION_CLOSE.name})
"""Methods that clients may call even if the peer does not have them."""

SLOW_CLIENT_TIMEOUT: Final = 60.0
"""Maximum number of seconds that one client may keep the peer's other clients waiting because it
does not read. The limit for a consumer of events in the same process is the same."""

Then = Callable[[Raw], Any]
"""Changes the result of a request before it is forwarded."""


@dataclass(slots=True, eq=False)
class _Opening:
    """An unanswered request from the client to open a session."""

    request: Request
    call: Call
    passage: PassthroughRoute | None = None
    """The route of the session, if the request names the session."""
    wanted: bool = True


class PassthroughSession:
    """Forwards the messages of an ACP client to the peer. `otherwise` serves a client that speaks
    another dialect."""

    def __init__(
        self,
        upstream: Upstream,
        otherwise: Handlers,
        *,
        raw: bool = False,
        named: str | None = None,
    ) -> None:
        self.upstream = upstream
        self._raw = raw
        self._guesses = named is None
        """Whether to detect the client's dialect from its requests."""
        self._hello: Request | None = None
        self._otherwise = otherwise
        self._instead: Handlers | None = None
        self._passages: dict[str, PassthroughRoute] = {}
        self._calls: dict[Id, Call] = {}
        self._openings: dict[Id, _Opening] = {}
        self._capabilities: acp.ClientCapabilities | None = None
        self._served: dict[str, bool] = {}
        self._known_handlers: dict[str, Callable[[Request], Any]] = {}
        """The handlers of methods that were called before and that the peer supports."""
        self._held_up = False
        self._requests: dict[str, Callable[[Request], Any]] = {
            acp.INITIALIZE.name: self._initialize,
            acp.SESSION_NEW.name: self._open_new,
            SESSION_FORK_NAME: self._open_new,
            acp.SESSION_LOAD.name: self._open_known,
            acp.SESSION_RESUME.name: self._open_known,
            acp.SESSION_CLOSE.name: self._close,
            acp.SESSION_DELETE.name: self._forward,
            acp.SESSION_SET_CONFIG_OPTION.name: self._set_option,
            _PROMPT: self._prompt,
        }

    # -- called by the connection

    def attach(self, connection: Connection) -> None:
        self.connection = connection
        self._otherwise.attach(connection)

    def request(self, request: Request) -> Any:
        handler = self._known_handlers.get(request.method)
        if handler is None:
            if self._instead is not None:
                return self._instead.request(request)
            if self._capabilities is None and not self._is_acp(request):
                self._instead = self._otherwise
                self.upstream.tell_answers()
                return self._instead.request(request)
        try:
            return (handler or self._handler_of(request.method))(request)
        except DragomanError as error:
            raise prompt_responses.refusal(error) from error

    def notification(self, notification: Notification) -> None:
        if self._instead is not None or self._capabilities is None:
            (self._instead or self._otherwise).notification(notification)
        elif notification.method == _CANCEL:
            passage = self._passages.get(session_of(notification.params) or "")
            if passage is not None:
                passage.cancel()
        elif notification.method == acp.CANCEL_REQUEST.name:
            self._cancel_request(notification)
        elif self.upstream.connection.failure is None:
            self.upstream.connection.post(notification.method, notification.params)

    def noise(self, noise: Noise | Stray) -> None:
        log.debug("noise: %.200r", noise.line)

    # -- the handshake

    def _is_acp(self, request: Request) -> bool:
        params: Any = None
        with contextlib.suppress(*UNDECODABLE):
            params = msgspec.json.decode(request.params)
        if discovery.of_request(request.method, params) != discovery.ACP:
            return False
        return request.method == acp.INITIALIZE.name

    def _initialize(self, request: Request) -> Any:
        try:
            client = acp.INITIALIZE.decode_params(request.params)
        except msgspec.ValidationError as error:
            raise boundary.invalid_params(error) from error
        if self._capabilities is None:
            # A second handshake gets the same response and changes nothing.
            self._capabilities = client.client_capabilities
            self._hello = request
            if (note := version_note(client)) is not None:
                log.warning("%s", note)
        return acp_filter.hello(self.upstream.client.hello, self._capabilities)

    def _is_keyed(self, request: Request) -> bool:
        """Return whether a client whose handshake was in ACP sends a request that only the keyed
        dialect has."""
        if not self._guesses:
            return False
        params: Any = None
        with contextlib.suppress(*UNDECODABLE):
            params = msgspec.json.decode(request.params)
        return discovery.is_keyed(request.method, params)

    def _serve_keyed(self, request: Request) -> Any:
        """Serve a client in the keyed dialect from here on; it has no open session yet."""
        assert self._hello is not None
        self._instead = self._otherwise
        self._known_handlers.clear()
        self.upstream.tell_answers()
        self._instead.request(self._hello)
        return self._instead.request(request)

    def _handler_of(self, method: str) -> Callable[[Request], Any]:
        """Return the handler of a method. Raises `RemoteError` if the method requires a capability
        that the peer did not advertise."""
        known = acp.method_table().request(method)
        gate = None if known is None else known.gate
        agent = self.upstream.client.agent.agent_capabilities
        if gate is not None and method not in _ALWAYS and not gate.is_open(agent):
            raise boundary.method_not_found(method)
        handler = self._requests.get(method, self._about)
        if self._capabilities is not None:
            self._known_handlers[method] = handler
        return handler

    def serves(self, request: Request) -> bool:
        """Return whether a request may be sent to the client, given what the client advertised."""
        method = request.method
        assert self._capabilities is not None
        if method == _ELICIT:
            return acp_filter.can_elicit(self._capabilities, request.params)
        served = self._served.get(method)
        if served is None:
            known = acp.method_table().request(method)
            gate = None if known is None else known.gate
            served = gate is None or gate.is_open(self._capabilities)
            self._served[method] = served
        return served

    def sieve(self, session: Session) -> UpdateFilter:
        assert self._capabilities is not None
        source = model.Source(translate.DIALECT, self.upstream.connection.name)
        place = EventEnvelope(source, itertools.count(), session.id)
        return UpdateFilter(self._capabilities, session, place, raw=self._raw)

    # -- requests from the client

    def _about(self, request: Request) -> Any:
        """Forward a request that has no handler of its own. Raises `RemoteError` if it names a
        session that the client has not opened."""
        session_id = session_of(request.params)
        if session_id is not None and session_id not in self._passages:
            raise _no_such_session(session_id)
        return self._forward(request)

    def _own(self, session_id: str | None) -> PassthroughRoute:
        passage = self._passages.get(session_id or "")
        if passage is None:
            raise _no_such_session(session_id)
        return passage

    def _forward(self, request: Request, then: Then | None = None) -> Any:
        def settle(result: Raw | None, error: DragomanError | None) -> None:
            if error is None and then is None:
                self._calls.pop(request.id, None)
                self.connection.answer(request, result)
            else:
                self._settled(request, result, error, then)

        self._calls[request.id] = self.upstream.connection.begin(
            request.method, request.params, settle=settle
        )
        return LATER

    def _settled(
        self,
        request: Request,
        result: Raw | None,
        error: DragomanError | None,
        then: Then | None = None,
    ) -> bool:
        """Respond to the client with the peer's result, changed by `then`, or with an error.
        Returns whether the request succeeded."""
        self._calls.pop(request.id, None)
        if error is None:
            assert result is not None
            try:
                self.connection.answer(request, result if then is None else then(result))
                return True
            except DragomanError as failure:
                error = failure
            except UNDECODABLE as invalid:
                error = InvalidAnswer(f"invalid response to {request.method}: {invalid}")
        self._failed(request, error)
        return False

    def _failed(self, request: Request, error: DragomanError) -> None:
        refusal = prompt_responses.refusal(error)
        self.connection.refuse(request, refusal.code, refusal.message, refusal.data)

    def _cancel_request(self, notification: Notification) -> None:
        message = decoded(notification, acp.CancelRequestNotification)
        if message is None or message.request_id is None:
            return
        for passage in self._passages.values():
            if passage.prompt is not None and passage.prompt[0].id == message.request_id:
                # Later messages from the peer are part of the turn, and its response goes to the
                # client.
                passage.cancel()
                return
        cancelled = CallCancelled(codes.REQUEST_CANCELLED, "the request was cancelled")
        opening = self._openings.get(message.request_id)
        if opening is not None:
            self._unwant(opening)
            self._failed(opening.request, cancelled)
        call = self._calls.get(message.request_id)
        if call is not None:
            call.give_up(cancelled)

    # -- sessions

    def _open_new(self, request: Request) -> Any:
        if not self._passages and self._is_keyed(request):
            return self._serve_keyed(request)

        def settle(result: Raw | None, error: DragomanError | None) -> None:
            if self._openings.get(request.id) is opening:
                del self._openings[request.id]
            if opening.wanted and self.connection.failure is None:
                self._opened(request, result, error)
            else:
                self._close_unwanted(opening, result, error)

        call = self.upstream.open(request.method, request.params, settle)
        opening = self._openings[request.id] = _Opening(request, call)
        return LATER

    def _opened(self, request: Request, result: Raw | None, error: DragomanError | None) -> None:
        opened: list[PassthroughRoute] = []

        def then(result: Raw) -> Any:
            answer = acp.SESSION_NEW.decode_result(result)
            if answer.session_id in self.upstream:
                used = f"the agent returned the id of an open session: {shown(answer.session_id)}"
                raise RemoteError(codes.INTERNAL_ERROR, used)
            passage = self._pass(request, answer.session_id)
            opened.append(passage)
            passage.opened(answer)
            return passage.sieve.opened(result)

        succeeded = self._settled(request, result, error, then)
        # After the response: before it, no client could know the session of an update.
        for passage in opened:
            if succeeded:
                self.upstream.route(passage.session.id, passage)
            else:
                self._close_there(passage)

    def _unwant(self, opening: _Opening) -> None:
        """Cancel a request that opens a session at the peer. Its response is still awaited, for a
        limited time: if the peer opens the session anyway, it has to be closed."""
        del self._openings[opening.request.id]
        opening.wanted = False
        if opening.passage is not None:
            self._drop(opening.passage)
        self.upstream.connection.expect_late(opening.call, self.upstream.client.budgets.session)

    def _close_unwanted(
        self, opening: _Opening, result: Raw | None, error: DragomanError | None
    ) -> None:
        """Close the session, if any, that the peer opened after the client cancelled the request
        or disconnected."""
        if result is None:
            if isinstance(error, CallTimeout):
                log.warning("%s; the agent may have opened a session that nothing uses", error)
            return
        try:
            if opening.passage is not None:
                session_id = opening.passage.session.id
            else:
                session_id = acp.SESSION_NEW.decode_result(result).session_id
            if session_id not in self.upstream:
                self._close_there(self._pass(opening.request, session_id))
        except (DragomanError, *UNDECODABLE) as problem:
            log.warning("could not close a session that nothing uses: %s", problem)

    def _close_there(self, passage: PassthroughRoute) -> None:
        self._passages.pop(passage.session.id, None)
        tasks = self.upstream.connection.tasks
        tasks.start(passage.aclose(), "close a session that its client does not use")

    def _open_known(self, request: Request) -> Any:
        session_id = session_of(request.params)
        if session_id is None:
            return self._forward(request)
        if not self._passages and self._is_keyed(request):
            return self._serve_keyed(request)
        if session_id in self.upstream:
            raise UsageError(f"the session {session_id} is already open on this connection")
        method = acp.method_table().request(request.method)
        assert method is not None
        # The history comes before the response.
        passage = self._pass(request, session_id)
        self.upstream.route(session_id, passage)

        def then(result: Raw) -> Any:
            passage.opened(method.decode_result(result))
            return passage.sieve.opened(result)

        def settle(result: Raw | None, error: DragomanError | None) -> None:
            if not opening.wanted:
                self._close_unwanted(opening, result, error)
                return
            self._openings.pop(request.id, None)
            if not self._settled(request, result, error, then):
                self._drop(passage)

        try:
            # Its updates have an owner already, so none of them need to be kept.
            call = self.upstream.connection.begin(request.method, request.params, settle=settle)
        except DragomanError:
            self._drop(passage)
            raise
        opening = self._openings[request.id] = _Opening(request, call, passage)
        return LATER

    def _pass(self, request: Request, session_id: str) -> PassthroughRoute:
        """Register a session of the client, and return its route."""
        cwd, *others = _folders(request.params)
        session = self.upstream.client.shelter(session_id, cwd, others)
        passage = self._passages[session_id] = PassthroughRoute(self, session)
        return passage

    def _drop(self, passage: PassthroughRoute) -> None:
        self._passages.pop(passage.session.id, None)
        self.upstream.forget(passage.session.id, passage)
        self.upstream.client.forget(passage.session)

    def _close(self, request: Request) -> Any:
        passage = self._own(session_of(request.params))
        return self._closed(passage)

    async def _closed(self, passage: PassthroughRoute) -> acp.CloseSessionResponse:
        self._passages.pop(passage.session.id, None)
        self.upstream.forget(passage.session.id, passage)
        if passage.prompt is not None:
            # A peer without `session/close` would continue the turn.
            passage.cancel()
        try:
            await passage.session.close()
        except DragomanError as error:
            raise prompt_responses.refusal(error) from error
        return acp.CloseSessionResponse()

    def _set_option(self, request: Request) -> Any:
        passage = self._own(session_of(request.params))
        model_id = passage.sieve.chosen_model(request.params)
        if model_id is None:
            return self._forward(request, passage.sieve.chosen)
        return self._set_model(passage, model_id)

    async def _set_model(self, passage: PassthroughRoute, model_id: str) -> Any:
        try:
            await passage.session.set_model(model_id)
        except DragomanError as error:
            raise prompt_responses.refusal(error) from error
        return acp.SetSessionConfigOptionResponse(config_options=passage.sieve.choices())

    # -- turns

    def _prompt(self, request: Request) -> Any:
        passage = self._own(session_of(request.params))
        session = passage.session
        if session.unusable:
            raise SessionUnusable(
                f"the session {session.id} was abandoned after an unanswered cancel; open another"
            )
        if passage.prompt is not None:
            raise TurnInProgress(f"a turn of the session {session.id} is still running")

        def settle(result: Raw | None, error: DragomanError | None) -> None:
            if passage.prompt is not None and passage.prompt[0] is request:
                passage.ended()
                if error is not None and self._is_keyed(request):
                    error = _keyed_prompt()
                self._settled(request, result, error, prompt_responses.prompt_result)

        call = self.upstream.connection.begin(_PROMPT, request.params, settle=settle)
        passage.prompt = (request, call)
        return LATER

    # -- a client that reads too slowly, or has disconnected

    def hold_up(self) -> None:
        """Stop reading from the peer until the client has caught up.

        A client that keeps others waiting too long is disconnected. One that has the peer to itself
        may stop reading for any length of time, for example while its machine sleeps.
        """
        if not self._held_up and self.connection.failure is None:
            self._held_up = True
            self.upstream.connection.flow.hold()
            self.connection.tasks.start(self._let_go_on(), "wait for a slow client")

    async def _let_go_on(self) -> None:
        try:
            while True:
                try:
                    async with asyncio.timeout(SLOW_CLIENT_TIMEOUT):
                        await self.connection.drain()
                    return
                except TimeoutError:
                    if self.upstream.session_count > len(self._passages):
                        why = f"the client did not read for {SLOW_CLIENT_TIMEOUT:g} s"
                        log.warning("%s and kept others waiting; disconnecting it", why)
                        self.connection.fail(ConnectionBroken(why))
                        return
        except ConnectionLost:
            pass
        finally:
            self._held_up = False
            self.upstream.connection.flow.release()

    async def aclose(self) -> None:
        """Cancel the open requests of a client that has disconnected, and close its sessions at the
        peer."""
        for call in list(self._calls.values()):
            call.give_up(CallCancelled(codes.REQUEST_CANCELLED, "the client disconnected"))
        for opening in list(self._openings.values()):
            self._unwant(opening)
        self.upstream.left(self.connection)
        passages = list(self._passages.values())
        self._passages.clear()
        for passage in passages:
            self.upstream.forget(passage.session.id, passage)
        # All at once, so that the timeouts of a peer that hangs do not add up.
        await all_ended(*(passage.aclose() for passage in passages))


def _no_such_session(session_id: str | None) -> RemoteError:
    if session_id is None:
        return RemoteError(codes.INVALID_PARAMS, "the request names no session")
    return RemoteError(codes.NOT_FOUND, f"there is no session {shown(session_id)}")


def _keyed_prompt() -> RemoteError:
    return RemoteError(
        codes.INVALID_PARAMS,
        "the prompt is in the keyed dialect: start the gateway with --client-dialect keyed",
    )


def _folders(params: Raw) -> list[Path]:
    """Return the directories of a session that is being opened, the working directory first; only
    `/` if the params are invalid."""
    try:
        wanted = acp.decode(params, acp.NewSessionRequest)
    except msgspec.ValidationError:
        return [Path("/")]
    return [Path(wanted.cwd), *(Path(folder) for folder in wanted.additional_directories or ())]
