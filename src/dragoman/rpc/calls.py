"""A call from its sending to its end.

Owns how a call settles: exactly once, with a result or an error, by whichever comes first of the
answer, the timeout, the caller who gives up and the end of the connection. It does not know how
requests are written or answers read; `connection` does, and `lanes` knows what `Waiter` waits for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from msgspec import Raw

from dragoman.errors import CallTimeout, DragomanError
from dragoman.rpc.lanes import HandlerLane
from dragoman.wire.messages import Id

log: Final = logging.getLogger("dragoman.rpc")

Settle: TypeAlias = Callable[[Raw | None, DragomanError | None], None]
"""Told once how a call ended: with a raw result, or with an error."""

FOREIGN: Final = (Exception, asyncio.CancelledError)
"""What a function that is called by the pump may raise. The pump is no task, so a `CancelledError`
here is no cancellation: the function looked at something that was cancelled."""


MAX_QUEUES: Final = 16
"""Different timeouts that share a timer; a caller that computes each anew gets one for each."""


class Call:
    """A call under way, begun with `Connection.begin`."""

    __slots__ = ("_forget", "_queue", "_settle", "_timer", "id", "line", "method")

    def __init__(self, method: str, settle: Settle, forget: Callable[[Call], None]) -> None:
        self._settle: Settle | None = settle
        self._forget = forget
        self._timer: asyncio.TimerHandle | None = None
        self._queue: dict[Call, float] | None = None
        self.id: Id = -1
        self.line: bytes | None = None
        """The line that answered it, unmodified, from its settling on; None without an answer."""
        self.method = method

    @property
    def settled(self) -> bool:
        return self._settle is None

    def settle(self, result: Raw | None, error: DragomanError | None) -> None:
        """Hand over the end of the call; all but the first are without effect."""
        settle, self._settle = self._settle, None
        if self._queue is not None:
            self._queue.pop(self, None)
        elif self._timer is not None:
            self._timer.cancel()
        if settle is not None:
            try:
                settle(result, error)
            except FOREIGN:
                # Others wait behind this one.
                log.exception("whoever called %s was told its end and failed", self.method)

    def give_up(self, error: DragomanError) -> None:
        """Stop waiting: forget the id, tell the other side, drop the answer should it come."""
        if self._settle is not None:
            self._forget(self)
            self.settle(None, error)

    def expire_after(self, timeout: float, *, left: float | None = None) -> None:
        """Give up after `timeout`, of which only `left` is left if some of it was waited away."""
        if self._settle is not None:
            loop = asyncio.get_running_loop()
            delay = timeout if left is None else left
            self._timer = loop.call_later(delay, self.expired, timeout)

    def expired(self, timeout: float) -> None:
        """Its time is up."""
        self.give_up(CallTimeout(self.method, timeout))


class Deadlines:
    """The calls of one connection that are given up when their time is up.

    Those with the same timeout run out in the order in which they were made, so one timer for the
    first of them is enough. A timer for each call costs as much as writing and reading it.
    """

    __slots__ = ("_loop", "_queues", "_timers")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queues: dict[float, dict[Call, float]] = {}
        self._timers: dict[float, asyncio.TimerHandle] = {}

    def add(self, call: Call, timeout: float) -> None:
        """Give the call up after `timeout`, unless it settles before."""
        queue = self._queues.get(timeout)
        if queue is None:
            if len(self._queues) >= MAX_QUEUES:
                call.expire_after(timeout)
                return
            queue = self._queues[timeout] = {}
        give_up_at = self._loop.time() + timeout
        queue[call] = give_up_at
        call._queue = queue
        if timeout not in self._timers:
            self._timers[timeout] = self._loop.call_at(give_up_at, self._due, timeout)

    def close(self) -> None:
        """The connection is over, and every call has settled."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._queues.clear()

    def _due(self, timeout: float) -> None:
        queue = self._queues[timeout]
        now = self._loop.time()
        for call, give_up_at in list(queue.items()):
            if give_up_at > now:
                break
            # It leaves the queue by settling. Whoever is told may make another call at once.
            call.expired(timeout)
        if queue:
            first = next(iter(queue.values()))
            self._timers[timeout] = self._loop.call_at(first, self._due, timeout)
        else:
            self._timers.pop(timeout, None)
            self._queues.pop(timeout, None)


class Waiter:
    """Settles a future; a caller that has gone meanwhile is no reason to fail."""

    __slots__ = ("_after", "future")

    def __init__(self, future: asyncio.Future[Raw], after: HandlerLane[Any] | None) -> None:
        self.future = future
        # A handler that waited for its own lane would wait for itself, and no timeout would help.
        self._after = None if after is not None and after.is_handling_here() else after

    def settle(self, result: Raw | None, error: DragomanError | None) -> None:
        # A timeout comes from here, not from the wire, and there is nothing for it to overtake.
        if self._after is None or isinstance(error, CallTimeout):
            # Written out, because this is how every call ends.
            if not self.future.done():
                if error is None:
                    self.future.set_result(result)  # type: ignore[arg-type]
                else:
                    self.future.set_exception(error)
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
