"""The owner of accepted connections.

It owns one task per connection, from the moment a carrier hands over a stream until its handler
has returned and the stream is closed, and it ends them all when it is closed itself. It does not
know how connections are accepted: `sockets`, `named_pipes` and `websocket` do.
"""

from __future__ import annotations

import abc
import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Self

from dragoman.transports.base import Stream

OnStream = Callable[[Stream], Awaitable[None]]
"""What is run for each accepted stream. The stream is closed when it returns."""

HANDLER_TIMEOUT = 5.0
"""How long a close waits for cancelled handlers. Closing a stream takes at most about two seconds;
a handler that needs more than twice that has refused to be cancelled."""


class Listener(abc.ABC):
    """Accepts connections until it is closed. Best used with `async with`."""

    def __init__(self, on_stream: OnStream) -> None:
        self._on_stream = on_stream
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._unbegun: set[Stream] = set()
        self._closed = False
        self._accepting = True

    @property
    @abc.abstractmethod
    def address(self) -> str:
        """Where it listens, in the form that the matching connect function takes."""

    @abc.abstractmethod
    def _stop_accepting(self) -> None:
        """Let go of the address at once. Called once only."""

    def stop_accepting(self) -> None:
        """Let go of the address at once; who is connected stays until `aclose`. Idempotent."""
        if self._accepting:
            self._accepting = False
            self._stop_accepting()

    async def aclose(self) -> None:
        """Stop accepting, cancel every handler and wait until their streams are closed.

        Idempotent, and safe to call at once from several tasks. If the caller is cancelled, the
        handlers still end: they were cancelled before the first wait.
        """
        if not self._closed:
            self._closed = True
            try:
                self.stop_accepting()
            finally:
                for task in self._tasks:
                    task.cancel()
        # A handler that closes its own listener does not wait for itself.
        current = asyncio.current_task()
        try:
            async with asyncio.timeout(HANDLER_TIMEOUT):
                while others := {task for task in self._tasks if task is not current}:
                    await asyncio.wait(others)
        except TimeoutError:
            for task in self._tasks:
                self._report(f"a connection handler did not end when cancelled: {task!r}", None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    def _accepted(self, stream: Stream) -> None:
        """Run the handler for a new stream, as a task of ours."""
        self._unbegun.add(stream)
        self._own(self._handle(stream)).add_done_callback(lambda task: self._handled(task, stream))

    def _own(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        # The listener is the owner: it keeps the task, cancels it and waits for it. Transports
        # are below the package that has the general owner of tasks (`rpc.tasks`).
        task = asyncio.create_task(work, name=f"dragoman {self.address}")  # noqa: TID251
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _handle(self, stream: Stream) -> None:
        self._unbegun.discard(stream)
        try:
            await self._on_stream(stream)
        finally:
            await stream.aclose()

    def _handled(self, task: asyncio.Task[None], stream: Stream) -> None:
        if stream in self._unbegun:
            # A task that is cancelled before its first step never runs, not even its `finally`.
            self._unbegun.discard(stream)
            self._own(stream.aclose())
        elif not task.cancelled() and (error := task.exception()) is not None:
            self._report("a connection handler failed", error)

    def _report(self, message: str, error: BaseException | None) -> None:
        context: dict[str, object] = {"message": message}
        if error is not None:
            context["exception"] = error
        self._loop.call_exception_handler(context)
