"""Tasks with an owner, clean-up that a second cancellation cannot break, and work in threads.

Owns the only use of `create_task` above the transports. A task started here is cancelled and
awaited when its owner closes, and what it raises unexpectedly is logged, not lost. Blocking file
work runs in a thread (`in_thread`) and is signalled to stop when its caller gives up.
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
"""How long a cancelled task may take to end before its owner gives up on it and says so."""

ANSWER_TIMEOUT: Final = 60.0
"""How long the file system may take for one piece of work. Reading a gigabyte from a slow disk
fits; a dead network mount does not keep the peer waiting for ever."""

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

        Work that `ends_itself` calls `forget` as the last thing it does, however it ends, and lets
        no error out: that saves a turn of the event loop for each.
        """
        if self._loop is None:
            # Kept, because asking for it costs a system call each time.
            self._loop = asyncio.get_running_loop()
        task = self._loop.create_task(work, name=f"{self._name}: {name}")
        self._tasks.add(task)
        if not ends_itself:
            task.add_done_callback(self._ended)
        return task

    def adopt(self, task: asyncio.Task[Any], name: str) -> None:
        """Own a task that was started elsewhere and calls `forget` as the last thing it does."""
        task.set_name(f"{self._name}: {name}")
        self._tasks.add(task)

    def forget(self, task: asyncio.Task[Any]) -> None:
        """The task has nothing left to do."""
        self._tasks.discard(task)

    def __len__(self) -> int:
        return len(self._tasks)

    async def aclose(self, *, spare: asyncio.Task[Any] | None = None) -> None:
        """Cancel all of them and wait for their ends, those included that start meanwhile.

        Safe to call from one of them; it and `spare` are left alone.
        """
        loop = asyncio.get_running_loop()
        spared = {asyncio.current_task(), spare}
        give_up_at = loop.time() + CLOSE_TIMEOUT
        # One that was cancelled from outside before its first step did not come to forget itself.
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
    answer to whoever waits for one, and what it was given to await stays unawaited.
    """
    asyncio.get_running_loop().call_soon(task.cancel)


def was_cancelled() -> bool:
    """Whether a `CancelledError` seen here means this task, and not what it waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    """Give a future its result or error, unless the one who waits has given up."""
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


async def finish(work: Awaitable[T]) -> T:
    """Await `work` to its end even if the caller is cancelled meanwhile, then pass that on.

    For clean-up: an `await` in a `finally` block dies of a second `cancel()`. The work itself has
    to be bounded in time.
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
    """Raised by work that noticed that its caller went away. Nobody sees it."""


def check(stop: threading.Event) -> None:
    """To be called by long work now and then, and before it does what cannot be undone."""
    if stop.is_set():
        raise Stopped


async def in_thread(
    path: str, work: Callable[[threading.Event], T], *, changes_disk: bool = False
) -> T:
    """The result of `work`, which gets an event that is set when nobody wants it any more.

    `path` and `changes_disk` are for the error when there is no answer in time: what it is about,
    and whether the work may have been done all the same.
    """
    loop = asyncio.get_running_loop()
    stop = threading.Event()
    future = loop.run_in_executor(None, work, stop)
    # Not `asyncio.wait`, which costs as much as reading a small file.
    waiter: asyncio.Future[None] = loop.create_future()

    def release(done: asyncio.Future[T] | None = None) -> None:
        # After a cancellation or a timeout nobody else asks how it ended.
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
