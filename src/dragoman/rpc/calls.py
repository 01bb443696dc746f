"""Calls: how a request is sent and how it settles.

A call settles exactly once, with a result or an error: at the response, the timeout, the caller's
cancellation or the end of the connection, whichever comes first. `Requester` is the part of a
connection that sends requests; `connection` reads the responses, and `lanes` has the queues that
`Behind` waits for.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import math
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from msgspec import UNSET, Raw, Struct

from dragoman.errors import (
    CallTimeout,
    ConnectionClosed,
    ConnectionLost,
    DragomanError,
    InvalidAnswer,
    RemoteError,
)
from dragoman.rpc.lanes import Flow, HandlerLane, consuming
from dragoman.wire.messages import UNDECODABLE, Id

if TYPE_CHECKING:
    from dragoman.rpc.connection import ConnectionSettings
    from dragoman.rpc.outbox import Outbox
    from dragoman.rpc.trace import TraceSink
    from dragoman.wire.peer import PeerState

T = TypeVar("T")

log: Final = logging.getLogger("dragoman.rpc")

Settle: TypeAlias = Callable[[Raw | None, DragomanError | None], None]
"""Called once when a call ends: with a raw result, or with an error."""

FOREIGN: Final = (Exception, asyncio.CancelledError)
"""Exceptions to catch from functions that the pump calls. The pump is not a task, so a
`CancelledError` here is not a cancellation: the function awaited or read something that was
cancelled."""


class Call(Struct, eq=False):
    """A call to the peer, as returned by `Connection.begin`: pending or settled."""

    # A Struct because one is created for every call: that takes a third of the time of a class with
    # an `__init__`.
    method: str
    forget: Callable[[Call], None]
    """Called when the call is given up before it has settled."""
    tell: Settle | None = None
    """The completion callback; None once it was called, or if a task awaits the call."""
    future: asyncio.Future[Raw] | None = None
    """Receives the result or the error, if a task awaits the call while other calls are pending.
    None otherwise, and once the call is settled."""
    timeout: float = math.inf
    give_up_at: float = math.inf
    """When to give up, by the clock of `Deadlines`."""
    id: Id = -1
    line: bytes | None = None
    """The response line, unmodified, once the call is settled; None without a response."""

    @property
    def settled(self) -> bool:
        return self.tell is None and self.future is None

    def settle(self, result: Raw | None, error: DragomanError | None) -> None:
        """Settle the call with a result or an error. Only the first time has an effect."""
        future, self.future = self.future, None
        if future is not None:
            # A caller that is already gone is not an error.
            if future.done():
                return
            if error is None:
                future.set_result(result)  # type: ignore[arg-type]
            else:
                future.set_exception(error)
            return
        tell, self.tell = self.tell, None
        if tell is not None:
            try:
                tell(result, error)
            except FOREIGN:
                # Other calls must still be settled.
                log.exception("the completion callback of %s failed", self.method)

    def give_up(self, error: DragomanError) -> None:
        """Give up the call, unless it is settled: notify the peer, if the dialect can express that,
        and settle the call with `error`. A late response is only reported as noise."""
        if not self.settled:
            self.forget(self)
            self.settle(None, error)


class Awaited(Call, eq=False):
    """A call that acts as its own future, with the methods that a task uses. One task awaits it.

    A future resumes its task one loop iteration later, which costs as much as reading the response.
    `wake_now` resumes it at once, inside the callback that read the response; `connection` decides
    when that is safe.
    """

    _loop: asyncio.AbstractEventLoop | None = None
    """asyncio reads this attribute of a future that has no method `get_loop`. That saves a call."""
    answer: Raw | None = None
    error: DragomanError | None = None
    over: bool = False
    called_off: tuple[Any, ...] | None = None
    """The arguments of the `CancelledError`, if the task was cancelled while it waited; any later
    result is dropped."""
    wake: Callable[[Awaited], object] | None = None
    """Resumes the task."""
    context: contextvars.Context | None = None
    _asyncio_future_blocking: bool = False

    @property
    def settled(self) -> bool:
        return self.over

    def settle(self, result: Raw | None, error: DragomanError | None) -> None:
        if not self.over:
            self.over = True
            self.answer = result
            self.error = error
            if self.called_off is None:
                self.wake_soon()

    def wake_soon(self) -> None:
        """Resume the task in the next iteration of the event loop, if it waits."""
        wake, self.wake = self.wake, None
        if wake is not None:
            assert self._loop is not None
            context, self.context = self.context, None
            self._loop.call_soon(wake, self, context=context)

    def wake_now(self) -> None:
        """Resume the task at once. Call it from a callback of the event loop, as the last
        statement: the next step of the task runs inside it."""
        wake, self.wake = self.wake, None
        if wake is not None:
            context, self.context = self.context, None
            assert context is not None
            try:
                context.run(wake, self)
            except RuntimeError:
                # Not started: the data was delivered by a task, or in the context of this one, and
                # no second task can run inside it. (Errors of the task itself stay in the task.)
                self.add_done_callback(wake, context=context)

    # -- the interface of a future

    def __await__(self) -> Generator[Any, None, Raw]:
        try:
            if self.over:
                return self.result()
            self._asyncio_future_blocking = True
            # The task calls `result` before it resumes this, and throws what that raises.
            yield self
            assert self.answer is not None
            return self.answer
        finally:
            # An exception references the frames that it passed through, and so all variables of the
            # caller: code that keeps the call must not keep those.
            self.error = None

    def add_done_callback(
        self, wake: Callable[[Awaited], object], *, context: contextvars.Context
    ) -> None:
        self.wake = wake
        self.context = context
        if self.over or self.called_off is not None:
            # Work that another task continues (see `standby`) starts to wait one loop iteration
            # late, and the call may have settled by then.
            self.wake_soon()

    def cancel(self, msg: Any = None) -> bool:
        if self.over or self.called_off is not None:
            return False
        self.called_off = () if msg is None else (msg,)
        self.wake_soon()
        return True

    def result(self) -> Raw:
        if self.called_off is not None:
            raise asyncio.CancelledError(*self.called_off)
        if self.error is not None:
            raise self.error
        assert self.answer is not None
        return self.answer

    def __repr__(self) -> str:
        # The repr of a waiting task includes what it waits for, so this must not include the task.
        return f"<call {self.id} of {self.method}>"


class Deadlines:
    """Times out the calls of one connection.

    It has one timer, for the earliest deadline. A timer for each call, or a queue, would cost as
    much as writing and reading the call; an occasional scan of all open calls is nearly free.
    """

    __slots__ = ("_loop", "_open", "_timer", "due_at")

    clock = staticmethod(time.monotonic)

    def __init__(
        self, loop: asyncio.AbstractEventLoop, open_calls: Callable[[], Iterable[Call]]
    ) -> None:
        self._loop = loop
        self._open = open_calls
        self._timer: asyncio.TimerHandle | None = None
        self.due_at = math.inf
        """When to scan next; infinity if no call has a timeout."""

    def add(self, call: Call, timeout: float, *, left: float | None = None) -> None:
        """Time out an open call after `timeout` seconds, unless it settles before.

        If the call has already waited for a part of `timeout`, `left` is the rest.
        """
        call.timeout = timeout
        call.give_up_at = self.clock() + (timeout if left is None else left)
        if call.give_up_at < self.due_at:
            self.look_at(call.give_up_at)

    def look_at(self, due_at: float) -> None:
        """Schedule the next scan for expired calls, in place of one that is already scheduled.
        `due_at` is a time of `clock`."""
        if self._timer is not None:
            self._timer.cancel()
        self.due_at = due_at
        self._timer = self._loop.call_later(due_at - self.clock(), self._due)

    def close(self) -> None:
        """Stop the timer: the connection has ended, and every call has settled."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _due(self) -> None:
        self._timer = None
        self.due_at = math.inf
        now = self.clock()
        due = [call for call in self._open() if call.give_up_at <= now]
        for call in sorted(due, key=lambda call: call.give_up_at):
            # A completion callback may make another call, or end the connection and with it the
            # other calls.
            call.give_up(CallTimeout(call.method, call.timeout))
        left = (call.give_up_at for call in self._open() if not call.settled)
        next_at = min(left, default=math.inf)
        if next_at < self.due_at:
            self.look_at(next_at)


class Behind:
    """Settles a future with the result or error of a call, once a lane has handled everything that
    came before the response. A timeout settles it at once."""

    __slots__ = ("_after", "future")

    def __init__(self, future: asyncio.Future[Raw], after: HandlerLane[Any]) -> None:
        self.future = future
        self._after = after

    def settle(self, result: Raw | None, error: DragomanError | None) -> None:
        if isinstance(error, CallTimeout):
            # The error does not come from the wire, so it cannot overtake anything.
            self._hand_over(result, error)
        else:
            self._after.after(lambda: self._hand_over(result, error))

    def _hand_over(self, result: Raw | None, error: DragomanError | None) -> None:
        if self.future.done():
            return
        if error is not None:
            self.future.set_exception(error)
        else:
            assert result is not None
            self.future.set_result(result)


class Requester:
    """The part of a `Connection` that sends requests and waits for their responses. `Connection`
    sets the attributes."""

    name: str
    flow: Flow
    settings: ConnectionSettings
    _deadlines: Deadlines
    _failure: ConnectionLost | None
    _half_duplex: bool
    _loop: asyncio.AbstractEventLoop
    _outbox: Outbox
    _peer: PeerState[Call]
    trace: TraceSink | None
    _turn: asyncio.Lock

    # -- for the connection

    def post(self, method: str, params: Any = UNSET) -> None:
        raise NotImplementedError

    async def drain(self) -> None:
        raise NotImplementedError

    # -- calls

    def begin(
        self,
        method: str,
        params: Any = UNSET,
        *,
        settle: Settle,
        timeout: float | None = None,
    ) -> Call:
        """Send a request without waiting, and return the pending call.

        `settle` is called once with the result or the error, in wire order; after `timeout` seconds
        the error is `CallTimeout`. Because this does not even wait for room in the buffer, await
        `wait_for_room` before a long request. Raises `ConnectionLost` if the connection has ended.
        """
        if self._failure is not None:
            raise self._failure.fresh()
        call = Call(method, self._forget, settle)
        call.id, line = self._peer.request(method, call, params)
        if self.trace is not None:
            self.trace.record(self.name, "send", line)
        self._outbox.put(line)
        if timeout is not None:
            self._deadlines.add(call, timeout)
        return call

    def expect_late(self, call: Call, timeout: float) -> None:
        """Notify the peer that an open call is cancelled, but keep the call open for `timeout`
        seconds, because its response may still name something that must be undone. Has no effect if
        the call is settled or the connection has ended."""
        if self._failure is None and not call.settled:
            self._notify_cancelled(call)
            self._deadlines.add(call, timeout)

    def call(
        self,
        method: str,
        params: Any = UNSET,
        *,
        timeout: float | None = None,
        after: HandlerLane[Any] | None = None,
    ) -> Coroutine[Any, Any, Raw]:
        """Send a request and wait for its raw result.

        With `after`, the result is also held back until that lane has handled everything that came
        before it (but not if called from a handler of that lane, which would wait for itself).

        Raises `RemoteError` if the peer responds with an error, `CallTimeout` after `timeout`
        seconds, or the `ConnectionLost` that ended the connection. If the caller is cancelled, the
        call is abandoned.
        """
        if self._half_duplex or (self._outbox.crowded and self._outbox.is_full):
            return self._call_later(method, params, None, timeout, None, after)
        # Returned rather than awaited: saves a coroutine for every call.
        return self._call(method, params, None, timeout, None, after)

    def ask(
        self,
        method: str,
        params: Any,
        decode: Callable[[Raw], T],
        *,
        timeout: float | None = None,
        explain: Callable[[RemoteError], Exception] | None = None,
    ) -> Coroutine[Any, Any, T]:
        """Like `call`, but return the result decoded by `decode`.

        Raises `InvalidAnswer` if `decode` raises one of the errors in `wire.messages.UNDECODABLE`.
        If the peer responds with an error and `explain` is given, raises the exception that
        `explain` returns for that error.
        """
        if self._half_duplex or (self._outbox.crowded and self._outbox.is_full):
            return self._call_later(method, params, decode, timeout, explain, None)
        return self._call(method, params, decode, timeout, explain, None)

    async def wait_for_room(self, method: str, timeout: float) -> None:
        """Wait while the peer reads too slowly, before a request is sent with `begin`. Raises
        `CallTimeout` after `timeout` seconds, or the `ConnectionLost` that ended the connection."""
        if self._outbox.is_full:
            try:
                async with asyncio.timeout(timeout):
                    await self.drain()
            except TimeoutError:
                raise not_sent(method, timeout, _NOT_READ) from None

    async def _call_later(
        self,
        method: str,
        params: Any,
        decode: Callable[[Raw], Any] | None,
        timeout: float | None,
        explain: Callable[[RemoteError], Exception] | None,
        after: HandlerLane[Any] | None,
    ) -> Any:
        """Make a call that may have to wait before it is sent; the wait counts against its
        timeout."""
        loop = asyncio.get_running_loop()
        give_up_at = None if timeout is None else loop.time() + timeout
        half_duplex = self._half_duplex
        why = _NOT_READ
        try:
            async with asyncio.timeout_at(give_up_at):
                if self._outbox.is_full:
                    await self.drain()
                if half_duplex:
                    why = "an earlier request is still unanswered"
                    await self._turn.acquire()
        except TimeoutError:
            assert timeout is not None
            raise not_sent(method, timeout, why) from None
        try:
            left = None if give_up_at is None else give_up_at - loop.time()
            return await self._call(method, params, decode, timeout, explain, after, left)
        finally:
            if half_duplex:
                self._turn.release()

    async def _call(
        self,
        method: str,
        params: Any,
        decode: Callable[[Raw], Any] | None,
        timeout: float | None,
        explain: Callable[[RemoteError], Exception] | None,
        after: HandlerLane[Any] | None,
        left: float | None = None,
    ) -> Any:
        # `begin` written out: every call comes this way.
        if self._failure is not None:
            raise self._failure.fresh()
        call: Call
        waiting: Awaitable[Raw]
        # A handler that waited for its own lane would wait for itself, and no timeout would help.
        if after is not None and not after.is_handling_here():
            future: asyncio.Future[Raw] = asyncio.Future(loop=self._loop)
            call = Call(method, self._forget, Behind(future, after).settle)
            waiting = future
        elif self._peer.pending:
            # If many calls wait at once, responses rarely come alone, and a future is cheaper.
            waiting = future = asyncio.Future(loop=self._loop)
            call = Call(method, self._forget, None, future)
        else:
            call = waiting = Awaited(method, self._forget, _loop=self._loop)
        call.id, line = self._peer.request(method, call, params)
        if self.trace is not None:
            self.trace.record(self.name, "send", line)
        self._outbox.put(line)
        if timeout is not None:
            self._deadlines.add(call, timeout, left=left)
        try:
            if consuming.get() is not self.flow:
                raw = await waiting
            else:
                raw = await self._wait_in_handler(waiting)
            return raw if decode is None else decode(raw)
        except asyncio.CancelledError:
            call.give_up(ConnectionClosed("the caller was cancelled"))
            raise
        except RemoteError as error:
            if explain is None:
                raise
            explained = explain(error)
            if explained is error:
                raise
            raise explained from error
        except UNDECODABLE as error:
            raise InvalidAnswer(f"invalid response to {method}: {error}") from error

    async def _wait_in_handler(self, waiting: Awaitable[Raw]) -> Raw:
        """Wait for a response in a handler of a queued message. Reading must continue meanwhile
        (see `lanes`)."""
        self.flow.calling += 1
        try:
            self.flow.evaluate()
            return await waiting
        finally:
            self.flow.calling -= 1

    def _forget(self, call: Call) -> None:
        """Abandon a call: drop a late response, and notify the peer."""
        if self._failure is not None:
            return
        self._peer.abandon(call.id)
        self._notify_cancelled(call)

    def _notify_cancelled(self, call: Call) -> None:
        if self.settings.cancel_notice is not None:
            try:
                self.post(*self.settings.cancel_notice(call.id))
            except Exception:
                # The caller must not wait for a notice that cannot be sent.
                log.exception(
                    "%s: the cancellation of %s could not be sent", self.name, call.method
                )


_NOT_READ: Final = "the other side is not reading its input"


def not_sent(method: str, timeout: float, why: str) -> CallTimeout:
    """Return the error for a request that could not be sent in time, and so cannot have run."""
    error = CallTimeout(method, timeout)
    error.args = (f"{method} was not sent within {timeout:g} s: {why}",)
    error.may_have_run = False
    return error
