"""Answer inbound requests: run their handlers and send exactly one response for each.

Tracks the handler tasks, limits how many requests are open at once, and turns results and errors
into responses. Base class of `connection.Connection`. `Handlers` is the interface to the code that
knows the methods; its usual implementation, from tables, is in `router`.
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
"""Requests of the other side handled at once; the next is refused as overloaded, unexecuted."""

MAX_INBOUND_SIZE: Final = 64 * 1024 * 1024
"""Bytes of the requests handled at once above which the next is refused too: each keeps its line
until it is answered, and a handler may take its time."""


class Handlers(Protocol):
    """What the owner of a connection makes of what comes in.

    All methods are called by the pump, in wire order, and must not block.
    """

    def attach(self, connection: Connection) -> None:
        """Called once, before anything else, with the connection that is being served."""

    def request(self, request: Request) -> Any:
        """Answer a request: return the result, or a coroutine that will. Raise to refuse. Whoever
        returns `LATER` answers by `Connection.answer` or `Connection.refuse`."""

    def notification(self, notification: Notification) -> None:
        """Take note."""

    def noise(self, noise: Noise | Stray) -> None:
        """Something came that is no message, an answer that fits no question, a second request
        with an id that is still open, or one too many at once."""


class BatchHandlers(Protocol):
    """Takes many notifications at once that would each be handled alike: see `Connection.batches`.

    Called by the pump, and must not block.
    """

    def count_alike(self, events: Sequence[Event[Call]]) -> int:
        """How many messages at the beginning of what came in `notifications` takes together."""

    def notifications(self, notifications: Sequence[Notification]) -> None:
        """Take note of all of them, in this order."""


class Ignore:
    """Handlers that know no method: requests are refused, the rest is dropped."""

    def attach(self, connection: Connection) -> None:
        pass

    def request(self, request: Request) -> Any:
        raise boundary.method_not_found(request.method)

    def notification(self, notification: Notification) -> None:
        pass

    def noise(self, noise: Noise | Stray) -> None:
        pass


class Later(enum.Enum):
    """What a handler returns that will answer by itself."""

    LATER = "later"


LATER: Final = Later.LATER
"""Returned by a handler of a request: somebody will call `answer` or `refuse` for it, once."""


class Responder:
    """Handles what the other side asks. The attributes are those of `Connection`."""

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
        """Requests that somebody will answer later, with their sizes."""

    # -- for the connection

    def fail(self, failure: ConnectionLost) -> None:
        raise NotImplementedError

    def _send(self, line: bytes) -> None:
        raise NotImplementedError

    def _noise(self, noise: Noise | Stray) -> None:
        raise NotImplementedError

    # -- for handlers

    def answer(self, request: Request, result: Any) -> None:
        """Answer a request whose handler returned `LATER`. Nothing happens after the end."""
        self._inbound_size -= self._deferred.pop(request.id, 0)
        self._answer(request, result)

    def refuse(self, request: Request, code: int, message: str, data: Any = None) -> None:
        """Refuse a request whose handler returned `LATER`."""
        self._inbound_size -= self._deferred.pop(request.id, 0)
        self._refuse(request, code, message, data)

    async def wait_answered(self) -> None:
        """Wait until no request of theirs is being handled, but for the one that waits here."""
        here = asyncio.current_task()
        while waiting := [task for task in self._inbound.values() if task is not here]:
            await asyncio.wait(waiting)

    def cancel_inbound(self, id: Id) -> None:
        """Cancel the handler of a request of theirs; it is answered as cancelled."""
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
            self._noise(Noise(request.line, "a request too many at once"))
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
                    # The connection ended in its first step, when it did not stand here yet.
                    cancel_soon(task)
        elif result is LATER:
            # It may have been answered before this.
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
                # Nobody called the request off: the handler let the end of something else escape.
                self._refuse(request, *boundary.to_wire(error, request.method))
                return
            except (SystemExit, KeyboardInterrupt, GeneratorExit):
                # These end the loop, or the task itself.
                raise
            except BaseException as error:  # noqa: BLE001 - handler to wire
                self._refuse(request, *boundary.to_wire(error, request.method))
                return
            if self._outbox.crowded and self._outbox.is_full:
                # Many long answers at once would overflow a reader that only needs its time.
                with contextlib.suppress(ConnectionLost):
                    await self._outbox.drain()
            self._answer(request, result)
        except asyncio.CancelledError:
            # Either the other side called it off, or the connection is going down; then there is
            # nobody to answer and `_refuse` does nothing.
            self._refuse(request, codes.REQUEST_CANCELLED, "the request was cancelled", None)
            raise
        finally:
            # One that never had to wait never stood there.
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
            log.exception("%s: the error of %s cannot be sent", self.name, request.method)
            try:
                line = self._peer.failure(request.id, codes.INTERNAL_ERROR, "Internal error")
            except MessageTooLong:
                # A long id and a low limit. What can never be answered would stay open for ever.
                self.fail(Overflow("a request cannot be answered: its id alone fills a line"))
                return
        self._send(line)
