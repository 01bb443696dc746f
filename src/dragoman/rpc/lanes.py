"""Ordered queues between the pump and its consumers, and their limits.

Handles back-pressure on reading. It knows how much is queued, not the content.

What happens if a consumer is slower than the peer:

1. Above `soft_size`, reading pauses; the full pipe then stops the peer.
2. If reading is paused and the consumer waits for a response on this same connection (a handler
   that makes a call, or no progress for `stall_interval`), reading continues, or the two would
   wait for each other forever. Memory may then grow to `hard_size`.
3. Above `hard_size` reading pauses in any case. If nothing is taken for `overflow_timeout`, the
   largest lane is cut: its consumer gets what was queued and then `Overflow`. The connection and
   all other lanes continue.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Final, Generic, TypeVar

from msgspec import Struct

from dragoman.errors import ConnectionLost, Overflow, UsageError
from dragoman.rpc.tasks import TaskOwner, was_cancelled

T = TypeVar("T")

log: Final = logging.getLogger("dragoman.rpc")

ITEM_SIZE: Final = 512
"""Number of bytes counted for every queued item in addition to its line: about the size of a small
decoded message."""

UNHURRIED_INTERVAL: Final = 0.02
"""Seconds until a consumer is woken for an item that is not urgent: short enough to go unnoticed,
and long enough that hundreds of such items in a row wake it once. With a quarter of this, answering
permission requests in a row took 5 % more CPU time: the kernel programs its timer anew for every
wait that may end before its next tick."""


class Limits(Struct, frozen=True):
    """The limits for queued items on one connection, all lanes together, in bytes and seconds. The
    module's docstring says what each does."""

    soft_size: int = 4 * 1024 * 1024
    hard_size: int = 32 * 1024 * 1024
    stall_interval: float = 1.0
    overflow_timeout: float = 60.0


consuming: ContextVar[Flow | None] = ContextVar("consuming", default=None)
"""The flow whose item is being handled in this context. While the handler waits for a response on
the same connection, reading must continue."""


class Flow:
    """Tracks how much is queued on one connection, and pauses and resumes reading accordingly."""

    __slots__ = (
        "_failure",
        "_lanes",
        "_limits",
        "_loop",
        "_pause",
        "_resume",
        "_taken_at_check",
        "_timer",
        "blocked",
        "calling",
        "held",
        "paused",
        "queued",
        "soft_size",
        "stalled",
        "taken",
    )

    def __init__(
        self, pause: Callable[[], None], resume: Callable[[], None], limits: Limits
    ) -> None:
        self._pause = pause
        self._resume = resume
        self._limits = limits
        self.soft_size = limits.soft_size
        self._loop = asyncio.get_running_loop()
        self._lanes: set[Lane[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._failure: ConnectionLost | None = None
        self._taken_at_check = 0
        self.queued = 0
        self.taken = 0
        self.calling = 0
        """Number of handlers of this connection's items that wait for a response on it right
        now."""
        self.held = 0
        """Number of holders that want reading paused, however little is queued."""
        self.stalled = False
        self.paused = False
        self.blocked = False
        """Whether more than `soft_size` is queued. Stored, so that the usual case costs a single
        check."""

    def evaluate(self) -> None:
        """Pause or resume reading by the rules in the module's docstring. Call it after every
        change."""
        if self._failure is not None:
            return
        limits = self._limits
        self.blocked = self.queued > limits.soft_size
        wanted = self.queued > limits.hard_size or (
            self.blocked and not self.calling and not self.stalled
        )
        pausing = wanted or self.held > 0
        if pausing and not self.paused:
            self.paused = True
            self._pause()
        elif not pausing and self.paused:
            self.paused = False
            self._resume()
        # While reading is held, no queue is the reason, so no queue is checked for a stall.
        if wanted and self._timer is None:
            self._arm()
        elif not wanted and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def hold(self) -> None:
        """Stop reading until every holder has called `release`."""
        self.held += 1
        self.evaluate()

    def release(self) -> None:
        """Resume reading, unless there is another holder or the limits are reached."""
        self.held -= 1
        self.evaluate()

    def progressed(self) -> None:
        """Called when an item was taken while `blocked`."""
        self.stalled = False
        self.evaluate()

    def close(self, failure: ConnectionLost) -> None:
        """End every lane after its remaining items, because the connection has ended."""
        self._failure = failure
        self.blocked = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for lane in self._lanes:
            lane.end(failure)
        self._lanes.clear()

    def join(self, lane: Lane[Any]) -> None:
        if self._failure is not None:
            lane.end(self._failure)
        else:
            self._lanes.add(lane)

    def leave(self, lane: Lane[Any]) -> None:
        self._lanes.discard(lane)

    def _arm(self) -> None:
        full = self.queued > self._limits.hard_size
        delay = self._limits.overflow_timeout if full else self._limits.stall_interval
        self._taken_at_check = self.taken
        self._timer = self._loop.call_later(delay, self._check, full)

    def _check(self, full: bool) -> None:
        self._timer = None
        if self.taken == self._taken_at_check:
            if full:
                self._cut_largest()
            else:
                self.stalled = True
        self.evaluate()

    def _cut_largest(self) -> None:
        lane = max(self._lanes, key=lambda lane: lane.size, default=None)
        if lane is not None:
            log.warning(
                "a consumer did not read for %g s; dropping its further messages",
                self._limits.overflow_timeout,
            )
            lane.end(
                Overflow(
                    "messages were dropped because they were not read: "
                    f"{lane.size} bytes waited for {self._limits.overflow_timeout:g} s",
                    # The other side sends these messages because it works, for example on a prompt.
                    may_have_run=True,
                )
            )
            # The items of the cut lane stay readable, but it no longer blocks the other lanes.
            self.queued -= lane.size
            lane.size = 0
            self.leave(lane)


class Lane(Generic[T]):
    """An ordered queue with one consumer."""

    __slots__ = ("_ended", "_flow", "_loop", "_timer", "_waiter", "items", "size")

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._loop = asyncio.get_running_loop()
        self.items: deque[T] = deque()
        """The queued items, oldest first: for inspection before waiting, not to be changed."""
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._ended: ConnectionLost | None = None
        self.size = 0
        flow.join(self)

    def __len__(self) -> int:
        return len(self.items)

    @property
    def ended(self) -> ConnectionLost | None:
        return self._ended

    def put(self, item: T, size: int) -> None:
        """Queue an item that came in `size` bytes, or drop it if the lane has ended."""
        if self._ended is not None:
            return
        self.items.append(item)
        size += ITEM_SIZE
        self.size += size
        flow = self._flow
        flow.queued = queued = flow.queued + size
        if self._waiter is not None:
            self.wake()
        if queued > flow.soft_size:
            flow.evaluate()

    def put_unhurried(self, item: T, size: int) -> None:
        """Like `put`, but the consumer is only woken `UNHURRIED_INTERVAL` later, for everything
        that has arrived by then; earlier if something else wakes it."""
        waiter, self._waiter = self._waiter, None
        self.put(item, size)
        self._waiter = waiter
        if waiter is not None and self._timer is None and self._ended is None:
            self._timer = self._loop.call_later(UNHURRIED_INTERVAL, self._time_to_wake)

    def follow(self, item: T) -> None:
        """Queue an item that did not come from the wire. Its size does not count, and it is queued
        even if the lane has ended."""
        self.items.append(item)
        self.wake()

    def end(self, failure: ConnectionLost) -> None:
        """End the lane: after the queued items, `get` raises a copy of `failure`."""
        if self._ended is None:
            self._ended = failure
            self.wake()

    def close(self) -> None:
        """Drop the queued items and accept no more, because the consumer has stopped."""
        self.end(ConnectionLost("the consumer has stopped reading"))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.items.clear()
        self._flow.queued -= self.size
        self.size = 0
        self._flow.leave(self)
        if self._flow.blocked:
            self._flow.progressed()

    def take(self) -> T:
        """Return the next item. Raises `IndexError` if there is none."""
        items = self.items
        item = items.popleft()
        flow = self._flow
        flow.taken += 1
        size = self.size
        if size:
            # Each item counts as the mean size: only the sum has to be right, and storing a size
            # for every item would cost as much as queueing it.
            share = size // (len(items) + 1)
            self.size = size - share
            flow.queued -= share
            if flow.blocked:
                flow.progressed()
        return item

    async def get(self) -> T:
        """Wait for the next item and return it. Raises a copy of the failure once the lane has
        ended and is empty, and `UsageError` if another consumer is already waiting."""
        while not self.items:
            if self._ended is not None:
                raise self._ended.fresh()
            if self._waiter is not None:
                raise UsageError("another consumer is already waiting on this lane")
            waiter = self._waiter = self._loop.create_future()
            try:
                await waiter
            finally:
                if self._waiter is waiter:
                    self._waiter = None
        return self.take()

    def _time_to_wake(self) -> None:
        self._timer = None
        self.wake()

    def wake(self) -> None:
        """Wake the consumer, if it waits."""
        waiter = self._waiter
        if waiter is not None:
            # More may come before the consumer resumes, and need not wake it again.
            self._waiter = None
            if not waiter.done():
                waiter.set_result(None)


class HandlerLane(Generic[T]):
    """A lane whose items are handled one after another by a function, async or not.

    One task handles them and ends when the queue is empty, so a thousand idle lanes have no tasks.
    A failing handler is logged and does not stop the others. If the lane is cut, `on_cut` is called
    after the last item with the reason; later items are dropped.
    """

    __slots__ = ("_handler", "_lane", "_on_cut", "_tasks", "_worker")

    def __init__(
        self,
        flow: Flow,
        handler: Callable[[T], Awaitable[None] | None],
        tasks: TaskOwner,
        *,
        on_cut: Callable[[Overflow], None] | None = None,
    ) -> None:
        self._lane: Lane[T | _Then] = Lane(flow)
        self._handler = handler
        self._tasks = tasks
        self._on_cut = on_cut
        self._worker: asyncio.Task[None] | None = None

    @property
    def ended(self) -> ConnectionLost | None:
        return self._lane.ended

    def put(self, item: T, size: int) -> None:
        self._lane.put(item, size)
        if self._worker is None and len(self._lane):
            self._worker = self._tasks.start(self._work_off(), "handle notifications")

    def is_handling_here(self) -> bool:
        """Return whether the caller is a handler of this lane, which must not wait until the lane
        is empty."""
        return self._worker is not None and self._worker is asyncio.current_task()

    def after(self, then: Callable[[], None]) -> None:
        """Call `then` once everything queued so far has been handled; at once if the queue is
        empty.

        It is always called, even if the lane is cut or closed before that.
        """
        if self._worker is not None:
            self._lane.follow(_Then(then))
        else:
            _Then(then)()

    def close(self) -> None:
        """Drop the queued items and accept no more. Callbacks passed to `after` are still
        called."""
        waiting = [item for item in self._lane.items if isinstance(item, _Then)]
        self._lane.close()
        for then in waiting:
            then()

    async def _work_off(self) -> None:
        consuming.set(self._lane._flow)
        try:
            while len(self._lane):
                item = self._lane.take()
                if isinstance(item, _Then):
                    item()
                else:
                    await self._handle(item)
            if self._on_cut is not None and isinstance(self._lane.ended, Overflow):
                on_cut, self._on_cut = self._on_cut, None
                on_cut(self._lane.ended)
        except asyncio.CancelledError:
            self.close()
            raise
        finally:
            self._worker = None

    async def _handle(self, item: T) -> None:
        try:
            waiting = self._handler(item)
            if waiting is not None and inspect.isawaitable(waiting):
                await waiting
        except asyncio.CancelledError:
            # Something that the handler awaited may have been cancelled, rather than this task.
            if was_cancelled():
                raise
            log.exception("the handler of a notification failed")
        except Exception:
            log.exception("the handler of a notification failed")


class _Then:
    """A callback in a lane, to be called when everything before it was handled."""

    __slots__ = ("_then",)

    def __init__(self, then: Callable[[], None]) -> None:
        self._then = then

    def __call__(self) -> None:
        try:
            self._then()
        except Exception:
            log.exception("a callback after a notification failed")
