"""Route the messages of one ACP agent to the owner of each session, without decoding them.

Only the session id is read. A message without a route, and a request for which its route returns
`HERE`, is handled by the agent's own client. Updates that arrive before the session id is known are
kept up to a limit. The routes are implemented in `gateway.acp_route` and `broker.server`.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from typing import Any, Final, Protocol, TypeVar

import msgspec
from msgspec import Raw

from dragoman.client.acp.client import AcpClient
from dragoman.client.acp.inquiries import reply_of
from dragoman.client.early_messages import EarlyMessages
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1.codec import session_of
from dragoman.errors import CallCancelled, DragomanError
from dragoman.rpc import Call, Connection, Handlers
from dragoman.rpc.calls import Settle
from dragoman.wire import codes
from dragoman.wire.messages import Id, Notification, Request
from dragoman.wire.peer import Event, Noise, Stray

T = TypeVar("T")

log: Final = logging.getLogger("dragoman.gateway")

UPDATE: Final = acp.SESSION_UPDATE.name

HERE: Final = object()
"""Returned by a route for a request that the agent's own client should serve."""

PLAIN_COLONS: Final = 2
"""Number of colons before the params of an update: one after the version key, one after the
method key."""


def decoded(notification: Notification, kind: type[T]) -> T | None:
    """Return the params of a notification. If they are invalid, log a warning and return None."""
    try:
        return acp.decode(notification.params, kind)
    except msgspec.ValidationError as error:
        log.warning("a %s could not be decoded: %s", notification.method, error)
        return None


class Route(Protocol):
    """The owner of a session. Called by the read loop in wire order; must not block."""

    def update(self, notification: Notification) -> None:
        """Handle an update of the session."""

    def update_all(self, notifications: Sequence[Notification]) -> None:
        """Handle updates of the session that arrived together, in this order."""
        for notification in notifications:
            self.update(notification)

    def request(self, request: Request) -> Any:
        """Handle a request about the session, like `Handlers.request`, or return `HERE`."""


class ForwardedRequest(Protocol):
    """A request from the agent that was forwarded to a client."""

    def give_up(self, error: DragomanError) -> None:
        """Stop waiting for the response, because the agent cancelled the request."""


class Upstream:
    """Receives all messages from an agent. Those without a route go to its own client."""

    def __init__(self, client: AcpClient) -> None:
        self.client = client
        self.connection: Connection = client.connection
        self._routes: dict[str, Route] = {}
        self._usual: Route | None = None
        """The owner of updates that begin with `_beginning`."""
        self._beginning = b""
        self._early: EarlyMessages[Notification] = EarlyMessages(
            lambda notification: self._handlers.notification(notification)
        )
        self.asked: dict[Id, ForwardedRequest] = {}
        """Forwarded requests from the agent, by the agent's ids."""
        self.pages: dict[str, Connection] = {}
        """By elicitation id: the connection of the client whose user agreed to open a URL, until
        the interaction there is complete."""
        client.relay_with(self._take_over)
        self.connection.batches = self
        # A response to a forwarded request is not an event of the agent's own client.
        self._on_answer, self.connection.on_answer = self.connection.on_answer, None

    def tell_answers(self) -> None:
        """Let the connection call the `on_answer` of the agent's own client again, because the
        client's events are needed from now on."""
        self.connection.on_answer = self._on_answer

    def _take_over(self, handlers: Handlers) -> Handlers:
        self._handlers = handlers
        return self

    # -- session owners

    def open(self, method: str, params: Any, settle: Settle) -> Call:
        """Send a request whose response has a session id. Updates that come before the response are
        kept until the callback `settle` has returned. It should call `route`, which delivers them
        to the session's owner."""
        self._early.begin()

        def opened(result: Raw | None, error: DragomanError | None) -> None:
            try:
                settle(result, error)
            finally:
                self._early.end()

        try:
            return self.connection.begin(method, params, settle=opened)
        except BaseException:
            self._early.end()
            raise

    def route(self, session_id: str, route: Route) -> None:
        """Set the owner of a session and deliver the updates kept for it."""
        self._routes[session_id] = route
        self._usual = None
        for notification in self._early.take(session_id):
            route.update(notification)

    def forget(self, session_id: str, route: Route) -> None:
        """Remove the owner of a session, unless the session has another owner by now."""
        if self._routes.get(session_id) is route:
            del self._routes[session_id]
            self._usual = None

    def __contains__(self, session_id: str) -> bool:
        return session_id in self._routes

    @property
    def session_count(self) -> int:
        """Number of sessions that have an owner."""
        return len(self._routes)

    # -- called by the connection

    def attach(self, connection: Connection) -> None:
        pass

    def notification(self, notification: Notification) -> None:
        if self._usual is not None and notification.line.startswith(self._beginning):
            self._usual.update(notification)
            return
        if notification.method == UPDATE:
            session_id = session_of(notification.params)
            route = self._routes.get(session_id)  # type: ignore[arg-type]
            if route is not None:
                self._learn(session_id, route, notification.line)
                route.update(notification)
                return
            if session_id is not None and self._early.keep(
                session_id, notification, len(notification.line)
            ):
                return
        elif self.asked and notification.method == acp.CANCEL_REQUEST.name:
            self._call_off(notification)
        elif self.pages and notification.method == acp.ELICITATION_COMPLETE.name:
            self._page_done(notification)
        self._handlers.notification(notification)

    def count_alike(self, events: Sequence[Event[Call]]) -> int:
        beginning, count = self._beginning, 0
        if self._usual is not None:
            for event in events:
                if type(event) is not Notification or not event.line.startswith(beginning):
                    break
                count += 1
        return count

    def notifications(self, notifications: Sequence[Notification]) -> None:
        assert self._usual is not None
        self._usual.update_all(notifications)

    def note_page(self, request: Request, result: Raw, connection: Connection) -> None:
        """Remember the client's connection in `pages` if the result says that its user agreed to
        open a URL."""
        with contextlib.suppress(msgspec.ValidationError):
            asked = acp.ELICITATION_CREATE.decode_params(request.params)
            reply = acp.ELICITATION_CREATE.decode_result(result)
            if isinstance(asked, acp.ElicitationUrl) and reply_of(reply).action == "accept":
                self.pages[asked.elicitation_id] = connection

    def left(self, connection: Connection) -> None:
        """Forget the URLs that a client's user agreed to open. Called when it has disconnected."""
        if connection in self.pages.values():
            self.pages = {id: each for id, each in self.pages.items() if each is not connection}

    def _page_done(self, notification: Notification) -> None:
        done = decoded(notification, acp.CompleteElicitationNotification)
        if done is None:
            return
        connection = self.pages.pop(done.elicitation_id, None)
        if connection is not None and connection.failure is None:
            connection.pass_on(notification.line)

    def _call_off(self, notification: Notification) -> None:
        """Handle the cancellation of a request whose response the agent no longer needs."""
        message = decoded(notification, acp.CancelRequestNotification)
        if message is None or message.request_id is None:
            return
        call = self.asked.pop(message.request_id, None)
        if call is not None:
            call.give_up(CallCancelled(codes.REQUEST_CANCELLED, "the request was cancelled"))

    def _learn(self, session_id: str | None, route: Route, line: bytes) -> None:
        """Store how this session's updates begin, up to the session id, if `line` has the usual
        form: later updates that begin with the same bytes are routed without decoding."""
        beginning, found, rest = line.partition(b'"params":{"sessionId":"')
        ended = found and rest.startswith(msgspec.json.encode(session_id)[1:])
        # Only the version and the method come before the params.
        if ended and UPDATE.encode() in beginning and beginning.count(b":") == PLAIN_COLONS:
            size = len(beginning) + len(found) + len(msgspec.json.encode(session_id)) - 1
            self._usual, self._beginning = route, line[:size]

    def request(self, request: Request) -> Any:
        session_id = session_of(request.params)
        route = None if session_id is None else self._routes.get(session_id)
        if route is not None:
            answer = route.request(request)
            if answer is not HERE:
                return answer
        return self._handlers.request(request)

    def noise(self, noise: Noise | Stray) -> None:
        self._handlers.noise(noise)
