"""Calls and how they end: by an answer, an error, a timeout, a caller who goes, or a lane.

The end of the connection is one more way; it is in test_connection.py.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import json
import math
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Raw

from dragoman.decoders import typed_decoder
from dragoman.errors import (
    CallCancelled,
    CallError,
    CallTimeout,
    ConnectionClosed,
    ConnectionEnded,
    ConnectionLost,
    DragomanError,
    InvalidAnswer,
    MessageTooLong,
    PeerBusy,
    RemoteError,
    UsageError,
)
from dragoman.rpc import Call, Connection, ConnectionSettings, Lane, Router
from dragoman.rpc import tasks as tasks_module
from dragoman.rpc.calls import Awaited
from dragoman.transports.base import READ_SIZE
from dragoman.wire import codes
from dragoman.wire.messages import Id, Notification, Request
from dragoman.wire.peer import Stray
from tests.aio import aio
from tests.unit.rpc.other_side import Witness, soon, talk, turns, until

SOON = 0.01
"""A timeout that is meant to run out."""


def calling_off(id: Id) -> tuple[str, Any]:
    return "$/cancel", {"id": id}


CANCELLABLE = ConnectionSettings(cancel_notice=calling_off)


# -- calls


@aio
async def test_a_call_returns_the_raw_result() -> None:
    async with talk() as (connection, other):
        call = connection.tasks.start(connection.call("ask", {"n": 1}), "ask")
        request = await other.next()
        assert request == {"jsonrpc": "2.0", "id": 0, "method": "ask", "params": {"n": 1}}
        other.answer(request, {"m": [2]})
        assert await soon(call) == Raw(b'{"m": [2]}')


@aio
async def test_null_is_a_result() -> None:
    async with talk() as (connection, other):
        call = connection.tasks.start(connection.call("ask"), "ask")
        other.answer(await other.next(), None)
        assert bytes(await soon(call)) == b"null"


@aio
async def test_calls_may_be_answered_in_any_order() -> None:
    async with talk() as (connection, other):
        calls = [connection.tasks.start(connection.call("ask", n), "ask") for n in range(20)]
        requests = [await other.next() for _ in range(20)]
        for request in reversed(requests):
            other.answer(request, request["params"] * 10)
        assert [int(bytes(await soon(call))) for call in calls] == [n * 10 for n in range(20)]


@aio
async def test_an_error_of_the_other_side_is_raised() -> None:
    async with talk() as (connection, other):
        call = connection.tasks.start(connection.call("ask"), "ask")
        request = await other.next()
        other.say({"id": request["id"], "error": {"code": -5, "message": "no", "data": [1]}})
        with pytest.raises(RemoteError) as caught:
            await soon(call)
        error = caught.value
        assert (error.code, error.message, error.data) == (-5, "no", [1])
        assert error.may_have_run


@aio
async def test_a_cancelled_answer_and_an_invalid_one_have_their_own_errors() -> None:
    async with talk() as (connection, other):
        for answer, expected in (
            ({"error": {"code": codes.REQUEST_CANCELLED, "message": "gone"}}, CallCancelled),
            ({}, InvalidAnswer),
        ):
            call = connection.tasks.start(connection.call("ask"), "ask")
            other.say({"id": (await other.next())["id"], **answer})
            with pytest.raises(expected) as caught:
                await soon(call)
            assert caught.value.may_have_run
        assert connection.failure is None


@pytest.mark.parametrize("result", [b"7", b'"\xff"'])
@aio
async def test_a_result_of_another_type_is_an_invalid_answer(result: bytes) -> None:
    async with talk() as (connection, other):
        call = connection.tasks.start(connection.ask("ask", {}, typed_decoder(str)), "ask")
        id = (await other.next())["id"]
        other.raw(b'{"id":%d,"result":%s}\n' % (id, result))
        with pytest.raises(InvalidAnswer, match="invalid response to ask"):
            await soon(call)
        assert connection.failure is None


@aio
async def test_a_call_that_is_not_answered_in_time_is_given_up() -> None:
    witness = Witness()
    async with talk(witness, settings=CANCELLABLE) as (connection, other):
        with pytest.raises(CallTimeout) as caught:
            await connection.call("ask", timeout=SOON)
        assert (caught.value.method, caught.value.timeout) == ("ask", SOON)
        assert caught.value.may_have_run
        request = await other.next()
        assert (await other.next())["params"] == {"id": request["id"]}
        # The late answer is dropped, and one more is a duplicate.
        other.answer(request, "late")
        other.answer(request, "again")
        await until(lambda: len(witness.noises) == 2)
        assert [noise.why for noise in witness.noises if isinstance(noise, Stray)] == [
            "late",
            "duplicate",
        ]
        assert connection.failure is None


@aio
async def test_a_cancelled_caller_gives_its_call_up(caplog: pytest.LogCaptureFixture) -> None:
    witness = Witness()
    async with talk(witness, settings=CANCELLABLE) as (connection, other):
        call = connection.tasks.start(connection.call("ask"), "ask")
        request = await other.next()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await soon(call)
        assert (await other.next())["params"] == {"id": request["id"]}
        other.answer(request, "late")
        await until(lambda: len(witness.noises) == 1)
    assert caplog.text == ""


@aio
async def test_without_a_notice_in_the_dialect_giving_up_says_nothing() -> None:
    async with talk() as (connection, other):
        with pytest.raises(CallTimeout):
            await connection.call("ask", timeout=SOON)
        connection.post("next")
        assert [(await other.next())["method"] for _ in range(2)] == ["ask", "next"]


@pytest.mark.parametrize("notice", [lambda id: 1 // 0, lambda id: ("x", object())])
@pytest.mark.parametrize("how", ["timeout", "cancel"])
@aio
async def test_a_notice_that_fails_keeps_no_caller_waiting(
    notice: Callable[[Id], tuple[str, Any]], how: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with talk(settings=ConnectionSettings(cancel_notice=notice)) as (connection, other):
        timeout = SOON if how == "timeout" else None
        call = connection.tasks.start(connection.call("ask", timeout=timeout), "ask")
        await other.next()
        if how == "cancel":
            call.cancel()
        with pytest.raises(CallTimeout if how == "timeout" else asyncio.CancelledError):
            await soon(call)
        assert "could not be sent" in caplog.text


@aio
async def test_a_message_that_is_too_long_is_refused_and_nothing_is_sent() -> None:
    async with talk(settings=ConnectionSettings(max_line_size=1000)) as (connection, other):
        with pytest.raises(MessageTooLong) as caught:
            await connection.call("ask", "x" * 1000)
        assert not caught.value.may_have_run
        with pytest.raises(UsageError):
            await connection.call("ask", object())
        with pytest.raises(MessageTooLong):
            connection.post("tell", "x" * 1000)
        connection.post("next")
        assert (await other.next())["method"] == "next"


@aio
async def test_the_primitive_under_a_call_settles_once_and_in_wire_order() -> None:
    told: list[Any] = []
    witness = Witness()
    witness.told = told

    def settle(result: Raw | None, error: DragomanError | None) -> None:
        told.append(result if error is None else error)

    async with talk(witness) as (connection, other):
        call = connection.begin("ask", settle=settle, timeout=60.0)
        assert not call.settled
        request = await other.next()
        other.say(
            {"method": "one"},
            {"id": request["id"], "result": 1},
            {"method": "two"},
            {"id": request["id"], "result": 2},
        )
        await until(lambda: len(told) == 3)
        assert told == ["one", Raw(b"1"), "two"]
        assert call.settled
        assert call.tell is None
        call.give_up(CallTimeout("ask", 1))
        call.settle(None, ConnectionClosed())
        assert len(told) == 3


@pytest.mark.parametrize("error", [ValueError("by design"), asyncio.CancelledError()])
@aio
async def test_a_failing_callback_stops_no_other(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(result: Raw | None, failure: DragomanError | None) -> None:
        raise error

    async with talk(Witness(lambda request: 7)) as (connection, other):
        connection.begin("one", settle=fail)
        two = connection.tasks.start(connection.call("two"), "two")
        connection.begin("three", settle=fail)
        four = connection.tasks.start(connection.call("four"), "four")
        requests = {(request := await other.next())["method"]: request for _ in range(4)}
        other.say(
            {"id": requests["one"]["id"], "result": 1},
            {"id": requests["two"]["id"], "result": 2},
            {"id": 1, "method": "ask"},
        )
        assert bytes(await soon(two)) == b"2"
        assert (await other.next())["result"] == 7
        await other.stream.aclose()
        with pytest.raises(ConnectionEnded):
            await soon(four)
    assert caplog.text.count("the completion callback of") == 2


@aio
async def test_a_timeout_is_not_held_back_by_a_lane_that_is_stuck() -> None:
    router = Router()

    async def stuck(raw: Raw) -> None:
        await asyncio.Event().wait()

    router.on_notification("news", stuck)
    async with talk(router) as (connection, other):
        other.say({"method": "news"})
        await turns()
        with pytest.raises(CallTimeout):
            await soon(connection.call("ask", timeout=SOON, after=router.lane()))


@pytest.mark.parametrize("answered", [True, False])
@aio
async def test_closing_settles_a_call_that_waits_behind_a_stuck_lane(answered: bool) -> None:
    router = Router()

    async def stuck(raw: Raw) -> None:
        await asyncio.Event().wait()

    router.on_notification("news", stuck)
    async with talk(router) as (connection, other):
        tasks = tasks_module.TaskOwner("test")
        call = tasks.start(connection.call("ask", after=router.lane()), "ask")
        request = await other.next()
        other.say({"method": "news"}, {"method": "news"})
        await turns()
        if answered:
            other.answer(request, 5)
            await turns()
        assert not call.done()
        await connection.aclose()
        if answered:
            assert bytes(await soon(call)) == b"5"
        else:
            with pytest.raises(ConnectionClosed):
                await soon(call)


@aio
async def test_a_call_that_is_settled_does_not_expire() -> None:
    ends: list[object] = []
    async with talk() as (connection, other):
        call = connection.begin("ask", settle=lambda result, error: ends.append(result or error))
        other.answer(await other.next(), 1)
        await until(lambda: len(ends) == 1)
        connection._deadlines.add(call, 0.0)
        await until(lambda: connection._deadlines._timer is None)
    assert ends == [Raw(b"1")]


@aio
async def test_a_handler_of_a_notification_may_call_on_its_connection() -> None:
    router = Router()
    answers: list[bytes] = []

    async def handle(raw: Raw) -> None:
        answers.append(bytes(await connection.call("ask")))
        assert connection.flow.calling == 0

    router.on_notification("news", handle)
    async with talk(router) as (connection, other):
        other.say({"method": "news"})
        request = await other.next()
        assert connection.flow.calling == 1
        other.answer(request, 5)
        await until(lambda: answers == [b"5"])


# -- half duplex


@aio
async def test_half_duplex_calls_wait_for_their_turn() -> None:
    async with talk(settings=ConnectionSettings(half_duplex=True)) as (connection, other):
        calls = [connection.tasks.start(connection.call("ask", n), "ask") for n in range(3)]
        for n in range(3):
            request = await other.next()
            await turns()
            assert len(other.heard) == n + 1
            other.answer(request, n)
        assert [bytes(await soon(call)) for call in calls] == [b"0", b"1", b"2"]


@aio
async def test_half_duplex_refuses_a_call_until_the_late_answer_came() -> None:
    witness = Witness()
    async with talk(witness, settings=ConnectionSettings(half_duplex=True)) as (connection, other):
        with pytest.raises(CallTimeout):
            await connection.call("one", timeout=SOON)
        with pytest.raises(PeerBusy, match="still working on one") as caught:
            await connection.call("two")
        assert not caught.value.may_have_run
        other.answer(await other.next())
        await until(lambda: len(witness.noises) == 1)
        call = connection.tasks.start(connection.call("three"), "three")
        request = await other.next()
        assert request["method"] == "three"
        other.answer(request, 3)
        assert bytes(await soon(call)) == b"3"


@aio
async def test_half_duplex_counts_the_wait_for_a_turn_against_the_timeout() -> None:
    async with talk(settings=ConnectionSettings(half_duplex=True)) as (connection, other):
        first = connection.tasks.start(connection.call("one"), "one")
        request = await other.next()
        with pytest.raises(CallTimeout, match="two was not sent .*: an earlier request") as caught:
            await soon(connection.call("two", timeout=SOON))
        assert not caught.value.may_have_run
        other.answer(request, 1)
        assert bytes(await soon(first)) == b"1"
        third = connection.tasks.start(connection.call("three", timeout=60.0), "three")
        other.answer(await other.next(), 3)
        assert bytes(await soon(third)) == b"3"


# -- the lines of answers


@aio
async def test_a_call_has_the_line_of_its_answer_when_it_is_settled() -> None:
    async with talk() as (connection, other):
        seen: list[bytes | None] = []
        call = connection.begin("ask", settle=lambda *_: seen.append(call.line))
        assert call.line is None
        await other.next()
        other.raw(b'{"id": 0, "result": 7, "more": 1}\n')
        await until(lambda: call.settled)
        assert seen == [b'{"id": 0, "result": 7, "more": 1}']


@aio
async def test_every_answer_is_reported_after_its_call_is_settled() -> None:
    async with talk() as (connection, other):
        told: list[tuple[str, bytes | None, str]] = []
        connection.on_answer = lambda call, error: told.append(
            (call.method, call.line, f"{call.settled} {type(error).__name__}")
        )
        for name in ("good", "bad", "wrong"):
            connection.begin(name, settle=lambda *_: None)
        lines = [
            b'{"id":0,"result":1}',
            b'{"id":1,"error":{"code":-32603,"message":"no"}}',
            b'{"id":2}',
        ]
        other.raw(b"\n".join(lines) + b"\n")
        await until(lambda: len(told) == 3)
        assert told == [
            ("good", lines[0], "True NoneType"),
            ("bad", lines[1], "True RemoteError"),
            ("wrong", lines[2], "True InvalidAnswer"),
        ]


@aio
async def test_a_failing_response_observer_is_logged_and_stops_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("broken")

    async with talk() as (connection, other):
        connection.on_answer = fail
        call = connection.tasks.start(connection.call("ask"), "ask")
        other.answer(await other.next(), 1)
        assert await soon(call) == Raw(b"1")
    assert "the callback for responses failed" in caplog.text


@aio
async def test_the_end_is_reported_once_after_every_call_and_before_the_lanes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told: list[tuple[str, bool, bool]] = []

    async with talk() as (connection, other):
        lane: Lane[int] = Lane(connection.flow)
        call = connection.begin("ask", settle=lambda *_: None)

        def end(failure: ConnectionLost) -> None:
            told.append((type(failure).__name__, call.settled, lane.ended is None))
            raise RuntimeError("broken")

        connection.on_end = end
        await other.stream.aclose()
        await soon(connection.wait_ended())
        assert lane.ended is not None
    assert told == [("ConnectionEnded", True, True)]
    assert "the callback for the end of the connection failed" in caplog.text


@aio
async def test_calls_share_a_timer_and_each_expires() -> None:
    ends: list[str] = []

    def settle(result: Raw | None, error: DragomanError | None) -> None:
        ends.append(type(error).__name__)
        if len(ends) == 1:
            # Whoever is told may try again at once.
            connection.begin("again", settle=settle, timeout=0.01)

    async with talk() as (connection, _):
        for _ in range(3):
            connection.begin("ask", settle=settle, timeout=0.01)
        timer = connection._deadlines._timer
        connection.begin("patient", settle=settle, timeout=60.0)
        assert timer is not None
        assert connection._deadlines._timer is timer
        await until(lambda: len(ends) == 4)
        assert ends == ["CallTimeout"] * 4
        # The patient one is waited for, and the timer of the others is gone.
        assert connection._deadlines.due_at > connection._deadlines.clock() + 50.0
        assert timer.cancelled() or timer.when() < asyncio.get_running_loop().time()


@aio
async def test_a_shorter_timeout_is_not_kept_waiting_by_a_longer_one() -> None:
    ends: list[str] = []
    async with talk() as (connection, _):
        for timeout in (60.0, 0.02, 0.01, 30.0):
            connection.begin(
                f"ask {timeout}",
                settle=lambda result, error: ends.append(str(error)),
                timeout=timeout,
            )
        await until(lambda: len(ends) == 2)
        assert "ask 0.01" in ends[0]
        assert "ask 0.02" in ends[1]


@aio
async def test_a_timer_whose_calls_were_answered_looks_once_and_is_gone() -> None:
    ends: list[object] = []
    async with talk() as (connection, other):
        connection.begin("ask", settle=lambda result, error: ends.append(result), timeout=0.01)
        other.answer(await other.next(), 1)
        await until(lambda: connection._deadlines._timer is None)
        assert connection._deadlines.due_at == math.inf
    assert ends == [Raw(b"1")]


@aio
async def test_a_timeout_callback_may_end_the_connection() -> None:
    ends: list[str] = []

    def settle(result: Raw | None, error: DragomanError | None) -> None:
        ends.append(type(error).__name__)
        connection.fail(ConnectionClosed())

    async with talk() as (connection, _):
        connection.begin("first", settle=settle, timeout=0.01)
        connection.begin("second", settle=settle, timeout=60.0)
        await until(lambda: len(ends) == 2)
        await turns()
        assert connection._deadlines._timer is None
    assert ends == ["CallTimeout", "ConnectionClosed"]


@aio
async def test_a_connection_that_is_over_leaves_no_timer() -> None:
    ends: list[object] = []
    async with talk() as (connection, _):
        connection.begin("ask", settle=lambda result, error: ends.append(error), timeout=60.0)
        timer = connection._deadlines._timer
        assert timer is not None
    assert timer.cancelled()
    assert len(ends) == 1


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
        call = Awaited("ask", connection._forget, _loop=asyncio.get_running_loop())

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
async def test_a_handler_whose_time_is_up_before_it_waits_times_out() -> None:
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
async def test_a_handler_that_calls_as_the_connection_ends_gets_the_error() -> None:
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
async def test_an_observer_that_ends_the_process_keeps_no_caller_waiting() -> None:
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
async def test_a_kept_call_keeps_nothing_of_its_caller_alive(answer: dict[str, Any]) -> None:
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
        call = Awaited("ask", connection._forget, _loop=asyncio.get_running_loop())
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
            await Awaited("ask", lambda call: None, _loop=elsewhere)
    finally:
        elsewhere.close()
