"""Tasks with an owner, clean-up that a second cancellation cannot break, and work in threads.

Has the only use of `create_task` above the transports. A task started here is cancelled and awaited
when its owner closes, and its unexpected exceptions are logged, not lost. Blocking file work runs
in a thread (`in_thread`) and is signalled to stop when its caller is cancelled.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

from dragoman.errors import FileFailed

T = TypeVar("T")

log: Final = logging.getLogger("dragoman.rpc")

CLOSE_TIMEOUT: Final = 5.0
"""How long a cancelled task may take to end before its owner stops waiting and logs that."""

ANSWER_TIMEOUT: Final = 60.0
"""Timeout for one file system operation. Reading a gigabyte from a slow disk fits; a dead
network mount does not keep the peer waiting for ever."""

STOP_TIMEOUT: Final = 5.0
"""How long a cancelled caller waits for its work to clean up. It normally takes milliseconds."""


class TaskOwner:
    """A set of running tasks that ends with its owner."""

    __slots__ = ("_loop", "_name", "_tasks")

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(
        self, work: Coroutine[Any, Any, T], name: str, *, ends_itself: bool = False
    ) -> asyncio.Task[T]:
        """Run `work` now, until it ends or the owner closes.

        Work that `ends_itself` calls `forget` as its last statement, however it ends, and lets no
        exception out: that saves a loop iteration for each.
        """
        if self._loop is None:
            # Cached, because getting it costs a system call each time.
            self._loop = asyncio.get_running_loop()
        task = self._loop.create_task(work, name=f"{self._name}: {name}")
        self._tasks.add(task)
        if not ends_itself:
            task.add_done_callback(self._ended)
        return task

    def adopt(self, task: asyncio.Task[Any], name: str) -> None:
        """Own a task that was started elsewhere and calls `forget` as its last statement."""
        task.set_name(f"{self._name}: {name}")
        self._tasks.add(task)

    def forget(self, task: asyncio.Task[Any]) -> None:
        """Remove a task that has nothing left to do."""
        self._tasks.discard(task)

    def __len__(self) -> int:
        return len(self._tasks)

    async def aclose(self, *, spare: asyncio.Task[Any] | None = None) -> None:
        """Cancel all tasks and wait for them to end, including those that start meanwhile.

        Safe to call from one of them; that task and `spare` are not cancelled.
        """
        loop = asyncio.get_running_loop()
        spared = {asyncio.current_task(), spare}
        give_up_at = loop.time() + CLOSE_TIMEOUT
        # A task that was cancelled from outside before its first step could not call `forget`.
        while others := {task for task in self._tasks - spared if not task.done()}:
            if loop.time() >= give_up_at:
                for task in others:
                    log.warning("%s does not end although it was cancelled", task.get_name())
                return
            for task in others:
                cancel_soon(task)
            await asyncio.wait(others, timeout=give_up_at - loop.time())

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s failed", task.get_name(), exc_info=error)


def cancel_soon(task: asyncio.Task[Any]) -> None:
    """Cancel a task, but not before its first step.

    A coroutine that is cancelled before it was entered runs no line of its own: no clean-up, no
    response to a waiting caller, and its awaitables are never awaited.
    """
    asyncio.get_running_loop().call_soon(task.cancel)


def was_cancelled() -> bool:
    """Whether a `CancelledError` seen here is of this task, and not of something it awaited."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    """Set a future's result or exception, unless its waiter has cancelled it."""
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


async def finish(work: Awaitable[T]) -> T:
    """Await `work` to its end even if the caller is cancelled meanwhile, then propagate the
    cancellation.

    For clean-up: an `await` in a `finally` block is interrupted by a second `cancel()`. The work
    itself must be bounded in time.
    """
    task = asyncio.ensure_future(work)  # noqa: TID251 - owned here: awaited below in every case
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        if not task.cancelled() and (failure := task.exception()) is not None:
            log.warning("clean-up failed", exc_info=failure)
        raise cancelled
    return task.result()


class Stopped(Exception):
    """Raised by work that noticed that its caller has gone. Never visible outside."""


def check(stop: threading.Event) -> None:
    """Long work must call this regularly, and before it does anything that cannot be undone."""
    if stop.is_set():
        raise Stopped


async def in_thread(
    path: str, work: Callable[[threading.Event], T], *, changes_disk: bool = False
) -> T:
    """The result of `work`, which gets an event that is set when the result is no longer wanted.

    `path` and `changes_disk` are for the timeout error: the file it concerns, and whether the work
    may have been done anyway.
    """
    loop = asyncio.get_running_loop()
    stop = threading.Event()
    future = loop.run_in_executor(None, work, stop)
    # Not `asyncio.wait`, which costs as much as reading a small file.
    waiter: asyncio.Future[None] = loop.create_future()

    def release(done: asyncio.Future[T] | None = None) -> None:
        # After a cancellation or a timeout, nothing else retrieves its exception.
        if done is not None and not done.cancelled():
            done.exception()
        if not waiter.done():
            waiter.set_result(None)

    future.add_done_callback(release)
    timer = loop.call_later(ANSWER_TIMEOUT, release)
    try:
        await waiter
    except asyncio.CancelledError:
        stop.set()
        await finish(asyncio.wait([future], timeout=STOP_TIMEOUT))
        raise
    finally:
        timer.cancel()
    if future.done():
        return future.result()
    stop.set()
    detail = f"the file system did not answer within {ANSWER_TIMEOUT:g} s"
    error = FileFailed(path, detail, errno.ETIMEDOUT)
    error.may_have_run = changes_disk
    raise error
