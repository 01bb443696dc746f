"""Tasks end with their owner, and clean-up ends although it is cancelled, and cancelled again."""

from __future__ import annotations

import asyncio
import errno
import logging
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Final

import pytest

from dragoman.errors import FileFailed
from dragoman.rpc import tasks
from dragoman.rpc.tasks import (
    Stopped,
    TaskOwner,
    _DaemonThreads,
    all_ended,
    cancellable,
    check,
    finish,
    in_thread,
    together,
)
from tests.aio import aio
from tests.unit.rpc.other_side import soon, turns


async def forever(note: Callable[[str], None] = lambda text: None) -> None:
    note("began")
    try:
        await asyncio.Event().wait()
    finally:
        note("ended")


@aio
async def test_closing_ends_every_task() -> None:
    notes: list[str] = []
    owner = TaskOwner("owner")
    running = [owner.start(forever(notes.append), "wait") for _ in range(3)]
    await turns()
    assert len(owner) == 3
    await owner.aclose()
    assert notes == ["began"] * 3 + ["ended"] * 3
    assert all(task.cancelled() for task in running)
    assert len(owner) == 0


@aio
async def test_a_task_is_named_after_its_owner_and_its_work() -> None:
    owner = TaskOwner("client-7")
    assert owner.start(forever(), "wait").get_name() == "client-7: wait"
    await owner.aclose()


@aio
async def test_a_task_that_ends_is_forgotten() -> None:
    owner = TaskOwner("owner")

    async def work() -> int:
        return 7

    assert await owner.start(work(), "work") == 7
    await turns(1)
    assert len(owner) == 0


@aio
async def test_a_task_cancelled_at_birth_still_gets_its_first_step() -> None:
    # A coroutine that is never entered runs no clean-up and leaves what it was given unawaited.
    notes: list[str] = []
    owner = TaskOwner("owner")
    owner.start(forever(notes.append), "wait")
    await owner.aclose()
    assert notes == ["began", "ended"]


@aio
async def test_tasks_started_while_the_owner_closes_are_ended_too() -> None:
    notes: list[str] = []
    owner = TaskOwner("owner")

    async def leaves_another() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            owner.start(forever(notes.append), "second")

    owner.start(leaves_another(), "first")
    await turns()
    await owner.aclose()
    assert notes == ["began", "ended"]
    assert len(owner) == 0


@aio
async def test_an_owner_ends_its_tasks_although_it_is_cancelled_meanwhile() -> None:
    owner = TaskOwner("owner")
    ended: list[str] = []
    cancelled, go_on = asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
            await go_on.wait()
            ended.append("slow")

    owner.start(slow(), "slow")
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        closing = group.create_task(owner.aclose())
        await cancelled.wait()
        closing.cancel()
        await turns()
        assert not closing.done()
        go_on.set()
    assert closing.cancelled()
    assert ended == ["slow"] and len(owner) == 0


@aio
async def test_an_unexpected_error_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    owner = TaskOwner("owner")

    async def fail() -> None:
        raise ValueError("by design")

    with caplog.at_level(logging.ERROR, logger="dragoman.rpc"):
        owner.start(fail(), "fail")
        await turns()
    (record,) = caplog.records
    assert record.getMessage() == "owner: fail failed"
    assert record.exc_info is not None and isinstance(record.exc_info[1], ValueError)
    await owner.aclose()


@aio
async def test_a_task_may_close_its_own_owner() -> None:
    owner = TaskOwner("owner")
    other = owner.start(forever(), "other")

    async def close() -> str:
        await owner.aclose()
        return "closed"

    assert await soon(owner.start(close(), "close")) == "closed"
    assert other.cancelled()


@aio
async def test_a_task_that_does_not_end_is_reported_and_left(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "CLOSE_TIMEOUT", 0.02)
    owner = TaskOwner("owner")
    released = asyncio.Event()

    async def stubborn() -> None:
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue

    task = owner.start(stubborn(), "stubborn")
    await turns()
    with caplog.at_level(logging.WARNING, logger="dragoman.rpc"):
        await soon(owner.aclose())
    assert [record.getMessage() for record in caplog.records] == [
        "owner: stubborn does not end although it was cancelled"
    ]
    released.set()
    await soon(task)


@aio
async def test_finish_returns_what_the_work_returns() -> None:
    async def work() -> int:
        await asyncio.sleep(0)
        return 7

    assert await finish(work()) == 7


@aio
async def test_finish_raises_what_the_work_raises() -> None:
    async def work() -> None:
        raise ValueError("by design")

    with pytest.raises(ValueError, match="by design"):
        await finish(work())


@pytest.mark.parametrize("cancels", [1, 2, 5])
@aio
async def test_work_is_finished_however_often_the_caller_is_cancelled(cancels: int) -> None:
    done: list[str] = []
    gate = asyncio.Event()

    async def clean_up() -> None:
        await gate.wait()
        done.append("clean")

    async def caller() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await finish(clean_up())

    owner = TaskOwner("owner")
    task = owner.start(caller(), "caller")
    await turns()
    for _ in range(cancels):
        task.cancel()
        await turns()
    assert not task.done()
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await soon(task)
    assert done == ["clean"]


@aio
async def test_work_is_finished_by_a_caller_that_was_cancelled_before_it_began() -> None:
    done: list[str] = []

    async def clean_up() -> None:
        await asyncio.sleep(0)
        done.append("clean")

    async def caller() -> None:
        current = asyncio.current_task()
        assert current is not None
        current.cancel()
        await finish(clean_up())

    with pytest.raises(asyncio.CancelledError):
        await soon(TaskOwner("owner").start(caller(), "caller"))
    assert done == ["clean"]


@aio
async def test_a_failure_during_a_cancelled_clean_up_is_logged_and_the_cancellation_passed_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gate = asyncio.Event()

    async def clean_up() -> None:
        await gate.wait()
        raise ValueError("by design")

    owner = TaskOwner("owner")
    task = owner.start(finish(clean_up()), "caller")
    await turns()
    task.cancel()
    await turns()
    with caplog.at_level(logging.WARNING, logger="dragoman.rpc"):
        gate.set()
        with pytest.raises(asyncio.CancelledError):
            await soon(task)
    assert [record.getMessage() for record in caplog.records] == ["clean-up failed"]


@aio
async def test_work_that_is_itself_cancelled_ends_the_caller_as_cancelled() -> None:
    async def clean_up() -> None:
        current = asyncio.current_task()
        assert current is not None
        current.cancel()
        await asyncio.sleep(0)

    with pytest.raises(asyncio.CancelledError):
        await finish(clean_up())


async def swallow(outcome: Exception | str) -> str:
    """Behaves like a library that takes a cancellation for the end of its wait."""
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        if isinstance(outcome, Exception):
            raise outcome from None
    return str(outcome)


@aio
@pytest.mark.parametrize("outcome", ["a result", ConnectionError("closed")])
async def test_a_cancellation_that_the_work_swallows_still_cancels_the_caller(
    outcome: Exception | str,
) -> None:
    owner = TaskOwner("owner")
    caller = owner.start(cancellable(swallow(outcome)), "caller")
    await turns()
    caller.cancel()
    await asyncio.wait({caller})
    assert caller.cancelled()


@aio
async def test_a_timeout_that_the_work_swallows_still_expires() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await cancellable(swallow("a result"))


@aio
async def test_a_caller_that_cleans_up_after_its_cancellation_gets_the_result() -> None:
    found: list[str] = []

    async def result() -> str:
        await turns()
        return "a result"

    async def clean_up() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            found.append(await cancellable(result()))

    owner = TaskOwner("owner")
    caller = owner.start(clean_up(), "caller")
    await turns()
    caller.cancel()
    await asyncio.wait({caller})
    assert caller.cancelled() and found == ["a result"]


@aio
async def test_an_owner_does_not_wait_for_work_that_was_cancelled_before_it_began() -> None:
    owner = TaskOwner("test")

    async def work() -> None:
        owner.forget(task)

    task = owner.start(work(), "ends itself", ends_itself=True)
    task.cancel()
    await asyncio.wait([task])
    assert len(owner) == 1
    async with asyncio.timeout(1):
        await owner.aclose()


@aio
async def test_work_that_ends_itself_is_forgotten() -> None:
    owner = TaskOwner("test")

    async def work() -> None:
        owner.forget(task)

    task = owner.start(work(), "ends itself", ends_itself=True)
    await asyncio.wait([task])
    assert len(owner) == 0


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
async def test_a_cancelled_caller_waits_only_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "STOP_TIMEOUT", 0.01)
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
    monkeypatch.setattr(tasks, "ANSWER_TIMEOUT", 0.01)
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


@aio
async def test_a_longer_timeout_is_kept_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "ANSWER_TIMEOUT", 0.0)
    begun = threading.Event()

    def work(_: threading.Event) -> bool:
        return begun.wait(TIMEOUT)

    async with asyncio.TaskGroup() as group:
        working = group.create_task(in_thread("/f", work, timeout=TIMEOUT))
        await turns()
        assert not working.done()
        begun.set()
    assert working.result()


@aio
async def test_the_results_of_work_done_together_come_in_order() -> None:
    first = asyncio.Event()

    async def slow() -> str:
        await first.wait()
        return "slow"

    async def fast() -> int:
        first.set()
        return 1

    async with asyncio.timeout(TIMEOUT):
        assert await together(slow(), fast()) == ("slow", 1)
    assert await together() == ()


@aio
async def test_the_first_failure_ends_the_work_done_beside_it() -> None:
    ended: list[str] = []

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("waits")

    async def fails() -> None:
        await asyncio.sleep(0)
        raise FileFailed("/f", "broken")

    async with asyncio.timeout(TIMEOUT):
        with pytest.raises(FileFailed, match="broken"):
            await together(waits(), fails())
    assert ended == ["waits"]


@aio
async def test_cancelling_the_caller_ends_work_done_together() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def waits() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with asyncio.timeout(TIMEOUT), asyncio.TaskGroup() as group:
        task = group.create_task(together(waits(), waits()))
        await begun.wait()
        task.cancel()
    assert task.cancelled()
    assert ended.is_set()


@aio
async def test_clean_up_goes_on_beside_one_that_fails() -> None:
    ended: list[str] = []

    async def fails() -> None:
        raise FileFailed("/f", "broken")

    async def ends() -> None:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        ended.append("ends")

    with pytest.raises(FileFailed, match="broken"):
        await all_ended(fails(), ends())
    assert ended == ["ends"]
    await all_ended()


HANGING: Final = """
import asyncio, threading
from dragoman.errors import FileFailed
from dragoman.rpc.tasks import in_thread

async def main():
    try:
        await in_thread("/f", lambda _: threading.Event().wait(), timeout=0.01)
    except FileFailed:
        print("timed out")

asyncio.run(main())
"""

CLEAN_UP: Final = """
def clean_up(stop):
    stop.wait()
    print("cleaned up", flush=True)

"""


def test_a_process_that_exits_lets_work_in_threads_clean_up() -> None:
    script = HANGING.replace("threading.Event().wait()", "clean_up(_)").replace(
        "async def main", CLEAN_UP + "async def main", 1
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=30)
    assert done.returncode == 0
    assert b"cleaned up" in done.stdout and b"timed out" in done.stdout


def test_a_process_exits_although_its_work_in_a_thread_hangs() -> None:
    done = subprocess.run([sys.executable, "-c", HANGING], capture_output=True, timeout=30)
    assert (done.returncode, done.stdout) == (0, b"timed out\n")


@aio
async def test_work_that_hangs_does_not_hold_up_other_work() -> None:
    hang = threading.Event()
    with pytest.raises(FileFailed):
        await in_thread("/f", lambda _: hang.wait(), timeout=TIMEOUT)
    try:
        assert await in_thread("/f", lambda _: 1) == 1
    finally:
        hang.set()


def test_a_forked_process_has_threads_of_its_own() -> None:
    threads = _DaemonThreads()
    assert threads.submit(int, "1").result(timeout=10) == 1
    threads.reset()
    assert threads.submit(int, "2").result(timeout=10) == 2


def test_an_exception_in_a_thread_reaches_the_caller() -> None:
    future = _DaemonThreads().submit(int, "x")
    assert isinstance(future.exception(timeout=10), ValueError)


@aio
async def test_threads_that_could_not_be_started_are_not_missing_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(tasks, "_threads", _DaemonThreads())
    ran: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        for _ in range(tasks.MAX_THREADS):
            with pytest.raises(FileFailed, match="can't start new thread") as caught:
                await in_thread("/f", lambda stop: ran.append(0))
            assert (caught.value.blame, caught.value.may_have_run) == ("world", False)
    assert await in_thread("/f", lambda stop: "done") == "done"
    work = Work()
    owner = TaskOwner("test")
    waiting = owner.start(in_thread("/f", work), "wait")
    await work.wait_begun()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        queued = owner.start(in_thread("/f", lambda stop: "later"), "wait")
        await turns()
    work.let_go.set()
    assert await soon(queued) == "later"
    await soon(waiting)
    assert ran == []
