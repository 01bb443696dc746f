"""Work begins at once, and nothing else about it differs from work in a task of its own."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from dragoman.rpc.standby import EagerStart, OrdinaryStart, Standby, start_for
from dragoman.rpc.tasks import TaskOwner
from tests.aio import aio
from tests.unit.rpc.other_side import soon, turns, until

KINDS: list[type[OrdinaryStart]] = [OrdinaryStart, Standby]
if sys.version_info >= (3, 12):
    KINDS.append(EagerStart)

everywhere = pytest.mark.parametrize("kind", KINDS)
at_once = pytest.mark.parametrize("kind", KINDS[1:])

colour: contextvars.ContextVar[str] = contextvars.ContextVar("colour", default="none")


class Bench:
    """Begins work in callbacks of the loop, as a connection does, and keeps what became of it."""

    def __init__(self, kind: type[OrdinaryStart]) -> None:
        self.tasks = TaskOwner("bench")
        self.start = kind(self.tasks)
        self.ends: list[Any] = []
        self.begun: list[asyncio.Task[None] | None] = []

    async def warm_up(self) -> None:
        """Let one work go by, so that a task stands by."""
        await self.run(asyncio.sleep(0))
        self.ends.clear()
        self.begun.clear()

    def begin(self, work: Awaitable[Any]) -> None:
        """Begin in a callback, which is where no task is."""
        asyncio.get_running_loop().call_soon(self.begin_here, work)

    def begin_here(self, work: Awaitable[Any]) -> None:
        box: list[asyncio.Task[None] | None] = []

        async def whole() -> None:
            try:
                self.ends.append(await work)
            except (Exception, asyncio.CancelledError) as error:
                self.ends.append(error)
                if isinstance(error, asyncio.CancelledError):
                    raise
            finally:
                if box and box[0] is not None:
                    self.tasks.forget(box[0])

        box.append(self.start.begin(whole(), "work"))
        self.begun += box

    async def run(self, work: Awaitable[Any]) -> Any:
        """Begin, and wait for the end."""
        before = len(self.ends)
        self.begin(work)
        await until(lambda: len(self.ends) > before)
        await turns()
        return self.ends[-1]

    async def close(self) -> None:
        self.start.dismiss()
        await self.tasks.aclose()
        assert len(self.tasks) == 0


def on_bench(
    test: Callable[[Bench], Awaitable[None]],
) -> Callable[[type[OrdinaryStart]], None]:
    @aio
    async def run(kind: type[OrdinaryStart]) -> None:
        bench = Bench(kind)
        await bench.warm_up()
        try:
            await test(bench)
        finally:
            await bench.close()

    run.__name__ = test.__name__
    return run


async def just(value: Any) -> Any:
    return value


@at_once
@on_bench
async def test_work_that_waits_for_nothing_ends_where_it_is_begun(bench: Bench) -> None:
    asyncio.get_running_loop().call_soon(bench.begin_here, just(1))
    # The callback is one turn away, and a task would be two.
    await asyncio.sleep(0)
    assert bench.ends == [1]
    assert bench.begun == [None]
    assert len(bench.tasks) == 0


@aio
async def test_the_first_work_of_all_is_done_as_well() -> None:
    bench = Bench(Standby)
    assert await bench.run(just(1)) == 1
    await bench.close()


@everywhere
@on_bench
async def test_work_that_waits_goes_on_when_what_it_waits_for_is_there(bench: Bench) -> None:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def work() -> list[int]:
        first = await future
        await asyncio.sleep(0)
        return [first, await just(2)]

    bench.begin(work())
    await turns()
    assert bench.ends == []
    (task,) = bench.begun
    assert task is not None
    assert task.get_name() == "bench: work"
    assert len(bench.tasks) == 1
    future.set_result(1)
    await until(lambda: bench.ends == [[1, 2]])
    await soon(asyncio.wait([task]))
    assert len(bench.tasks) == 0


@everywhere
@on_bench
async def test_what_was_waited_for_may_fail_and_the_work_may_go_on(bench: Bench) -> None:
    loop = asyncio.get_running_loop()
    first, second = loop.create_future(), loop.create_future()

    async def work() -> str:
        try:
            await first
        except ValueError:
            return str(await second)
        raise AssertionError

    bench.begin(work())
    await turns()
    first.set_exception(ValueError())
    await turns()
    second.set_result("mended")
    await until(lambda: bench.ends == ["mended"])


@everywhere
@on_bench
async def test_a_failure_after_a_wait_may_be_the_end(bench: Bench) -> None:
    first = asyncio.get_running_loop().create_future()

    async def work() -> None:
        try:
            await first
        finally:
            raise KeyError("late")

    bench.begin(work())
    await turns()
    first.set_exception(ValueError())
    await until(lambda: len(bench.ends) == 1)
    assert isinstance(bench.ends[0], KeyError)


@everywhere
@on_bench
async def test_work_has_one_task_from_its_first_step_to_its_last(bench: Bench) -> None:
    async def work() -> list[asyncio.Task[Any] | None]:
        first = asyncio.current_task()
        await asyncio.sleep(0)
        return [first, asyncio.current_task()]

    first, second = await bench.run(work())
    assert first is not None
    assert first is second
    assert [first] == bench.begun


@everywhere
@on_bench
async def test_works_that_come_together_each_have_their_own_task(bench: Bench) -> None:
    gate = asyncio.Event()

    async def work() -> asyncio.Task[Any] | None:
        await gate.wait()
        return asyncio.current_task()

    def all_of_them() -> None:
        for _ in range(5):
            bench.begin_here(work())

    asyncio.get_running_loop().call_soon(all_of_them)
    await turns()
    gate.set()
    await until(lambda: len(bench.ends) == 5)
    assert len(set(bench.ends)) == 5


@everywhere
@pytest.mark.parametrize("timeout", [0.0, -1.0, 0.005])
@aio
async def test_a_timeout_that_begins_in_the_first_step_ends_the_wait(
    kind: type[OrdinaryStart], timeout: float
) -> None:
    bench = Bench(kind)
    await bench.warm_up()

    async def work() -> tuple[str, int]:
        here = asyncio.current_task()
        assert here is not None
        try:
            async with asyncio.timeout(timeout):
                await asyncio.Event().wait()
        except TimeoutError:
            return "timed out", here.cancelling()
        raise AssertionError

    assert await bench.run(work()) == ("timed out", 0)
    await bench.close()


@everywhere
@on_bench
async def test_a_timeout_that_is_not_needed_cancels_nothing(bench: Bench) -> None:
    async def work(seconds: float) -> str:
        async with asyncio.timeout(seconds):
            await just(None)
        return "in time"

    for _ in range(3):
        assert await bench.run(work(0.0)) == "in time"

    async def longer() -> str:
        await turns(20)
        return "undisturbed"

    assert await bench.run(longer()) == "undisturbed"


@everywhere
@on_bench
async def test_a_group_that_begins_in_the_first_step_stops_its_parent(bench: Bench) -> None:
    async def fail() -> None:
        raise ValueError("child")

    async def work() -> str:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(fail())
                await asyncio.Event().wait()
        except* ValueError:
            pass
        return "all ended"

    assert await bench.run(work()) == "all ended"


@everywhere
@on_bench
async def test_work_that_cancels_itself_hears_of_it_at_its_first_wait(bench: Bench) -> None:
    async def work() -> str:
        here = asyncio.current_task()
        assert here is not None
        here.cancel("enough")
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            here.uncancel()
            await asyncio.sleep(0)
            return "heard"
        raise AssertionError

    assert await bench.run(work()) == "heard"
    assert await bench.run(just(1)) == 1


@everywhere
@on_bench
async def test_work_that_cancels_itself_hears_of_it_where_it_only_gives_way(bench: Bench) -> None:
    async def work() -> str:
        here = asyncio.current_task()
        assert here is not None
        here.cancel()
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            return "heard"
        raise AssertionError

    assert await bench.run(work()) == "heard"


@everywhere
@on_bench
async def test_work_that_cancels_itself_and_waits_for_nothing_harms_no_other(bench: Bench) -> None:
    async def work() -> str:
        here = asyncio.current_task()
        assert here is not None
        here.cancel()
        return "ended"

    async def wait() -> str:
        await turns(3)
        return "waited"

    assert await bench.run(work()) == "ended"
    assert await bench.run(wait()) == "waited"


@everywhere
@on_bench
async def test_work_may_end_with_a_cancellation_in_its_first_step(bench: Bench) -> None:
    async def work() -> None:
        raise asyncio.CancelledError

    assert isinstance(await bench.run(work()), asyncio.CancelledError)
    assert await bench.run(just(1)) == 1


@everywhere
@pytest.mark.parametrize("after_turns", [0, 1, 2, 5])
@aio
async def test_a_cancel_reaches_what_the_work_waits_for(
    kind: type[OrdinaryStart], after_turns: int
) -> None:
    bench = Bench(kind)
    await bench.warm_up()
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def begin_and_cancel() -> None:
        bench.begin_here(_wait_for(future))
        (task,) = bench.begun
        assert task is not None
        loop = asyncio.get_running_loop()

        def cancel(left: int) -> None:
            if left:
                loop.call_soon(cancel, left - 1)
            else:
                task.cancel()

        # Not before its first step, which for an ordinary task is one turn away.
        loop.call_soon(cancel, after_turns)

    asyncio.get_running_loop().call_soon(begin_and_cancel)
    await until(lambda: len(bench.ends) == 1)
    assert isinstance(bench.ends[0], asyncio.CancelledError)
    assert future.cancelled()
    await bench.close()


async def _wait_for(future: asyncio.Future[None]) -> None:
    await future


@at_once
@pytest.mark.parametrize("done", [False, True])
@aio
async def test_a_cancel_right_behind_the_first_step_is_heard(
    kind: type[OrdinaryStart], done: bool
) -> None:
    bench = Bench(kind)
    await bench.warm_up()
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def begin_and_cancel() -> None:
        bench.begin_here(_wait_for(future))
        (task,) = bench.begun
        assert task is not None
        if done:
            # Too late to cancel it: the work is told anyway.
            future.set_result(None)
        task.cancel()

    asyncio.get_running_loop().call_soon(begin_and_cancel)
    await until(lambda: len(bench.ends) == 1)
    assert isinstance(bench.ends[0], asyncio.CancelledError)
    assert future.cancelled() is not done
    await bench.close()


@everywhere
@on_bench
async def test_each_work_has_a_context_of_its_own(bench: Bench) -> None:
    async def work(wait: bool) -> list[str]:
        before = colour.get()
        colour.set("red")
        if wait:
            await asyncio.sleep(0)
        return [before, colour.get()]

    for wait in (False, True, False, True):
        assert await bench.run(work(wait)) == ["none", "red"]
    assert colour.get() == "none"


@everywhere
@on_bench
async def test_who_keeps_its_task_never_meets_another_work_in_it(bench: Bench) -> None:
    kept: list[asyncio.Task[Any]] = []

    async def keep() -> None:
        here = asyncio.current_task()
        assert here is not None
        kept.append(here)

    async def wait() -> asyncio.Task[Any] | None:
        await turns(3)
        return asyncio.current_task()

    await bench.run(keep())
    (old,) = kept
    assert await bench.run(wait()) is not old
    # As with any task whose work is done.
    assert old.done()
    assert not old.cancel()


@everywhere
@on_bench
async def test_who_keeps_its_task_weakly_never_meets_another_work_in_it(bench: Bench) -> None:
    kept: weakref.WeakKeyDictionary[asyncio.Task[Any], str] = weakref.WeakKeyDictionary()

    async def keep() -> None:
        here = asyncio.current_task()
        assert here is not None
        kept[here] = "mine"

    async def look() -> str | None:
        here = asyncio.current_task()
        assert here is not None
        return kept.get(here)

    await bench.run(keep())
    assert await bench.run(look()) is None


@everywhere
@on_bench
async def test_a_done_callback_of_the_task_is_called(bench: Bench) -> None:
    told: list[str] = []

    async def work() -> None:
        here = asyncio.current_task()
        assert here is not None
        here.add_done_callback(lambda task: told.append("over"))

    await bench.run(work())
    await until(lambda: told == ["over"])


@everywhere
@on_bench
async def test_work_may_be_begun_inside_a_task(bench: Bench) -> None:
    here = asyncio.current_task()
    bench.begin_here(just(1))
    assert asyncio.current_task() is here
    await until(lambda: bench.ends == [1])


@at_once
@on_bench
async def test_work_may_be_begun_by_work_in_its_first_step(bench: Bench) -> None:
    async def outer() -> str:
        bench.begin_here(just("inner"))
        return "outer"

    bench.begin(outer())
    await until(lambda: sorted(bench.ends) == ["inner", "outer"])


@everywhere
@on_bench
async def test_closing_cancels_what_waits(bench: Bench) -> None:
    bench.begin(asyncio.Event().wait())
    await turns()
    bench.start.dismiss()
    await soon(bench.tasks.aclose())
    assert isinstance(bench.ends[0], asyncio.CancelledError)


@aio
async def test_a_task_that_stands_by_is_gone_with_the_connection_at_whatever_moment() -> None:
    for moment in range(4):
        bench = Bench(Standby)
        bench.begin(just(1))
        await turns(moment)
        bench.start.dismiss()
        await bench.tasks.aclose()
        await until(lambda: bench.ends == [1])  # noqa: B023 - awaited here
        await turns()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        # What is begun anyway is begun in the ordinary way, and nobody stands by.
        assert await bench.run(just(2)) == 2
        assert asyncio.all_tasks() == {asyncio.current_task()}


@aio
async def test_a_task_that_stands_by_may_be_cancelled_like_any_other() -> None:
    bench = Bench(Standby)
    await bench.warm_up()
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await turns()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert await bench.run(just(1)) == 1
    await bench.close()


def test_a_loop_may_end_while_a_task_stands_by() -> None:
    async def main() -> list[Any]:
        bench = Bench(Standby)
        await bench.warm_up()
        bench.begin(asyncio.Event().wait())
        await turns()
        return bench.ends

    (end,) = asyncio.run(main())
    assert isinstance(end, asyncio.CancelledError)


@aio
async def test_this_interpreter_gets_the_best_start_that_it_has() -> None:
    best = EagerStart if sys.version_info >= (3, 12) else Standby
    assert type(start_for(TaskOwner("test"))) is best
