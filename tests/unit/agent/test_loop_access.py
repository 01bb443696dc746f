"""The way into a connection's loop, from wherever the caller is."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

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


def test_nobody_at_home_is_like_being_cancelled() -> None:
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
