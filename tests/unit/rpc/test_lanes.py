"""Order within a lane, and the limits of what all lanes of a connection hold."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from dragoman.errors import ConnectionClosed, ConnectionEnded, ConnectionLost, Overflow, UsageError
from dragoman.rpc.lanes import ITEM_SIZE, UNHURRIED_INTERVAL, Flow, HandlerLane, Lane, Limits
from dragoman.rpc.tasks import TaskOwner
from tests.aio import aio
from tests.unit.rpc.other_side import RecordingStream, soon, turns, until

ITEM = ITEM_SIZE + 1
"""What an item of one byte counts for."""


LIMITS = Limits(3 * ITEM, 6 * ITEM, stall_interval=1.0, overflow_timeout=60.0)


class Clock:
    """Stands in for the loop of a flow, so that time passes when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self.due: list[tuple[float, asyncio.TimerHandle]] = []

    def call_later(
        self, delay: float, callback: Callable[..., None], *args: Any
    ) -> asyncio.TimerHandle:
        loop = asyncio.get_running_loop()
        handle = asyncio.TimerHandle(self.now + delay, callback, args, loop)
        self.due.append((self.now + delay, handle))
        return handle

    @property
    def ticking(self) -> bool:
        return any(not handle.cancelled() for _, handle in self.due)

    def advance(self, seconds: float) -> None:
        until = self.now + seconds
        while ready := [entry for entry in self.due if entry[0] <= until]:
            entry = min(ready, key=lambda entry: entry[0])
            self.due.remove(entry)
            self.now, handle = entry
            if not handle.cancelled():
                handle._run()
        self.now = until


def make(limits: Limits = LIMITS) -> tuple[RecordingStream, Flow, Clock]:
    stream, clock = RecordingStream(), Clock()
    flow = Flow(stream.pause_reading, stream.resume_reading, limits)
    flow._loop = clock  # type: ignore[assignment]
    return stream, flow, clock


def fill(lane: Lane[int], *items: int) -> None:
    for item in items:
        lane.put(item, 1)


# -- a lane


@aio
async def test_items_come_out_in_order() -> None:
    lane: Lane[int] = Lane(make(Limits())[1])
    fill(lane, *range(100))
    assert len(lane) == 100
    assert [await lane.get() for _ in range(100)] == list(range(100))


@aio
async def test_a_consumer_waits_for_the_next_item() -> None:
    lane: Lane[int] = Lane(make()[1])
    tasks = TaskOwner("test")
    waiting = tasks.start(lane.get(), "get")
    await turns()
    assert not waiting.done()
    fill(lane, 7, 8)
    assert await soon(waiting) == 7
    assert await lane.get() == 8


@aio
async def test_what_is_not_in_a_hurry_wakes_its_consumer_a_little_later_and_once() -> None:
    lane: Lane[int] = Lane(make(Limits())[1])
    tasks = TaskOwner("test")
    waiting = tasks.start(lane.get(), "get")
    await turns()
    clock = Clock()
    lane._loop = clock  # type: ignore[assignment]
    for item in range(5):
        lane.put_unhurried(item, 1)
    await turns()
    assert not waiting.done()
    assert len(clock.due) == 1
    clock.advance(UNHURRIED_INTERVAL)
    assert await soon(waiting) == 0
    assert [lane.take() for _ in range(4)] == [1, 2, 3, 4]
    assert lane.size == 0


@aio
async def test_what_is_in_a_hurry_brings_along_what_is_not_and_order_is_kept() -> None:
    lane: Lane[int] = Lane(make(Limits())[1])
    tasks = TaskOwner("test")
    waiting = tasks.start(lane.get(), "get")
    await turns()
    lane.put_unhurried(1, 1)
    lane.put(2, 1)
    await turns(2)
    assert waiting.done()
    assert (waiting.result(), lane.take()) == (1, 2)
    # The timer finds a consumer that waits for something else, and an empty lane.
    again = tasks.start(lane.get(), "get")
    await until(lambda: lane._timer is None)
    await turns()
    assert not again.done()
    lane.put_unhurried(3, 1)
    lane.wake()
    assert await soon(again) == 3
    timer = lane._timer
    assert timer is not None
    lane.close()
    assert timer.cancelled()


@aio
async def test_low_priority_items_need_no_timer_without_a_waiter_or_a_limit() -> None:
    lane: Lane[int] = Lane(make(Limits())[1])
    lane.put_unhurried(1, 1)
    assert await lane.get() == 1
    lane.end(ConnectionClosed())
    lane.put_unhurried(2, 1)
    assert len(lane) == 0
    assert lane._timer is None


@aio
async def test_a_second_consumer_is_refused() -> None:
    lane: Lane[int] = Lane(make()[1])
    tasks = TaskOwner("test")
    waiting = tasks.start(lane.get(), "get")
    await turns()
    with pytest.raises(UsageError):
        await lane.get()
    await tasks.aclose()
    assert waiting.cancelled()


@aio
async def test_a_cancelled_consumer_loses_no_item() -> None:
    lane: Lane[int] = Lane(make()[1])
    tasks = TaskOwner("test")
    waiting = tasks.start(lane.get(), "get")
    await turns()
    fill(lane, 1, 2)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(waiting)
    assert [await lane.get(), await lane.get()] == [1, 2]


@aio
async def test_an_ended_lane_gives_what_was_queued_and_then_its_failure() -> None:
    lane: Lane[int] = Lane(make()[1])
    fill(lane, 1)
    failure = ConnectionEnded("by design")
    lane.end(failure)
    lane.end(ConnectionClosed())
    fill(lane, 2)
    assert lane.ended is failure
    assert await lane.get() == 1
    for _ in range(2):
        with pytest.raises(ConnectionEnded, match="by design") as caught:
            await lane.get()
        assert caught.value is not failure


@aio
async def test_the_end_wakes_a_consumer_that_waits() -> None:
    lane: Lane[int] = Lane(make()[1])
    waiting = TaskOwner("test").start(lane.get(), "get")
    await turns()
    lane.end(ConnectionEnded())
    with pytest.raises(ConnectionEnded):
        await soon(waiting)


@aio
async def test_a_closed_lane_drops_everything_and_blocks_nothing() -> None:
    stream, flow, _ = make()
    lane: Lane[int] = Lane(flow)
    fill(lane, *range(5))
    assert not stream.reading
    lane.close()
    assert stream.reading
    assert (len(lane), lane.size, flow.queued) == (0, 0, 0)
    with pytest.raises(ConnectionLost):
        await lane.get()
    lane.close()
    assert flow.queued == 0


@aio
async def test_the_end_of_a_connection_reaches_every_lane() -> None:
    _, flow, _ = make()
    queued: Lane[int] = Lane(flow)
    fill(queued, 1)
    empty: Lane[int] = Lane(flow)
    waiting = TaskOwner("test").start(empty.get(), "get")
    await turns()
    flow.close(ConnectionEnded("by design"))
    late: Lane[int] = Lane(flow)
    assert await queued.get() == 1
    for work in (queued.get(), waiting, late.get()):
        with pytest.raises(ConnectionEnded, match="by design"):
            await soon(work)


# -- the limits


@aio
async def test_reading_pauses_over_the_soft_limit_and_goes_on_below_it() -> None:
    stream, flow, _ = make()
    lane: Lane[int] = Lane(flow)
    fill(lane, 1, 2, 3)
    assert stream.reading
    fill(lane, 4)
    assert not stream.reading
    lane.take()
    assert stream.reading
    flow.close(ConnectionClosed())


@aio
async def test_a_hold_keeps_reading_paused_whatever_the_lanes_do() -> None:
    stream, flow, clock = make()
    flow.hold()
    assert flow.paused and not clock.ticking
    lane: Lane[int] = Lane(flow)
    for item in range(4):
        lane.put(item, 1)
    assert clock.ticking
    lane.take()
    lane.take()
    assert flow.paused and not clock.ticking
    flow.hold()
    flow.release()
    assert flow.paused
    flow.release()
    assert not flow.paused and stream.reading


@aio
async def test_the_lanes_of_a_connection_share_its_limit() -> None:
    stream, flow, _ = make()
    lanes: list[Lane[int]] = [Lane(flow) for _ in range(4)]
    for lane in lanes:
        fill(lane, 1)
    assert not stream.reading
    lanes[2].take()
    assert stream.reading
    flow.close(ConnectionClosed())


@aio
async def test_a_consumer_that_calls_on_the_connection_lets_reading_go_on_to_the_hard_limit() -> (
    None
):
    stream, flow, _ = make()
    lane: Lane[int] = Lane(flow)
    fill(lane, *range(4))
    flow.calling += 1
    flow.evaluate()
    assert stream.reading
    fill(lane, 4, 5)
    assert stream.reading
    fill(lane, 6)
    assert not stream.reading
    flow.calling -= 1
    flow.close(ConnectionClosed())


@aio
async def test_a_stalled_consumer_gets_reading_going_again() -> None:
    stream, flow, clock = make()
    lane: Lane[int] = Lane(flow)
    fill(lane, *range(4))
    clock.advance(0.9)
    assert not stream.reading
    clock.advance(0.2)
    assert stream.reading
    # Once it moves again the soft limit holds again.
    fill(lane, 4)
    assert stream.reading
    lane.take()
    assert not stream.reading
    flow.close(ConnectionClosed())


@aio
async def test_a_consumer_that_makes_progress_is_not_stalled() -> None:
    stream, flow, clock = make()
    lane: Lane[int] = Lane(flow)
    fill(lane, *range(40))
    for _ in range(30):
        lane.take()
        clock.advance(0.9)
        assert not stream.reading
    flow.close(ConnectionClosed())


@aio
async def test_the_largest_lane_is_cut_when_nothing_is_taken_over_the_hard_limit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stream, flow, clock = make()
    small: Lane[int] = Lane(flow)
    large: Lane[int] = Lane(flow)
    fill(small, 1)
    fill(large, *range(6))
    assert not stream.reading
    with caplog.at_level(logging.WARNING, logger="dragoman.rpc"):
        clock.advance(1.0)
        assert not stream.reading
        clock.advance(59.0)
        assert large.ended is None
        clock.advance(1.0)
    assert "dropping its further messages" in caplog.text
    assert stream.reading
    assert small.ended is None
    assert flow.queued == small.size == ITEM
    fill(small, 2)
    fill(large, 99)
    assert [await large.get() for _ in range(6)] == list(range(6))
    with pytest.raises(Overflow, match=f"{6 * ITEM} bytes") as caught:
        await large.get()
    assert caught.value.may_have_run
    assert [await small.get(), await small.get()] == [1, 2]
    assert flow.queued == 0


@aio
async def test_a_slow_consumer_over_the_hard_limit_is_not_cut() -> None:
    stream, flow, clock = make()
    lane: Lane[int] = Lane(flow)
    fill(lane, *range(100))
    for expected in range(90):
        assert lane.take() == expected
        clock.advance(59.0)
        assert not stream.reading
    assert lane.ended is None
    flow.close(ConnectionClosed())


@aio
async def test_a_lane_that_left_is_not_there_to_be_cut() -> None:
    stream, flow, clock = make()
    flow.queued = 100 * ITEM
    flow.evaluate()
    clock.advance(200.0)
    assert not stream.reading
    flow.close(ConnectionClosed())


@aio
async def test_nothing_ticks_after_the_end_of_the_connection() -> None:
    stream, flow, clock = make()
    lane: Lane[int] = Lane(flow)
    fill(lane, *range(8))
    assert clock.ticking
    flow.close(ConnectionClosed())
    pauses = stream.pauses
    lane.take()
    fill(lane, 9)
    flow.evaluate()
    assert not clock.ticking
    assert stream.pauses == pauses
    assert lane.take() == 1


# -- a lane with a handler


def serve(
    handler: Callable[[int], Awaitable[None] | None], flow: Flow | None = None
) -> tuple[HandlerLane[int], TaskOwner]:
    tasks = TaskOwner("test")
    return HandlerLane(flow or make(Limits())[1], handler, tasks), tasks


@aio
async def test_a_handler_that_waits_random_times_sees_the_order_of_the_wire() -> None:
    chance = random.Random(7)
    seen: list[int] = []

    async def handle(item: int) -> None:
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)
        seen.append(item)

    lane, tasks = serve(handle)
    for item in range(200):
        lane.put(item, 1)
        if item % 7 == 0:
            await turns(1)
    await until(lambda: len(seen) == 200)
    assert seen == list(range(200))
    await tasks.aclose()


@aio
async def test_a_plain_function_may_handle_a_lane() -> None:
    seen: list[int] = []
    lane, _ = serve(seen.append)
    for item in range(3):
        lane.put(item, 1)
    await until(lambda: len(seen) == 3)
    await turns()
    assert seen == [0, 1, 2]


@aio
async def test_one_task_works_a_lane_off_and_an_idle_lane_has_none() -> None:
    most = 0

    async def handle(item: int) -> None:
        nonlocal most
        most = max(most, len(tasks))
        await asyncio.sleep(0)

    lane, tasks = serve(handle)
    for item in range(50):
        lane.put(item, 1)
    await until(lambda: len(tasks) == 0)
    assert most == 1


@aio
async def test_a_failing_handler_is_logged_and_the_next_item_handled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[int] = []

    async def handle(item: int) -> None:
        if item == 1:
            raise ValueError("by design")
        if item == 2:
            # What a handler sees that awaits something which somebody else cancelled.
            raise asyncio.CancelledError
        seen.append(item)

    lane, tasks = serve(handle)
    with caplog.at_level(logging.ERROR, logger="dragoman.rpc"):
        for item in range(4):
            lane.put(item, 1)
        await until(lambda: len(tasks) == 0)
    assert seen == [0, 3]
    assert caplog.text.count("the handler of a notification failed") == 2


@aio
async def test_after_an_idle_lane_there_is_nothing_to_wait_for() -> None:
    called: list[str] = []
    lane, _ = serve(lambda item: None)
    lane.after(lambda: called.append("then"))
    assert called == ["then"]


@aio
async def test_after_waits_for_what_was_queued_before_and_for_nothing_else() -> None:
    told: list[object] = []
    gates = [asyncio.Event(), asyncio.Event()]

    async def handle(item: int) -> None:
        await gates[item].wait()
        told.append(item)

    lane, _ = serve(handle)
    lane.put(0, 1)
    await turns()
    lane.after(lambda: told.append("then"))
    lane.put(1, 1)
    await turns()
    assert told == []
    gates[0].set()
    await turns()
    assert told == [0, "then"]
    gates[1].set()
    await until(lambda: told == [0, "then", 1])
    await turns()


@aio
async def test_a_failing_afterwards_does_not_stop_the_lane(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[int] = []
    lane, tasks = serve(seen.append)
    lane.put(0, 1)

    def fail() -> None:
        raise ValueError("by design")

    lane.after(fail)
    lane.put(1, 1)
    await until(lambda: len(tasks) == 0)
    assert seen == [0, 1]
    assert "by design" in caplog.text


@pytest.mark.parametrize("how", ["closed", "cancelled", "cut"])
@aio
async def test_a_waiter_on_a_lane_is_woken_when_it_ends(how: str) -> None:
    told: list[object] = []
    gate = asyncio.Event()

    async def handle(item: int) -> None:
        await gate.wait()
        told.append(item)

    _, flow, clock = make()
    lane, tasks = serve(handle, flow)
    for item in range(8):
        lane.put(item, 1)
    await turns()
    lane.after(lambda: told.append("before"))
    match how:
        case "closed":
            lane.close()
            gate.set()
            await until(lambda: len(tasks) == 0)
            assert told == ["before", 0]
        case "cancelled":
            await tasks.aclose()
            assert told == ["before"]
        case "cut":
            clock.advance(61.0)
            assert isinstance(lane.ended, Overflow)
            lane.after(lambda: told.append("later"))
            gate.set()
            await until(lambda: len(tasks) == 0)
            assert told == [*range(8), "before", "later"]
    lane.after(lambda: told.append("late"))
    assert told[-1] == "late"
    lane.put(7, 1)
    assert len(tasks) == 0
    flow.close(ConnectionClosed())


@aio
async def test_a_handler_that_is_cut_off_is_notified_after_its_last_item() -> None:
    told: list[object] = []
    gate = asyncio.Event()

    async def handle(item: int) -> None:
        await gate.wait()
        told.append(item)

    _, flow, clock = make()
    tasks = TaskOwner("test")
    lane: HandlerLane[int] = HandlerLane(flow, handle, tasks, on_cut=told.append)
    for item in range(8):
        lane.put(item, 1)
    await turns()
    clock.advance(61.0)
    lane.put(99, 1)
    assert told == []
    gate.set()
    await until(lambda: len(tasks) == 0)
    assert told[:-1] == list(range(8))
    assert isinstance(told[-1], Overflow)
