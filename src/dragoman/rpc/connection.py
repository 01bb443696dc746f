"""JSON-RPC connection over a stream: reads, dispatches and sends messages.

Handles the order of inbound messages, notifications, and the end of a connection; outbound requests
are in `calls`, and responses to inbound requests in `responder`. This is the message pump: no other
module reads and dispatches messages. Method names are not known here: a `Handlers` object gets
every inbound request and notification. Messages are delivered in wire order, and a response after
everything that came before it.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from msgspec import UNSET, Struct, field

from dragoman.errors import (
    CallError,
    ConnectionClosed,
    ConnectionLost,
    InvalidAnswer,
    LineTooLong,
    MessageTooLong,
    Overflow,
    UsageError,
)
from dragoman.rpc import boundary
from dragoman.rpc.calls import FOREIGN, Awaited, Call, Deadlines, Requester
from dragoman.rpc.lanes import Flow, Limits
from dragoman.rpc.outbox import Outbox
from dragoman.rpc.responder import BatchHandlers, Handlers, Ignore, Responder
from dragoman.rpc.standby import start_for
from dragoman.rpc.tasks import TaskOwner, cancel_soon, finish
from dragoman.transports.base import READ_SIZE, Stream
from dragoman.wire.framing import DEFAULT_MAX_LINE_SIZE
from dragoman.wire.messages import Id, Notification, Request, Reserved
from dragoman.wire.peer import (
    End,
    Event,
    Failed,
    Invalid,
    Noise,
    Overrun,
    PeerState,
    Repeated,
    ResultReceived,
    Stray,
)

if TYPE_CHECKING:
    from dragoman.rpc.trace import Trace, TraceSink

log: Final = logging.getLogger("dragoman.rpc")

TRACE_VARIABLE: Final = "DRAGOMAN_TRACE"
"""The environment variable with the path of the trace file of connections created without a
`trace` argument."""

_numbers = itertools.count(1)


class ConnectionSettings(Struct, frozen=True):
    """Settings of one connection, from the dialect or the user."""

    jsonrpc: bool = True
    """Whether to send the constant `jsonrpc` member."""
    half_duplex: bool = False
    """Whether only one call at a time may be open; others wait."""
    max_line_size: int = DEFAULT_MAX_LINE_SIZE
    limits: Limits = field(default_factory=Limits)
    cancel_notice: Callable[[Id], tuple[str, Any]] | None = None
    """Returns the method and params of the notification that cancels our call with this id. None
    if the dialect has no such notification."""
    reserved: Reserved | None = None
    """The name of a field that the dialect's values use only in memory, and that must never be
    sent. None if the dialect has no such field."""


class Connection(Requester, Responder):
    """A JSON-RPC connection over one stream; use it with ``async with``.

    Ends by itself when the stream does; `failure` then says why, and every pending call gets a copy
    of it.
    """

    def __init__(
        self,
        stream: Stream,
        end: End = End.CLIENT,
        handlers: Handlers | None = None,
        *,
        settings: ConnectionSettings | None = None,
        trace: TraceSink | Literal[False] | None = None,
        name: str = "",
    ) -> None:
        self.settings = settings or ConnectionSettings()
        self.name = name or f"{end.value}-{next(_numbers)}"
        self._stream = stream
        self._handlers: Handlers = handlers or Ignore()
        self._peer: PeerState[Call] = PeerState(
            end,
            jsonrpc=self.settings.jsonrpc,
            half_duplex=self.settings.half_duplex,
            max_line_size=self.settings.max_line_size,
            reserved=self.settings.reserved,
        )
        self.on_answer: Callable[[Call, CallError | None], None] | None = None
        """Called for every response to a call after the call is settled, with its error or None.
        `Call.line` is the response line."""
        self.on_end: Callable[[ConnectionLost], None] | None = None
        """Called once with the reason when the connection ends, after every call has settled and
        before the lanes end. This is where to end work that no call represents."""
        self.batches: BatchHandlers | None = None
        """If set, handles similar notifications at the start of a chunk together, in place of the
        handlers. This halves the cost of a message that is only forwarded."""
        # Cached, because getting it costs a system call each time.
        self._loop = asyncio.get_running_loop()
        self._half_duplex = self.settings.half_duplex
        self._later = False
        """Whether callers were woken that resume only in the next iteration of the event loop."""
        self._deadlines = Deadlines(
            self._loop, lambda: [request.slot for request in self._peer.unanswered]
        )
        self._started = False
        self.received = 0
        """Number of times that data was received, for health checks."""
        self._failure: ConnectionLost | None = None
        self._ended = asyncio.Event()
        self._turn = asyncio.Lock()
        self._begin_answering()
        self.tasks = TaskOwner(self.name)
        self._start = start_for(self.tasks)
        self._outbox = Outbox(stream, self.fail)
        self.flow = Flow(stream.pause_reading, stream.resume_reading, self.settings.limits)
        self._handlers.attach(self)
        # The trace is opened last: a failure above would leave it open.
        self.trace: TraceSink | None = trace_of_environment() if trace is None else (trace or None)
        self._owns_trace = trace is None

    # -- lifecycle

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    def start(self) -> None:
        """Start reading. May be called only once; `async with` calls it."""
        if self._started:
            raise UsageError("the connection was already started")
        self._started = True
        self._stream.start(self)

    @property
    def stream(self) -> Stream:
        """The stream of the connection, for inspection only: the connection reads and writes it."""
        return self._stream.carrier

    @property
    def failure(self) -> ConnectionLost | None:
        """Why the connection ended; None while it is open."""
        return self._failure

    @property
    def is_waiting(self) -> bool:
        """Whether a call of ours is unanswered."""
        return bool(self._peer.unanswered)

    async def wait_ended(self) -> ConnectionLost:
        """Wait for the end of the connection and return its reason."""
        await self._ended.wait()
        assert self._failure is not None
        return self._failure

    async def aclose(self) -> None:
        """Write the buffered lines and close the stream; then fail the pending calls, and cancel
        and await the handlers.

        A handler that closes its own connection is neither cancelled nor awaited.
        """
        self._outbox.flush()
        await finish(self._close(asyncio.current_task()))

    async def _close(self, closer: asyncio.Task[Any] | None) -> None:
        if self._peer.owes_answers:
            self._stream.carrier.hurry()
        try:
            await self._stream.aclose()
        finally:
            self.fail(ConnectionClosed())
            try:
                await self.tasks.aclose(spare=closer)
            finally:
                if self._owns_trace and self.trace is not None:
                    self.trace.close()
                    self.trace = None

    def hand_to(self, handlers: Handlers) -> None:
        """Pass all further messages to these handlers instead of the current ones."""
        handlers.attach(self)
        self._handlers = handlers

    # -- sending

    @property
    def is_full(self) -> bool:
        """Whether the peer reads too slowly: `notify` would wait."""
        return self._outbox.crowded and self._outbox.is_full

    async def notify(self, method: str, params: Any = UNSET) -> None:
        """Send a notification. Waits only while the peer reads too slowly. Raises `ConnectionLost`
        if the connection has ended, and `MessageTooLong` if the line exceeds the limit."""
        # Wait first: otherwise many concurrent senders would fill the buffer before the first
        # waits.
        if self._outbox.crowded and self._outbox.is_full:
            await self.drain()
        self.post(method, params)

    def tell(self, method: str, params: Any) -> Coroutine[Any, Any, None] | None:
        """Send a notification at once and return None, the usual case; or, if the peer reads too
        slowly, return a coroutine that must be awaited to send it. Raises like `notify`."""
        if self._failure is not None:
            raise self._failure.fresh()
        outbox = self._outbox
        if outbox.crowded and outbox.is_full:
            return self.notify(method, params)
        line = self._peer.notification(method, params)
        if self.trace is not None:
            self.trace.record(self.name, "send", line)
        outbox.put(line)
        return None

    def post(self, method: str, params: Any = UNSET) -> None:
        """Send a notification without waiting, even if the peer reads too slowly. Raises like
        `notify`."""
        if self._failure is not None:
            raise self._failure.fresh()
        line = self._peer.notification(method, params)
        if self.trace is not None:
            self.trace.record(self.name, "send", line)
        self._outbox.put(line)

    def pass_on(self, line: bytes) -> None:
        """Forward an encoded notification unchanged, without waiting. Raises `ConnectionLost` if
        the connection has ended, and `MessageTooLong` if `line` exceeds its `max_line_size`."""
        if self._failure is not None:
            raise self._failure.fresh()
        limit = self.settings.max_line_size
        if len(line) > limit:
            raise MessageTooLong(len(line), limit)
        if self.trace is not None:
            self.trace.record(self.name, "send", line)
        self._outbox.put(line)

    def pass_all_on(self, lines: Sequence[bytes]) -> None:
        """Like `pass_on`, for many lines at once. If one of them is too long, none is sent."""
        if self._failure is not None:
            raise self._failure.fresh()
        limit = self.settings.max_line_size
        longest = max(map(len, lines), default=0)
        if longest > limit:
            raise MessageTooLong(longest, limit)
        if self.trace is not None:
            for line in lines:
                self.trace.record(self.name, "send", line)
        self._outbox.put_all(lines)

    async def drain(self) -> None:
        """Write the buffered lines, and wait until the operating system has accepted all but
        `HIGH_WATER_SIZE` bytes."""
        try:
            await self._outbox.drain()
        except ConnectionLost:
            if self._failure is not None:
                # The stream only knows that it was closed, not why.
                raise self._failure.fresh() from None
            raise

    # -- receiving (called by the stream)

    def data_received(self, data: bytes) -> None:
        if self._failure is not None:
            return
        self.received += 1
        outbox = self._outbox
        outbox.held = True
        lone = False
        if len(data) >= READ_SIZE:
            # There may be more, which is then delivered in this same loop iteration.
            self._let_go_on_later()
        answered: Awaited | None = None
        try:
            events = self._peer.receive(data)
            lone = len(events) == 1
            # Messages before a response must be handled before it, so none may be queued.
            answered = self._dispatch(
                events, alone=lone and not self.flow.queued and not self._later
            )
        finally:
            try:
                outbox.release(lone=lone)
            except BaseException:
                if answered is not None:
                    answered.wake_soon()
                raise
        if answered is not None:
            answered.wake_now()

    def stream_ended(self, failure: ConnectionLost) -> None:
        if self._failure is None:
            self._dispatch(self._peer.receive_end())
        self.fail(failure)

    def _dispatch(self, events: list[Event[Call]], *, alone: bool = False) -> Awaited | None:
        """Dispatch the events. If the only one is the response to an `Awaited` call and may be
        delivered now (`alone`), the call is returned, for the caller to wake."""
        answered: Awaited | None = None
        later = False
        if self.trace is not None:
            self.trace.record_received(self.name, events)
        if self.batches is not None and len(events) > 1:
            count = self.batches.count_alike(events)
            if count > 1:
                try:
                    self.batches.notifications(events[:count])  # type: ignore[arg-type]
                except FOREIGN:
                    log.exception("%s: the handler of notifications failed", self.name)
                del events[:count]
        notification = self._handlers.notification
        for event in events:
            kind = type(event)
            if kind is Notification:
                try:
                    notification(event)  # type: ignore[arg-type]
                except FOREIGN:
                    log.exception("%s: the handler of a notification failed", self.name)
            elif kind is ResultReceived:
                call: Call = event.slot  # type: ignore[union-attr]
                call.line = event.line  # type: ignore[union-attr]
                future = call.future
                # `Call.settle` written out twice, because nearly every call ends this way.
                if future is not None:
                    call.future = None
                    if not future.done():
                        future.set_result(event.result)  # type: ignore[union-attr]
                        later = True
                elif type(call) is Awaited and not call.over:
                    call.over = True
                    call.answer = event.result  # type: ignore[union-attr]
                    if alone:
                        answered = call
                    else:
                        call.wake_soon()
                        later = True
                else:
                    call.settle(event.result, None)  # type: ignore[union-attr]
                if self.on_answer is not None:
                    self._tell_answer(call, None)
            elif kind is Request:
                self._request(event)  # type: ignore[arg-type]
            else:
                self._rare(event)
        if later:
            self._let_go_on_later()
        return answered

    def _let_go_on_later(self) -> None:
        """Until the end of this loop iteration, wake no caller directly: it would resume before
        those that were already woken."""
        if not self._later:
            self._later = True
            self._loop.call_soon(self._turn_over)

    def _turn_over(self) -> None:
        self._later = False

    def _rare(self, event: Event[Call]) -> None:
        match event:
            case Failed(slot=call, error=error, line=line):
                failure = boundary.from_wire(error.code, error.message, error.data)
                self._settle_failed(call, failure, line)
            case Invalid(slot=call, reason=reason, line=line):
                answer = InvalidAnswer(f"invalid response to {call.method}: {reason}")
                self._settle_failed(call, answer, line)
            case Repeated(request=request, reply=reply):
                self._send(reply)
                self._noise(Noise(request.line, "a request with an id that is still open"))
            case Noise(reply=reply):
                if reply is not None:
                    self._send(reply)
                self._noise(event)
            case Stray():
                self._noise(event)
            case Overrun(error=error):
                self.fail(error)
            case _:  # pragma: no cover - the common kinds are handled by the caller
                raise AssertionError(event)

    def _settle_failed(self, call: Call, error: CallError, line: bytes) -> None:
        call.line = line
        call.settle(None, error)
        self._let_go_on_later()
        if self.on_answer is not None:
            self._tell_answer(call, error)

    def _tell_answer(self, call: Call, error: CallError | None) -> None:
        assert self.on_answer is not None
        try:
            self.on_answer(call, error)
        except FOREIGN:
            log.exception("%s: the callback for responses failed", self.name)
        except BaseException:
            # The process is about to end, but a caller whose response is here must still get it.
            if type(call) is Awaited:
                call.wake_soon()
            raise

    def _noise(self, noise: Noise | Stray) -> None:
        try:
            self._handlers.noise(noise)
        except FOREIGN:
            log.exception("%s: the handler of unexpected input failed", self.name)

    # -- inside

    def _send(self, line: bytes) -> None:
        if self.trace is not None:
            self.trace.record(self.name, "send", line)
        self._outbox.put(line)

    def fail(self, failure: ConnectionLost) -> None:
        """End the connection because of `failure`, and settle every pending call with a copy of it.
        Only the first call has an effect."""
        if self._failure is not None:
            return
        self._failure = failure
        waiting = self._peer.unanswered
        if waiting:
            names = ", ".join(sorted({request.method for request in waiting}))
            log.debug("%s: ended with %d unanswered requests: %s", self.name, len(waiting), names)
        for request in waiting:
            error = failure.fresh()
            error.may_have_run = True
            request.slot.settle(None, error)
        if self.on_end is not None:
            try:
                self.on_end(failure)
            except FOREIGN:
                log.exception("%s: the callback for the end of the connection failed", self.name)
        self._start.dismiss()
        # There is no peer to respond to any more. Items queued before the end are still handled.
        for task in self._inbound.values():
            cancel_soon(task)
        self._deadlines.close()
        self.flow.close(failure)
        self._ended.set()
        if isinstance(failure, Overflow | LineTooLong):
            # The stream itself is still open, but nothing useful can come from it any more.
            self._stream.pause_reading()
            self.tasks.start(self._stream.aclose(), "close the stream")


def trace_of_environment() -> Trace | None:
    """Return the trace that `TRACE_VARIABLE` requests, or None."""
    if not os.environ.get(TRACE_VARIABLE):
        return None
    # Not at the top: a program without a trace does not load it.
    from dragoman.rpc.trace import from_environment

    return from_environment()
