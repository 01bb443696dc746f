"""Calls and how they end: by an answer, an error, a timeout, a caller who goes, or a lane.

The end of the connection is one more way; it is in test_connection.py.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Raw

from dragoman.errors import (
    CallCancelled,
    CallTimeout,
    ConnectionClosed,
    ConnectionEnded,
    ConnectionLost,
    DragomanError,
    InvalidAnswer,
    MessageTooLong,
    RemoteError,
    RequestInProgress,
    UsageError,
)
from dragoman.rpc import ConnectionSettings, Lane, Router
from dragoman.rpc import tasks as tasks_module
from dragoman.wire import codes
from dragoman.wire.messages import Id
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
        assert "could not be called off" in caplog.text


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
async def test_a_failing_callback_stops_nobody_else(
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
    assert caplog.text.count("was told its end and failed") == 2


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
        with pytest.raises(RequestInProgress) as caught:
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
        with pytest.raises(CallTimeout) as caught:
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
async def test_every_answer_is_told_after_its_call_is_settled() -> None:
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
async def test_a_failure_of_whoever_is_told_about_answers_is_logged_and_stops_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("broken")

    async with talk() as (connection, other):
        connection.on_answer = fail
        call = connection.tasks.start(connection.call("ask"), "ask")
        other.answer(await other.next(), 1)
        assert await soon(call) == Raw(b"1")
    assert "told about answers" in caplog.text


@aio
async def test_the_end_is_told_once_after_every_call_and_before_the_lanes(
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
    assert "told about the end" in caplog.text


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
async def test_who_is_told_of_a_timeout_may_end_the_connection() -> None:
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
