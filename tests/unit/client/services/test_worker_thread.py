"""Work in a thread: its result, its error, its caller gone, and a file system that hangs."""

from __future__ import annotations

import asyncio
import errno
import threading

import pytest

from dragoman.client.services import worker_thread
from dragoman.client.services.worker_thread import Stopped, check, in_thread
from dragoman.errors import FileFailed
from tests.aio import aio

TIMEOUT = 10.0
"""Far more than anything here takes; a test that waits so long has failed."""


class Work:
    """Work that begins, and goes on until it is let go or told to stop."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.let_go = threading.Event()
        self.stop: threading.Event | None = None
        self.ended_stopped = False

    def __call__(self, stop: threading.Event) -> str:
        self.stop = stop
        self.begun.set()
        assert self.let_go.wait(TIMEOUT)
        try:
            check(stop)
        except Stopped:
            self.ended_stopped = True
            raise
        return "done"

    async def wait_begun(self) -> None:
        assert await asyncio.to_thread(self.begun.wait, TIMEOUT)


@aio
async def test_the_result_and_the_error_of_the_work_come_back() -> None:
    assert await in_thread("/f", lambda _: threading.current_thread().name) != "MainThread"

    def fails(_: threading.Event) -> None:
        raise FileFailed("/f", "broken")

    with pytest.raises(FileFailed, match="broken"):
        await in_thread("/f", fails)


@pytest.mark.parametrize("cancellations", [1, 2, 5])
@aio
async def test_a_cancelled_caller_stops_the_work_and_sees_it_end(cancellations: int) -> None:
    work = Work()
    async with asyncio.timeout(TIMEOUT):
        async with asyncio.TaskGroup() as group:
            task = group.create_task(in_thread("/f", work))
            await work.wait_begun()
            for _ in range(cancellations):
                task.cancel()
                await asyncio.sleep(0)
                assert not task.done()
            assert work.stop is not None
            assert work.stop.is_set()
            work.let_go.set()
    assert task.cancelled()
    assert work.ended_stopped


@aio
async def test_a_cancelled_caller_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_thread, "STOP_TIMEOUT", 0.01)
    work = Work()
    async with asyncio.timeout(TIMEOUT):
        async with asyncio.TaskGroup() as group:
            task = group.create_task(in_thread("/f", work))
            await work.wait_begun()
            task.cancel()
    assert task.cancelled()
    assert not work.ended_stopped
    work.let_go.set()


@pytest.mark.parametrize("changes_disk", [False, True])
@aio
async def test_no_answer_in_time_is_an_error_of_the_world(
    monkeypatch: pytest.MonkeyPatch, changes_disk: bool
) -> None:
    monkeypatch.setattr(worker_thread, "ANSWER_TIMEOUT", 0.01)
    work = Work()
    with pytest.raises(FileFailed, match="did not answer within") as caught:
        await in_thread("/f", work, changes_disk=changes_disk)
    assert caught.value.errno == errno.ETIMEDOUT
    assert caught.value.blame == "world"
    assert caught.value.may_have_run is changes_disk
    await work.wait_begun()
    assert work.stop is not None
    assert work.stop.is_set()
    work.let_go.set()
