"""The way into a connection's loop, from wherever the caller is."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from dragoman.agent import loop_access
from dragoman.agent.loop_access import LoopAccess
from tests.aio import aio
from tests.unit.rpc.other_side import soon

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    return await soon(asyncio.to_thread(work))


async def where() -> int:
    await asyncio.sleep(0)
    return threading.get_ident()


@aio
async def test_at_home_work_is_simply_awaited() -> None:
    home = LoopAccess()
    assert home.thread == threading.get_ident()
    task = asyncio.current_task()

    async def work() -> bool:
        return asyncio.current_task() is task

    assert await home.run(work)


@aio
async def test_a_thread_without_a_loop_waits_for_what_is_done_at_home() -> None:
    home = LoopAccess()

    def work() -> tuple[bool, int]:
        return home.thread == threading.get_ident(), home.wait(where())

    assert await in_thread(work) == (False, threading.get_ident())


@aio
async def test_another_loop_waits_for_what_is_done_at_home() -> None:
    home = LoopAccess()
    assert await in_thread(lambda: asyncio.run(home.run(where))) == threading.get_ident()


@aio
async def test_what_is_raised_at_home_is_raised_where_it_is_waited_for() -> None:
    home = LoopAccess()

    async def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await in_thread(lambda: home.wait(fail()))
    with pytest.raises(ZeroDivisionError):
        await in_thread(lambda: asyncio.run(home.run(fail)))


@aio
async def test_calling_off_cancels_what_threads_wait_for_and_what_they_begin_later() -> None:
    home = LoopAccess()
    begun, ended = asyncio.Event(), asyncio.Event()

    async def hang() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    def work() -> list[str]:
        seen: list[str] = []
        for _ in range(2):
            try:
                home.wait(hang())
            except asyncio.CancelledError as error:
                seen.append(str(error))
        return seen

    async with asyncio.TaskGroup() as tasks:
        thread = tasks.create_task(in_thread(work))
        await soon(begun.wait())
        home.call_off()
        assert await thread == ["the turn was cancelled"] * 2
    assert ended.is_set()


@aio
async def test_last_words_are_heard_after_calling_off() -> None:
    home = LoopAccess()
    home.call_off()
    assert await in_thread(lambda: home.wait(where(), last=True)) == threading.get_ident()


def test_a_missing_loop_is_like_a_cancellation() -> None:
    homes: list[LoopAccess] = []

    async def move_in() -> None:
        homes.append(LoopAccess())

    asyncio.run(move_in())
    outcome: list[Any] = []

    def knock() -> None:
        try:
            homes[0].wait(where())
        except asyncio.CancelledError as error:
            outcome.append(str(error))

    thread = threading.Thread(target=knock)
    thread.start()
    thread.join(10.0)
    assert outcome == ["the connection is closed"]


@pytest.mark.parametrize("began", [True, False])
def test_work_that_a_closing_loop_does_not_finish_is_like_a_cancellation(
    began: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_access, "CLOSED_CHECK_INTERVAL", 0.01)
    loop = asyncio.new_event_loop()
    asked = threading.Event()
    schedule = loop.call_soon_threadsafe

    def scheduled(*args: Any, **options: Any) -> asyncio.Handle:
        handle = schedule(*args, **options)
        asked.set()
        return handle

    monkeypatch.setattr(loop, "call_soon_threadsafe", scheduled)

    async def move_in() -> LoopAccess:
        return LoopAccess()

    async def hang() -> None:
        await asyncio.Event().wait()

    home = loop.run_until_complete(move_in())
    outcome: list[str] = []

    def knock() -> None:
        try:
            home.wait(hang())
        except asyncio.CancelledError as error:
            outcome.append(str(error))

    thread = threading.Thread(target=knock, daemon=True)
    thread.start()
    assert asked.wait(10.0)
    if began:
        for _ in range(3):
            loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    thread.join(10.0)
    assert outcome == ["the connection is closed"]


@aio
async def test_a_timeout_of_the_work_is_raised_and_not_taken_for_that_of_a_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loop_access, "CLOSED_CHECK_INTERVAL", 0.0)
    home = LoopAccess()

    async def fail() -> None:
        await where()
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        await in_thread(lambda: home.wait(fail()))
    assert await in_thread(lambda: home.wait(where())) == threading.get_ident()
