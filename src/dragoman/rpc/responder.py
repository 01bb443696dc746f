"""Answer inbound requests: run their handlers and send exactly one response for each.

Tracks the handler tasks, limits how many requests are open at once, and turns results and errors
into responses. `Responder` is a base class of `connection.Connection`. `Handlers` is the interface
to the code that knows the methods; its usual implementation, from tables, is in `router`.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
from collections.abc import Coroutine, Sequence
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final, Protocol

from dragoman.errors import ConnectionLost, MessageTooLong, Overflow
from dragoman.rpc import boundary
from dragoman.rpc.calls import FOREIGN, Call
from dragoman.rpc.tasks import TaskOwner, cancel_soon, was_cancelled
from dragoman.wire import codes
from dragoman.wire.messages import Id, Notification, Request
from dragoman.wire.peer import Event, Noise, PeerState, Stray

if TYPE_CHECKING:
    from dragoman.rpc.connection import Connection
    from dragoman.rpc.outbox import Outbox
    from dragoman.rpc.standby import OrdinaryStart
    from dragoman.rpc.trace import TraceSink


log: Final = logging.getLogger("dragoman.rpc")

MAX_INBOUND: Final = 4096
"""Maximum number of inbound requests handled at once; the next is refused as overloaded and
does not run."""

MAX_INBOUND_SIZE: Final = 64 * 1024 * 1024
"""Maximum total size, in bytes, of the requests handled at once. Above it, further ones are refused
as well, because each request keeps its line until it is answered, and a handler may take long."""


class Handlers(Protocol):
    """Handles the inbound messages of a connection.

    All methods are called by the pump, in wire order, and must not block.
    """

    def attach(self, connection: Connection) -> None:
        """Called once, before anything else, with the connection that is being served."""

    def request(self, request: Request) -> Any:
        """Handle a request: return the result, or a coroutine that returns it. An exception becomes
        an error response. After returning `LATER`, respond with `Connection.answer` or
        `Connection.refuse`."""

    def notification(self, notification: Notification) -> None:
        """Handle a notification."""

    def noise(self, noise: Noise | Stray) -> None:
        """Handle anything else: input that is not a message, a response without a request, a
        second request with an id that is still open, or a request refused as overloaded."""


class BatchHandlers(Protocol):
    """Handles many similar notifications at once; see `Connection.batches`.

    Called by the pump, and must not block.
    """

    def count_alike(self, events: Sequence[Event[Call]]) -> int:
        """Return how many messages at the start of `events` can be handled together by
        `notifications`."""

    def notifications(self, notifications: Sequence[Notification]) -> None:
        """Handle all these notifications, in this order."""


class Ignore:
    """Handlers without methods: requests are refused, the rest is dropped."""

    def attach(self, connection: Connection) -> None:
        pass

    def request(self, request: Request) -> Any:
        raise boundary.method_not_found(request.method)

    def notification(self, notification: Notification) -> None:
        pass

    def noise(self, noise: Noise | Stray) -> None:
        pass


class Later(enum.Enum):
    """The type of `LATER`."""

    LATER = "later"


LATER: Final = Later.LATER
"""Returned by a request handler that will call `Connection.answer` or `Connection.refuse` later,
once."""


class Responder:
    """The part of a `Connection` that handles the peer's requests. `Connection` sets the
    attributes."""

    name: str
    tasks: TaskOwner
    _failure: ConnectionLost | None
    _handlers: Handlers
    _outbox: Outbox
    _peer: PeerState[Call]
    _start: OrdinaryStart
    trace: TraceSink | None

    def _begin_answering(self) -> None:
        self._inbound: dict[Id, asyncio.Task[None]] = {}
        self._inbound_size = 0
        self._deferred: dict[Id, int] = {}
        """Sizes of the unanswered requests whose handler returned `LATER`, by request id."""

    # -- for the connection

    def fail(self, failure: ConnectionLost) -> None:
        raise NotImplementedError

    def _send(self, line: bytes) -> None:
        raise NotImplementedError

    def _noise(self, noise: Noise | Stray) -> None:
        raise NotImplementedError

    # -- for handlers

    def answer(self, request: Request, result: Any) -> None:
        """Answer a request whose handler returned `LATER`. Has no effect after the end of the
        connection."""
        self._inbound_size -= self._deferred.pop(request.id, 0)
        self._answer(request, result)

    def refuse(self, request: Request, code: int, message: str, data: Any = None) -> None:
        """Send an error response to a request whose handler returned `LATER`. Has no effect after
        the end of the connection."""
        self._inbound_size -= self._deferred.pop(request.id, 0)
        self._refuse(request, code, message, data)

    async def wait_answered(self) -> None:
        """Wait until no handler of an inbound request is running, except one that calls this.
        Requests whose handler returned `LATER` are not waited for."""
        here = asyncio.current_task()
        while waiting := [task for task in self._inbound.values() if task is not here]:
            await asyncio.wait(waiting)

    def cancel_inbound(self, id: Id) -> None:
        """Cancel the handler of an inbound request, whose response is then `REQUEST_CANCELLED`. Has
        no effect if no such handler is running."""
        task = self._inbound.get(id)
        if task is not None:
            cancel_soon(task)

    # -- inside

    def _request(self, request: Request) -> None:
        if self._failure is not None:
            return
        if (
            len(self._inbound) + len(self._deferred) >= MAX_INBOUND
            or self._inbound_size > MAX_INBOUND_SIZE
        ):
            self._refuse(request, codes.OVERLOADED, "too many requests at once", None)
            self._noise(Noise(request.line, "too many requests at once"))
            return
        try:
            result = self._handlers.request(request)
        except FOREIGN as error:
            self._refuse(request, *boundary.to_wire(error, request.method))
            return
        if type(result) is CoroutineType:
            task = self._start.begin(self._answer_later(request, result), request.method)
            if task is not None:
                self._inbound[request.id] = task
                self._inbound_size += len(request.line)
                if self._failure is not None:
                    # The connection ended during its first step, before the task was registered.
                    cancel_soon(task)
        elif result is LATER:
            # The request may already have been answered.
            if self._peer.is_open(request.id):
                self._deferred[request.id] = size = len(request.line)
                self._inbound_size += size
        else:
            self._answer(request, result)

    async def _answer_later(self, request: Request, work: Coroutine[Any, Any, Any]) -> None:
        try:
            try:
                result = await work
            except asyncio.CancelledError as error:
                if was_cancelled():
                    raise
                # The request was not cancelled: the handler let the cancellation of something else
                # escape.
                self._refuse(request, *boundary.to_wire(error, request.method))
                return
            except (SystemExit, KeyboardInterrupt, GeneratorExit):
                # These exceptions end the loop, or the task itself.
                raise
            except BaseException as error:  # noqa: BLE001 - handler to wire
                self._refuse(request, *boundary.to_wire(error, request.method))
                return
            if self._outbox.crowded and self._outbox.is_full:
                # Many long responses at once would overflow a reader that is only slow.
                with contextlib.suppress(ConnectionLost):
                    await self._outbox.drain()
            self._answer(request, result)
        except asyncio.CancelledError:
            # Either the peer cancelled it, or the connection is closing; then there is no peer to
            # respond to and `_refuse` does nothing.
            self._refuse(request, codes.REQUEST_CANCELLED, "the request was cancelled", None)
            raise
        finally:
            # A request that never had to wait was never registered.
            task = self._inbound.pop(request.id, None) if self._inbound else None
            if task is not None:
                self.tasks.forget(task)
                self._inbound_size -= len(request.line)

    def _answer(self, request: Request, result: Any) -> None:
        if self._failure is not None:
            return
        try:
            line = self._peer.result(request.id, result)
        except Exception as error:  # noqa: BLE001 - handler to wire: the result is the handler's
            self._refuse(request, *boundary.to_wire(error, request.method))
        else:
            if self.trace is not None:
                self.trace.record(self.name, "send", line)
            self._outbox.put(line)

    def _refuse(self, request: Request, code: int, message: str, data: Any) -> None:
        if self._failure is not None or not self._peer.is_open(request.id):
            return
        try:
            line = self._peer.failure(request.id, code, message, data)
        except Exception:
            log.exception("%s: the error response to %s cannot be sent", self.name, request.method)
            try:
                line = self._peer.failure(request.id, codes.INTERNAL_ERROR, "Internal error")
            except MessageTooLong:
                # The id is long and the limit low. Without a possible response the request would
                # stay open forever.
                problem = "a request cannot be answered: its id alone fills a line"
                self.fail(Overflow(problem, blame="peer", retryable=False))
                return
        self._send(line)
