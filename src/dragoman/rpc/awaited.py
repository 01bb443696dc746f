"""A pending call that one task can await, as a faster replacement for an asyncio future.

A future resumes its task one loop iteration later, which costs as much as reading the response.
`wake_now` resumes it at once, inside the callback that read the response; `connection` decides when
that is safe.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Generator
from typing import Any

from msgspec import Raw

from dragoman.errors import DragomanError
from dragoman.rpc.calls import Call


class Awaited(Call, eq=False):
    """A call that is its own future, as far as a task asks anything of one. One task waits."""

    loop: asyncio.AbstractEventLoop | None = None
    answer: Raw | None = None
    error: DragomanError | None = None
    over: bool = False
    called_off: tuple[Any, ...] | None = None
    """Set once the task was cancelled while it waited; whatever comes then is too late."""
    wake: Callable[[Awaited], object] | None = None
    """Lets the task go on."""
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
        """Let the task go on in the next turn of the event loop, if it waits."""
        wake, self.wake = self.wake, None
        if wake is not None:
            assert self.loop is not None
            context, self.context = self.context, None
            self.loop.call_soon(wake, self, context=context)

    def wake_now(self) -> None:
        """Let the task go on at once. To be called by a callback of the event loop, as the last
        thing it does: what the task does next is done in here."""
        wake, self.wake = self.wake, None
        if wake is not None:
            context, self.context = self.context, None
            assert context is not None
            try:
                context.run(wake, self)
            except RuntimeError:
                # Not begun: what arrives was brought by a task, or in the context of this one, and
                # no other can stand in its place. (What goes wrong in the task stays there.)
                self.add_done_callback(wake, context=context)

    # -- what a task asks of a future

    def __await__(self) -> Generator[Any, None, Raw]:
        try:
            if not self.over:
                self._asyncio_future_blocking = True
                yield self
            return self.result()
        finally:
            # An error knows the frames that it went through, and with them everything of the
            # caller: whoever keeps the call is not to keep that.
            self.error = None

    def get_loop(self) -> asyncio.AbstractEventLoop:
        assert self.loop is not None
        return self.loop

    def add_done_callback(
        self, wake: Callable[[Awaited], object], *, context: contextvars.Context
    ) -> None:
        self.wake = wake
        self.context = context
        if self.over or self.called_off is not None:
            # Work that is carried on by another task (see `standby`) waits a turn later than it
            # began to, and much can have happened by then.
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
        # The task that waits is shown with what it waits for, so this must not show the task.
        return f"<call {self.id} of {self.method}>"
