"""Calls that a task waits for: when it goes on, and what becomes of it otherwise."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import json
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Raw

from dragoman.errors import CallError, CallTimeout, ConnectionEnded, RemoteError
from dragoman.rpc import Call, Connection, ConnectionSettings, Lane
from dragoman.rpc.awaited import Awaited
from dragoman.transports.base import READ_SIZE
from dragoman.wire.messages import Notification, Request
from tests.aio import aio
from tests.unit.rpc.other_side import Witness, soon, talk, turns

python_task: Any = vars(asyncio.tasks)["_PyTask"]
"""What asyncio uses where it has no compiled task, and some who extend it use everywhere."""

GIVEN_UP = ConnectionSettings(cancel_notice=lambda id: ("$/cancel", {"id": id}))


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
async def test_a_lone_answer_does_not_overtake_those_of_the_same_turn() -> None:
    seen: list[int] = []

    async def ask(number: int) -> None:
        try:
            await connection.call("ask")
        except RemoteError:
            pass
        seen.append(number)

    async with talk() as (connection, other):
        for number in range(6):
            connection.tasks.start(ask(number), "ask")
        await turns()

        def arrive() -> None:
            # A pipe that is full is read more than once in a turn.
            last = line(id=2, result=1)
            connection.data_received(line(id=0, result=1) + line(id=1, result=1) + last[:5])
            connection.data_received(last[5:])

        def refuse() -> None:
            connection.data_received(line(id=3, error={"code": 1, "message": "no"}))
            connection.data_received(line(id=4, result=1))

        await in_a_callback(arrive)
        await turns()
        assert seen == [0, 1, 2]
        await in_a_callback(refuse)
        await turns()
        assert seen == [0, 1, 2, 3, 4]
        # It is over with the turn.
        await in_a_callback(lambda: connection.data_received(line(id=5, result=1)))
        assert seen[-1] == 5


@aio
async def test_an_answer_after_a_full_read_does_not_overtake_what_the_read_brought() -> None:
    seen: list[str] = []
    news = asyncio.Event()

    class Waking(Witness):
        def notification(self, notification: Notification) -> None:
            news.set()

    async def listen() -> None:
        await news.wait()
        seen.append("news")

    async with talk(Waking()) as (connection, other):
        connection.tasks.start(listen(), "listen")
        asking(connection, seen)
        await turns()
        told, answer = line(method="news", params="x" * READ_SIZE), line(id=0, result=1)

        def arrive() -> None:
            connection.data_received(told + answer[:5])
            connection.data_received(answer[5:])

        await in_a_callback(arrive)
        await turns()
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
async def test_a_handler_whose_time_is_up_before_it_waits_is_told_so() -> None:
    async def handle(request: Request) -> str:
        try:
            async with asyncio.timeout(0):
                await here.connection.call("ask")
        except TimeoutError:
            return "too late"
        return "in time"

    here = Witness(handle)
    async with talk(here) as (connection, other):
        # The second is begun inside the callback that reads it, and carried on by a task.
        for id in range(2):
            other.say({"jsonrpc": "2.0", "id": id, "method": "do"})
            assert (await other.next())["method"] == "ask"
            assert (await other.next())["result"] == "too late"


@aio
async def test_a_handler_that_calls_as_the_connection_ends_is_told_so() -> None:
    ended: list[BaseException] = []

    async def handle(request: Request) -> None:
        try:
            await here.connection.call("ask")
        except BaseException as error:
            ended.append(error)
            raise

    here = Witness(handle)
    async with talk(here) as (connection, other):
        connection.data_received(line(id=0, method="do"))
        await other.next()

        def arrive() -> None:
            connection.data_received(line(id=1, method="do"))
            connection.stream_ended(ConnectionEnded())

        await in_a_callback(arrive)
        await turns()
        assert len(ended) == 2


@aio
async def test_whoever_is_told_of_an_answer_and_ends_the_process_keeps_no_caller_waiting() -> None:
    class Stop(BaseException):
        pass

    def told(call: Call, error: CallError | None) -> None:
        raise Stop

    def arrive() -> None:
        with pytest.raises(Stop):
            connection.data_received(line(id=0, result=5))

    async with talk() as (connection, other):
        connection.on_answer = told
        task = asking(connection, [])
        await other.next()
        await in_a_callback(arrive)
        assert bytes(await soon(task)) == b"5"


@aio
async def test_a_stream_that_fails_to_write_keeps_no_caller_waiting() -> None:
    class Broken(Exception):
        pass

    def write(data: bytes) -> None:
        raise Broken

    def arrive() -> None:
        with pytest.raises(Broken):
            connection.data_received(line(id=0, result=5))

    async with talk() as (connection, other):
        task = asking(connection, [])
        await other.next()
        connection.on_answer = lambda call, error: connection.post("news")
        connection.stream.write = write  # type: ignore[method-assign]
        await in_a_callback(arrive)
        assert bytes(await soon(task)) == b"5"


@pytest.mark.parametrize("answer", [{"result": 1}, {"error": {"code": 1, "message": "no"}}])
@aio
async def test_whoever_keeps_a_call_keeps_nothing_of_its_caller(answer: dict[str, Any]) -> None:
    class Belonging:
        pass

    kept: list[Call] = []
    gone: list[weakref.ref[Any]] = []

    async def ask() -> None:
        belonging = Belonging()
        gone.append(weakref.ref(belonging))
        try:
            await connection.call("ask")
        except RemoteError as error:
            gone.append(weakref.ref(error))

    async with talk() as (connection, other):
        connection.on_answer = lambda call, error: kept.append(call)
        task = connection.tasks.start(ask(), "ask")
        await other.next()
        gc.disable()
        try:
            await in_a_callback(lambda: connection.data_received(line(id=0, **answer)))
            await soon(task)
            gone.append(weakref.ref(task))
            del task
            await turns()
            assert [reference() for reference in gone] == [None] * len(gone)
        finally:
            gc.enable()
        assert isinstance(kept[0], Awaited)
        assert kept[0].context is None


@aio
async def test_a_task_written_in_python_is_served_alike() -> None:
    async def ask() -> list[bytes]:
        return [bytes(await connection.call("ask")) for _ in range(2)]

    async with talk() as (connection, other):
        loop = asyncio.get_running_loop()
        task = python_task(ask(), loop=loop)
        for number in range(2):
            other.answer(await other.next(), number)
        assert await soon(task) == [b"0", b"1"]
        cancelled = python_task(connection.call("ask"), loop=loop)
        await other.next()
        cancelled.cancel("enough")
        with pytest.raises(asyncio.CancelledError, match="enough"):
            await soon(cancelled)
        late = python_task(connection.call("ask", timeout=0.0), loop=loop)
        with pytest.raises(CallTimeout):
            await soon(late)


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
