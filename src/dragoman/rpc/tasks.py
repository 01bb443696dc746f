"""Tasks with an owner, clean-up that survives a second cancellation, and work in threads.

Almost every task above the transports is started here; `tests/docs/test_architecture.py` lists the
others. A task started here is cancelled and awaited when its owner closes, and its unexpected
exceptions are logged, not lost. Blocking file work runs in a daemon thread (`in_thread`) and is
signalled to stop when its caller is cancelled.
"""

from __future__ import annotations

import asyncio
import atexit
import errno
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Executor, Future
from concurrent.futures import wait as wait_for_futures
from queue import SimpleQueue
from typing import Any, Final, TypeVar, overload

from dragoman.errors import FileFailed

T = TypeVar("T")
U = TypeVar("U")

log: Final = logging.getLogger("dragoman.rpc")

CLOSE_TIMEOUT: Final = 5.0
"""How long a cancelled task may take to end before its owner stops waiting and logs that."""

ANSWER_TIMEOUT: Final = 60.0
"""Timeout for one file system operation. It is enough to read a gigabyte from a slow disk; a dead
network mount must not keep the peer waiting forever."""

STOP_TIMEOUT: Final = 5.0
"""How long a cancelled caller waits for its work to clean up. It normally takes milliseconds."""

MAX_THREADS: Final = 32
"""Maximum number of threads for blocking work. A hung file system can block all of them; then
further work waits and times out as well."""

EXIT_TIMEOUT: Final = 5.0
"""How long a process that exits waits for work in threads to clean up."""

THREAD_NAME: Final = "blocking-work"


class TaskOwner:
    """The running tasks of an owner, which cancels and awaits them with `aclose`."""

    __slots__ = ("_loop", "_name", "_tasks")

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(
        self, work: Coroutine[Any, Any, T], name: str, *, ends_itself: bool = False
    ) -> asyncio.Task[T]:
        """Start a task for `work`, which runs until it ends or the owner closes.

        Work that `ends_itself` calls `forget` as its last statement, however it ends, and raises no
        exception; this saves a loop iteration for each task.
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
        """Cancel all tasks, including those that start meanwhile, and wait at most `CLOSE_TIMEOUT`
        for them to end.

        Safe to call from one of them; that task and `spare` are not cancelled. If the caller is
        cancelled, this still waits for them, in bounded time.
        """
        spared = {asyncio.current_task(), spare}
        cancelled: set[asyncio.Task[Any]] = set()
        try:
            await self._end_all(spared, cancelled)
        except asyncio.CancelledError:
            await finish(self._end_all(spared, cancelled))
            raise

    async def _end_all(
        self, spared: set[asyncio.Task[Any] | None], cancelled: set[asyncio.Task[Any]]
    ) -> None:
        """Cancel the tasks and wait at most `CLOSE_TIMEOUT` for them. Those in `cancelled` are only
        waited for: a second cancellation would interrupt their clean-up."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + CLOSE_TIMEOUT
        # A task that was cancelled from outside before its first step could not call `forget`.
        while others := {task for task in self._tasks - spared if not task.done()}:
            if loop.time() >= give_up_at:
                for task in others:
                    log.warning("%s does not end although it was cancelled", task.get_name())
                return
            for task in others - cancelled:
                cancel_soon(task)
            cancelled |= others
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
    """Return whether a `CancelledError` caught here is for this task, rather than for something it
    awaited."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def await_callback(work: Awaitable[T]) -> T:
    """Await what a callback returned.

    Raises `RuntimeError` if `work` raises `CancelledError` although this task was not cancelled:
    that must not count as a cancellation of this task.
    """
    try:
        return await work
    except asyncio.CancelledError as error:
        if was_cancelled():
            raise
        raise RuntimeError("something that it awaited was cancelled") from error


async def cancellable(work: Awaitable[T]) -> T:
    """Await work of a library that may swallow a cancellation of this task, and raise
    `CancelledError` if it did.

    `asyncio.wait_for` of Python 3.11 swallows it if the result arrives at the same time.
    """
    task = asyncio.current_task()
    assert task is not None
    # The task may already be cancelled and cleaning up: only a new cancellation counts.
    before = task.cancelling()
    try:
        return await work
    finally:
        if task.cancelling() > before:
            raise asyncio.CancelledError


def settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    """Set a future's result, or its exception if `error` is given, unless the future is done, for
    example because its waiter has cancelled it."""
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


async def finish(work: Awaitable[T]) -> T:
    """Await `work` to its end even if the caller is cancelled, then propagate the cancellation.

    For clean-up: an `await` in a `finally` block is interrupted by a second `cancel()`. The work
    itself must be bounded in time. If the caller was cancelled, a failure of the work is only
    logged.
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


@overload
async def together(first: Awaitable[T], second: Awaitable[U], /) -> tuple[T, U]: ...


@overload
async def together(*work: Awaitable[T]) -> tuple[T, ...]: ...


async def together(*work: Awaitable[Any]) -> tuple[Any, ...]:
    """Run awaitables concurrently and return their results, in order.

    If one fails, its exception is raised, after the others were cancelled and awaited for at most
    `CLOSE_TIMEOUT`; `asyncio.gather` leaves the others running.
    """
    tasks = [asyncio.ensure_future(each) for each in work]  # noqa: TID251 - owned: ended below
    try:
        return tuple(await asyncio.gather(*tasks))
    finally:
        running = [task for task in tasks if not task.done()]
        if running:
            for task in running:
                task.cancel()
            await finish(asyncio.wait(running, timeout=CLOSE_TIMEOUT))


async def all_ended(*work: Awaitable[object]) -> None:
    """Run clean-up work concurrently and await each to its end, even if the caller is cancelled or
    one of them fails.

    Afterwards, raise `CancelledError` if the caller was cancelled, and otherwise the failure of the
    first argument that failed.
    """
    results = await finish(asyncio.gather(*work, return_exceptions=True))
    for failure in results:
        if isinstance(failure, BaseException):
            raise failure


class Stopped(Exception):
    """Raised by work that noticed that its result is no longer wanted. It never reaches the caller
    of `in_thread`."""


def check(stop: threading.Event) -> None:
    """Raise `Stopped` if `stop` is set, which means that the result is no longer wanted.

    Long work must call this regularly, and before it does anything that cannot be undone.
    """
    if stop.is_set():
        raise Stopped


class _DaemonThreads(Executor):
    """Runs calls in daemon threads, which are created as needed and kept.

    The default executor of an event loop does not fit: the loop and the interpreter wait for its
    threads without a limit, so a hung file system would keep the process from exiting.
    """

    def __init__(self) -> None:
        self.reset()
        atexit.register(self.settle)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.reset)

    def reset(self) -> None:
        """Start again with no threads: those of the parent do not exist after a fork."""
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._count = 0
        self._open: set[Future[Any]] = set()

    def settle(self) -> None:
        """Wait for unfinished work, for at most `EXIT_TIMEOUT`. Called when the process exits."""
        wait_for_futures(tuple(self._open), timeout=EXIT_TIMEOUT)

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()

        def call() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    result = fn(*args, **kwargs)
                except BaseException as error:  # noqa: BLE001 - the future carries it to the caller
                    future.set_exception(error)
                else:
                    future.set_result(result)

        self._open.add(future)
        future.add_done_callback(self._open.discard)
        self._calls.put(call)
        if not self._idle.acquire(blocking=False):
            with self._lock:
                if self._count < MAX_THREADS:
                    try:
                        threading.Thread(target=self._work, name=THREAD_NAME, daemon=True).start()
                    except RuntimeError:
                        # The system allows no more threads. One that exists takes the call.
                        if not self._count:
                            future.cancel()
                            raise
                    else:
                        self._count += 1
        return future

    def _work(self) -> None:
        calls, idle = self._calls, self._idle
        while True:
            call = calls.get()
            call()
            # Otherwise the thread would keep the result until the next call.
            del call
            idle.release()


_threads: Final = _DaemonThreads()


async def in_thread(
    path: str,
    work: Callable[[threading.Event], T],
    *,
    changes_disk: bool = False,
    timeout: float | None = None,
) -> T:
    """Run `work` in a thread and return its result. `work` gets an event that is set when the
    result is no longer wanted.

    Raises `FileFailed` after `timeout` seconds (`ANSWER_TIMEOUT` if None), or if no thread can be
    started. `path` and `changes_disk` are for this error: the file it concerns, and whether the
    work may have been done anyway.
    """
    timeout = ANSWER_TIMEOUT if timeout is None else timeout
    loop = asyncio.get_running_loop()
    stop = threading.Event()
    try:
        future = loop.run_in_executor(_threads, work, stop)
    except RuntimeError as refused:
        raise FileFailed(path, str(refused), errno.EAGAIN) from refused
    # Not `asyncio.wait`, which costs as much as reading a small file.
    waiter: asyncio.Future[None] = loop.create_future()

    def release(done: asyncio.Future[T] | None = None) -> None:
        # After a cancellation or a timeout, nothing else retrieves its exception.
        if done is not None and not done.cancelled():
            done.exception()
        if not waiter.done():
            waiter.set_result(None)

    future.add_done_callback(release)
    timer = loop.call_later(timeout, release)
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
    detail = f"the file system did not answer within {timeout:g} s"
    error = FileFailed(path, detail, errno.ETIMEDOUT)
    error.may_have_run = changes_disk
    raise error
