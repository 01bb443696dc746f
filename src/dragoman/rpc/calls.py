"""A call from its sending to its end.

Owns how a call settles: exactly once, with a result or an error, by whichever comes first of the
answer, the timeout, the caller who gives up and the end of the connection. It does not know how
requests are written or answers read; `connection` does. A call that a task waits for is in
`awaited`, and `lanes` knows what `Behind` waits for.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

from msgspec import Raw, Struct

from dragoman.errors import CallTimeout, DragomanError
from dragoman.rpc.lanes import HandlerLane
from dragoman.wire.messages import Id

log: Final = logging.getLogger("dragoman.rpc")

Settle: TypeAlias = Callable[[Raw | None, DragomanError | None], None]
"""Told once how a call ended: with a raw result, or with an error."""

FOREIGN: Final = (Exception, asyncio.CancelledError)
"""What a function that is called by the pump may raise. The pump is no task, so a `CancelledError`
here is no cancellation: the function looked at something that was cancelled."""


class Call(Struct, eq=False):
    """A call under way, begun with `Connection.begin`."""

    # A Struct because one is made for every call: it is made in a third of the time that a class
    # with an `__init__` takes.
    method: str
    forget: Callable[[Call], None]
    """Called when it is given up."""
    tell: Settle | None = None
    """Told the end; None once it was told, or if somebody waits for it."""
    future: asyncio.Future[Raw] | None = None
    """Has the end; None once it has. For one of many calls that wait at once."""
    timeout: float = math.inf
    give_up_at: float = math.inf
    """By the clock of `Deadlines`."""
    id: Id = -1
    line: bytes | None = None
    """The line that answered it, unmodified, from its settling on; None without an answer."""

    @property
    def settled(self) -> bool:
        return self.tell is None and self.future is None

    def settle(self, result: Raw | None, error: DragomanError | None) -> None:
        """Hand over the end of the call; all but the first are without effect."""
        future, self.future = self.future, None
        if future is not None:
            # A caller that has gone meanwhile is no reason to fail.
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
                # Others wait behind this one.
                log.exception("whoever called %s was told its end and failed", self.method)

    def give_up(self, error: DragomanError) -> None:
        """Stop waiting: forget the id, tell the other side, drop the answer should it come."""
        if not self.settled:
            self.forget(self)
            self.settle(None, error)


class Deadlines:
    """Gives up the calls of one connection when their time is up.

    It has one timer, for the first of them. A timer for each call, or a queue, would cost as much
    as writing and reading it; to look at all that are open once in a while costs nothing.
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
        """When it looks next: never, if no call has a timeout."""

    def add(self, call: Call, timeout: float, *, left: float | None = None) -> None:
        """Give an open call up after `timeout`, of which only `left` is left if some of it was
        waited away, unless it settles before."""
        call.timeout = timeout
        call.give_up_at = self.clock() + (timeout if left is None else left)
        if call.give_up_at < self.due_at:
            self.look_at(call.give_up_at)

    def look_at(self, due_at: float) -> None:
        """Look for calls whose time is up at this time, or as soon as possible after it."""
        if self._timer is not None:
            self._timer.cancel()
        self.due_at = due_at
        self._timer = self._loop.call_later(due_at - self.clock(), self._due)

    def close(self) -> None:
        """The connection is over, and every call has settled."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _due(self) -> None:
        self._timer = None
        self.due_at = math.inf
        now = self.clock()
        due = [call for call in self._open() if call.give_up_at <= now]
        for call in sorted(due, key=lambda call: call.give_up_at):
            # Whoever is told may make another call, or end the connection and with it the others.
            call.give_up(CallTimeout(call.method, call.timeout))
        left = (call.give_up_at for call in self._open() if not call.settled)
        next_at = min(left, default=math.inf)
        if next_at < self.due_at:
            self.look_at(next_at)


class Behind:
    """Settles a future once a lane has handled everything that came before the end of the call."""

    __slots__ = ("_after", "future")

    def __init__(self, future: asyncio.Future[Raw], after: HandlerLane[Any]) -> None:
        self.future = future
        self._after = after

    def settle(self, result: Raw | None, error: DragomanError | None) -> None:
        if isinstance(error, CallTimeout):
            # It comes from here, not from the wire, and there is nothing for it to overtake.
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
