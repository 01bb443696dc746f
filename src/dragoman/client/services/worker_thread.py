"""Run a service's blocking file work in a thread, with a timeout and cancellation.

On timeout or cancellation the work is signalled to stop through an event. A cancelled caller waits
briefly for it to end.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar, cast

from dragoman.errors import FileFailed
from dragoman.rpc.tasks import finish

T = TypeVar("T")

ANSWER_TIMEOUT: Final = 60.0
"""How long the file system may take for one piece of work. Reading a gigabyte from a slow disk
fits; a dead network mount does not keep the peer waiting for ever."""

STOP_TIMEOUT: Final = 5.0
"""How long a cancelled caller waits for its work to clean up. It normally takes milliseconds."""


MAX_THREADS: Final = 32
"""Pieces of work at once; more wait for a thread."""


class Stopped(Exception):
    """Raised by work that noticed that its caller went away. Nobody sees it."""


def check(stop: threading.Event) -> None:
    """To be called by long work now and then, and before it does what cannot be undone."""
    if stop.is_set():
        raise Stopped


class _Job:
    """Work in a thread and how it ended. The event loop is told once, by `settle`."""

    __slots__ = ("error", "finished", "loop", "result", "stop", "waiter", "work")

    def __init__(self, work: Callable[[threading.Event], Any]) -> None:
        self.work = work
        self.stop = threading.Event()
        self.loop = asyncio.get_running_loop()
        self.waiter: asyncio.Future[None] = self.loop.create_future()
        self.finished = False
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        """Runs in the thread."""
        try:
            self.result = self.work(self.stop)
        except BaseException as error:  # noqa: BLE001 - the caller raises it.
            self.error = error
        with contextlib.suppress(RuntimeError):  # The loop is closed: its callers have gone.
            self.loop.call_soon_threadsafe(self.settle)

    def settle(self) -> None:
        self.finished = True
        if not self.waiter.done():
            self.waiter.set_result(None)

    def expire(self) -> None:
        """The time is over."""
        if not self.waiter.done():
            self.waiter.set_result(None)


async def in_thread(
    path: str, work: Callable[[threading.Event], T], *, changes_disk: bool = False
) -> T:
    """The result of `work`, which gets an event that is set when nobody wants it any more.

    `path` and `changes_disk` are for the error when there is no answer in time: what it is about,
    and whether the work may have been done all the same.
    """
    job = _Job(work)
    # Not `run_in_executor` and `asyncio.wait`: their chain of futures costs as much as the work.
    _threads().submit(job.run)
    timer = job.loop.call_later(ANSWER_TIMEOUT, job.expire)
    try:
        await job.waiter
    except asyncio.CancelledError:
        job.stop.set()
        if not job.finished:
            job.waiter = job.loop.create_future()
            await finish(asyncio.wait([job.waiter], timeout=STOP_TIMEOUT))
        raise
    finally:
        timer.cancel()
    if not job.finished:
        job.stop.set()
        detail = f"the file system did not answer within {ANSWER_TIMEOUT:g} s"
        error = FileFailed(path, detail, errno.ETIMEDOUT)
        error.may_have_run = changes_disk
        raise error
    if job.error is not None:
        try:
            raise job.error
        finally:
            del job  # The error has this frame in its traceback.
    return cast(T, job.result)


@functools.cache
def _threads() -> ThreadPoolExecutor:
    """As many threads as asyncio's own executor has at most, shared by all event loops."""
    return ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="dragoman-files")
