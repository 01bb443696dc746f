"""The event loop of a connection, reachable from every thread.

Owns the way into the loop in which a connection lives, for callers that run in it, in the loop of
another thread, or in a thread without one. It does not know what is done there. All writing goes
this way, which is why the lines of different threads never mix.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class LoopAccess:
    """The loop and the thread in which it was made."""

    __slots__ = ("_left", "_loop", "_waiting", "thread")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.thread = threading.get_ident()
        """Whoever runs in it is at home."""
        self._waiting: set[concurrent.futures.Future[Any]] = set()
        self._left = False

    async def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run at home and wait for it, in this loop or in that of another thread."""
        if threading.get_ident() == self.thread:
            return await work()
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work(), self._loop))

    def wait(self, work: Coroutine[Any, Any, T], *, last: bool = False) -> T:
        """Run at home and wait for it, in a thread without a loop.

        Raises `asyncio.CancelledError` if it is called off meanwhile, or was before, or nobody is
        at home. The `last` words of somebody who was called off are still heard.
        """
        try:
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            work.close()
            raise asyncio.CancelledError("the connection is gone") from None
        # The set belongs to all threads, but a single addition or removal is one step of the
        # interpreter, and `call_off` works on a copy.
        self._waiting.add(future)
        if self._left and not last:
            future.cancel()
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise asyncio.CancelledError("the turn was cancelled") from None
        finally:
            self._waiting.discard(future)

    def call_off(self) -> None:
        """Cancel whatever threads wait for in `wait`, from now on at once."""
        self._left = True
        for future in tuple(self._waiting):
            future.cancel()
