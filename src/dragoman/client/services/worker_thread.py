"""Run a service's blocking file work in a thread, with a timeout and cancellation.

On timeout or cancellation the work is signalled to stop through an event. A cancelled caller waits
briefly for it to end.
"""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable
from typing import Final, TypeVar

from dragoman.errors import FileFailed
from dragoman.rpc.tasks import finish

T = TypeVar("T")

ANSWER_TIMEOUT: Final = 60.0
"""How long the file system may take for one piece of work. Reading a gigabyte from a slow disk
fits; a dead network mount does not keep the peer waiting for ever."""

STOP_TIMEOUT: Final = 5.0
"""How long a cancelled caller waits for its work to clean up. It normally takes milliseconds."""


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
