"""Run coroutines in a connection's event loop from any thread.

Callers may be in that loop, in another thread's event loop, or in a thread without one. Everything
an agent sends goes through this loop, so lines written by different threads never interleave.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")

CLOSED_CHECK_INTERVAL: Final = 1.0
"""Seconds between two checks for whether the loop is closed, while a thread waits for it. A loop
that is being closed still accepts work, but may never run it or finish it."""


class LoopAccess:
    """Runs work in the event loop, and thread, in which it was created."""

    __slots__ = ("_left", "_loop", "_waiting", "thread")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.thread = threading.get_ident()
        """The id of the thread that runs the loop."""
        self._waiting: set[concurrent.futures.Future[Any]] = set()
        self._left = False

    async def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run work in the connection's loop and await the result, from that loop or another one."""
        if threading.get_ident() == self.thread:
            return await work()
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work(), self._loop))

    def wait(self, work: Coroutine[Any, Any, T], *, last: bool = False) -> T:
        """Run work in the connection's loop and block for the result, from a thread without a loop.

        Raises `asyncio.CancelledError` if `call_off` is called, before or meanwhile, or if the loop
        is closed. With `last`, the work runs even if `call_off` was called before.
        """
        try:
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            work.close()
            raise asyncio.CancelledError("the connection is closed") from None
        # All threads share the set, but a single addition or removal is atomic in the interpreter,
        # and `call_off` works on a copy.
        self._waiting.add(future)
        if self._left and not last:
            future.cancel()
        try:
            while True:
                try:
                    return future.result(CLOSED_CHECK_INTERVAL)
                except TimeoutError:
                    is_closed = self._loop.is_closed()
                    if future.done():
                        # Either just now, or the work has raised this.
                        return future.result()
                    if is_closed:
                        break
        except concurrent.futures.CancelledError:
            raise asyncio.CancelledError("the turn was cancelled") from None
        finally:
            self._waiting.discard(future)
        # Otherwise Python warns that it was never awaited. Clean-up that would await fails.
        with contextlib.suppress(RuntimeError):
            work.close()
        raise asyncio.CancelledError("the connection is closed")

    def call_off(self) -> None:
        """Cancel the current calls of `wait`, and later ones without `last`."""
        self._left = True
        for future in tuple(self._waiting):
            future.cancel()
