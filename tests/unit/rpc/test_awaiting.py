"""Calls that a task waits for: when it goes on, and what becomes of it otherwise."""

from __future__ import annotations

import asyncio
import contextvars
import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Raw

from dragoman.errors import CallTimeout, RemoteError
from dragoman.rpc import Connection, Lane, Settings
from dragoman.rpc.awaiting import Awaited
from dragoman.wire.messages import Notification
from tests.aio import aio
from tests.unit.rpc.other_side import Witness, soon, talk, turns

GIVEN_UP = Settings(cancel_notice=lambda id: ("$/cancel", {"id": id}))


def line(**message: Any) -> bytes:
    return json.dumps(message).encode() + b"\n"


async def in_a_callback(work: Callable[[], None]) -> None:
    """Call a function as the event loop calls what reads a stream."""
    done = asyncio.get_running_loop().create_future()

    def call() -> None:
        work()
        done.set_result(None)

    asyncio.get_running_loop().call_soon(call)
    await soon(done)


def asking(connection: Connection, seen: list[str]) -> asyncio.Task[Raw]:
    async def ask() -> Raw:
        answer = await connection.call("ask")
        seen.append("answer")
        return answer

    return connection.tasks.start(ask(), "ask")


@aio
async def test_an_answer_that_comes_alone_is_taken_in_the_turn_that_brought_it() -> None:
    seen: list[str] = []
    async with talk() as (connection, other):
        task = asking(connection, seen)
        await other.next()

        def arrive() -> None:
            connection.data_received(line(id=0, result=5))
            seen.append("callback over")

        await in_a_callback(arrive)
        assert seen == ["answer", "callback over"]
        assert bytes(await soon(task)) == b"5"


@aio
async def test_answers_that_come_together_are_taken_in_their_order_a_turn_later() -> None:
    seen: list[str] = []
    async with talk() as (connection, other):
        tasks = [asking(connection, seen) for _ in range(2)]
        await turns()

        def arrive() -> None:
            connection.data_received(line(id=1, result="one") + line(id=0, result="zero"))
            seen.append("callback over")

        await in_a_callback(arrive)
        assert [bytes(await soon(task)) for task in tasks] == [b'"zero"', b'"one"']
        assert seen == ["callback over", "answer", "answer"]


@aio
async def test_an_answer_does_not_overtake_what_waits_in_a_lane() -> None:
    seen: list[str] = []

    class Queueing(Witness):
        def notification(self, notification: Notification) -> None:
            lane.put(notification.method, len(notification.line))

    async with talk(Queueing()) as (connection, other):
        lane: Lane[str] = Lane(connection.flow)

        async def consume() -> None:
            seen.append(await lane.get())

        connection.tasks.start(consume(), "consume")
        task = asking(connection, seen)
        await turns()

        def arrive() -> None:
            connection.data_received(line(method="news"))
            connection.data_received(line(id=0, result=1))

        await in_a_callback(arrive)
        await soon(task)
        assert seen == ["news", "answer"]


@aio
async def test_an_answer_that_a_task_brings_is_taken_when_that_task_waits() -> None:
    seen: list[str] = []
    async with talk() as (connection, other):
        task = asking(connection, seen)
        await other.next()
        connection.data_received(line(id=0, result=1))
        assert seen == []
        assert bytes(await soon(task)) == b"1"


@aio
async def test_an_answer_brought_in_the_context_of_its_caller_is_taken_a_turn_later() -> None:
    context = contextvars.copy_context()
    async with talk() as (connection, other):
        loop = asyncio.get_running_loop()
        task = loop.create_task(connection.call("ask"), context=context)
        await other.next()
        arrived = loop.create_future()

        def arrive() -> None:
            connection.data_received(line(id=0, result=1))
            arrived.set_result(task.done())

        loop.call_soon(arrive, context=context)
        assert await soon(arrived) is False
        assert bytes(await soon(task)) == b"1"


@aio
async def test_what_the_caller_sees_is_its_own_context() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="none")
    async with talk() as (connection, other):

        async def ask() -> str:
            variable.set("mine")
            await connection.call("ask")
            return variable.get()

        task = connection.tasks.start(ask(), "ask")
        await other.next()
        await in_a_callback(lambda: connection.data_received(line(id=0, result=1)))
        assert await soon(task) == "mine"
        assert variable.get() == "none"


@aio
async def test_a_caller_may_ask_again_and_again_and_each_answer_is_its_own() -> None:
    async with talk() as (connection, other):

        async def ask() -> list[bytes]:
            return [bytes(await connection.call("ask")) for _ in range(100)]

        task = connection.tasks.start(ask(), "ask")
        for number in range(100):
            other.answer(await other.next(), number)
        assert await soon(task) == [str(number).encode() for number in range(100)]


@aio
async def test_a_caller_that_closes_the_connection_when_it_has_its_answer_is_not_stopped() -> None:
    async with talk() as (connection, other):

        async def ask() -> str:
            await connection.call("ask")
            await connection.aclose()
            return "closed"

        task = asyncio.get_running_loop().create_task(ask())
        other.answer(await other.next(), 1)
        assert await soon(task) == "closed"


@pytest.mark.parametrize("answered", [False, True])
@aio
async def test_a_cancelled_caller_gets_no_answer_even_if_one_comes_first(answered: bool) -> None:
    async with talk(settings=GIVEN_UP) as (connection, other):
        task = asking(connection, [])
        await other.next()

        def cancel() -> None:
            task.cancel("enough")
            if answered:
                connection.data_received(line(id=0, result=1))

        await in_a_callback(cancel)
        with pytest.raises(asyncio.CancelledError, match="enough"):
            await soon(task)
        connection.post("end")
        # Who has answered need not be told that nobody waits.
        expected = ["end"] if answered else ["$/cancel", "end"]
        assert [(await other.next())["method"] for _ in expected] == expected


@aio
async def test_a_cancellation_that_comes_with_the_answer_is_not_lost() -> None:
    async with talk() as (connection, other):
        call = Awaited("ask", connection._forget, loop=asyncio.get_running_loop())

        async def wait() -> Raw:
            return await call

        task = connection.tasks.start(wait(), "wait")
        await turns()
        call.settle(Raw(b"1"), None)
        assert call.cancel() is False, "it is over: the task has to be cancelled otherwise"
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await soon(task)


@aio
async def test_only_the_first_end_counts() -> None:
    async with talk() as (connection, other):
        call = Awaited("ask", connection._forget, loop=asyncio.get_running_loop())
        assert not call.settled
        call.settle(None, RemoteError(1, "no"))
        call.settle(Raw(b"1"), None)
        call.give_up(CallTimeout("ask", 1.0))
        assert call.settled
        with pytest.raises(RemoteError, match="no"):
            await call


@aio
async def test_a_task_that_waits_shows_what_for() -> None:
    async with talk() as (connection, other):
        task = connection.tasks.start(connection.call("ask"), "ask")
        await other.next()
        assert "<call 0 of ask>" in repr(task)
        task.cancel()


@aio
async def test_a_call_of_another_event_loop_cannot_be_waited_for_here() -> None:
    elsewhere = asyncio.new_event_loop()
    try:
        with pytest.raises(RuntimeError, match="different loop"):
            await Awaited("ask", lambda call: None, loop=elsewhere)
    finally:
        elsewhere.close()
