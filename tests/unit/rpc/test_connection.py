"""Requests and how they are answered, readers that do not keep up, and the end of a connection.

What happens with real processes is in tests/faults/test_rpc_processes.py, and order and limits
under load are in tests/integration/test_rpc_order.py and test_rpc_limits.py.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec import Raw

from dragoman.errors import (
    CallTimeout,
    ConnectionBroken,
    ConnectionClosed,
    ConnectionEnded,
    ConnectionLost,
    LineTooLong,
    MessageTooLong,
    Overflow,
    RemoteError,
    UsageError,
)
from dragoman.rpc import Connection, ConnectionSettings, End, Limits, Router
from dragoman.rpc import outbox as outbox_module
from dragoman.rpc import tasks as tasks_module
from dragoman.transports.base import HIGH_WATER_SIZE
from dragoman.transports.memory import memory_pair
from dragoman.wire import codes
from dragoman.wire.framing import DEFAULT_MAX_LINE_SIZE
from dragoman.wire.messages import Notification, Request
from dragoman.wire.peer import Noise, Stray
from tests.aio import aio
from tests.unit.rpc.other_side import RecordingStream, Witness, soon, talk, turns, until

SOON = 0.01
"""A timeout that is meant to run out."""


# -- a reader that does not keep up


@aio
async def test_a_call_to_a_peer_that_does_not_read_times_out_unsent() -> None:
    stream = RecordingStream()
    async with Connection(stream) as connection:
        stream.stuck = True
        connection.post("fill", "x" * HIGH_WATER_SIZE)
        await turns()
        written = len(stream.writes)
        with pytest.raises(CallTimeout, match="was not sent .*: the other side is not") as caught:
            await soon(connection.call("ask", timeout=SOON))
        assert not caught.value.may_have_run
        call = connection.tasks.start(connection.call("ask", timeout=60.0), "ask")
        tell = connection.tasks.start(connection.notify("tell"), "tell")
        drain = connection.tasks.start(connection.drain(), "drain")
        await turns()
        assert len(stream.writes) == written
        stream.take(stream.unsent)
        await soon(asyncio.gather(tell, drain))
        await turns()
        assert len(stream.writes) > written
        connection.data_received(b'{"id":0,"result":4}\n')
        assert bytes(await soon(call)) == b"4"


@aio
async def test_a_stream_that_takes_nothing_more_refuses_before_the_connection_ends() -> None:
    stream = RecordingStream()
    async with Connection(stream) as connection:
        stream.refusal = ConnectionBroken("by design")
        with pytest.raises(ConnectionBroken, match="by design"):
            await connection.drain()
        assert connection.failure is None
        stream.refusal = None


@aio
async def test_too_much_unsent_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "MAX_UNSENT_SIZE", 4 * HIGH_WATER_SIZE)
    stream = RecordingStream()
    connection = Connection(stream)
    async with connection:
        stream.stuck = True
        waiting = connection.tasks.start(connection.call("ask"), "ask")
        await turns()
        connection.post("fill", "x" * (2 * HIGH_WATER_SIZE))
        blocked = connection.tasks.start(connection.call("later"), "later")
        told = connection.tasks.start(connection.notify("later"), "later")
        await turns()
        connection.post("fill", "x" * (2 * HIGH_WATER_SIZE))
        connection.post("fill")
        await turns()
        assert isinstance(connection.failure, Overflow)
        for work, may_have_run in ((waiting, True), (blocked, False), (told, False)):
            with pytest.raises(Overflow) as caught:
                await soon(work)
            assert caught.value.may_have_run is may_have_run
        assert isinstance(await soon(connection.wait_ended()), Overflow)
        await until(lambda: stream.closed)
        assert not stream.reading


# -- requests of theirs


@aio
async def test_an_answer_leaves_together_with_its_question() -> None:
    stream = RecordingStream()
    async with Connection(stream, handlers=Witness(lambda request: request.id)) as connection:
        connection.data_received(b'{"id":1,"method":"a"}\n{"id":2,"method":"a"}\n')
        (data,) = stream.writes
        assert [json.loads(line)["result"] for line in data.splitlines()] == [1, 2]


@aio
async def test_requests_run_side_by_side_and_each_gets_its_own_answer() -> None:
    gates = [asyncio.Event() for _ in range(10)]

    async def wait(request: Request) -> int:
        number = int(request.id)
        await gates[number].wait()
        return number * 10

    async with talk(Witness(wait)) as (_, other):
        other.say(*({"id": n, "method": "wait"} for n in range(10)))
        for n in (7, 0, 9):
            gates[n].set()
            assert await other.next() == {"jsonrpc": "2.0", "id": n, "result": n * 10}
        for gate in gates:
            gate.set()
        rest = [(await other.next())["id"] for _ in range(7)]
        await turns()
        assert sorted(rest) == [1, 2, 3, 4, 5, 6, 8]
        assert len(other.heard) == 10


SECRET = "/home/me/secret"


def fail_now(request: Request) -> Any:
    raise ValueError(SECRET)


async def fail_later(request: Request) -> Any:
    await asyncio.sleep(0)
    raise ValueError(SECRET)


def cancelled_now(request: Request) -> Any:
    raise asyncio.CancelledError(SECRET)


def unwritable(request: Request) -> Any:
    return object()


class Trap:
    """Fails in a way of its own while it is written down."""

    __dataclass_fields__ = property(lambda self: 1 // 0)


@pytest.mark.parametrize(
    "reply", [fail_now, fail_later, cancelled_now, unwritable, lambda r: Trap()]
)
@aio
async def test_a_failing_handler_is_an_incident_and_its_text_stays_here(
    reply: Callable[[Request], Any], caplog: pytest.LogCaptureFixture
) -> None:
    async with talk(Witness(reply)) as (connection, other):
        other.say({"id": 1, "method": "fail"}, {"method": "news"})
        answer = await other.next()
        assert connection.failure is None
    assert answer["error"]["code"] == codes.INTERNAL_ERROR
    assert SECRET not in str(answer)
    assert answer["error"]["data"]["incident"] in caplog.text


@aio
async def test_an_answer_that_is_too_long_is_an_error() -> None:
    settings = ConnectionSettings(max_line_size=500)
    async with talk(Witness(lambda request: "x" * 500), settings=settings) as (_, other):
        other.say({"id": 1, "method": "long"})
        error = (await other.next())["error"]
    assert error["code"] == codes.INTERNAL_ERROR
    assert error["data"]["limit"] == 500


@pytest.mark.parametrize("data", [object(), "x" * 500])
@aio
async def test_an_error_that_cannot_be_sent_is_still_an_error(
    data: object, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(request: Request) -> Any:
        raise RemoteError(-5, "no", data)

    async with talk(Witness(refuse), settings=ConnectionSettings(max_line_size=500)) as (_, other):
        other.say({"id": 1, "method": "refuse"})
        assert (await other.next())["error"]["code"] == codes.INTERNAL_ERROR
    assert "cannot be sent" in caplog.text


async def wait_for_ever(request: Request) -> Any:
    await asyncio.Event().wait()


@pytest.mark.parametrize("started", [True, False])
@aio
async def test_a_cancelled_request_is_answered_as_cancelled(started: bool) -> None:
    witness = Witness(wait_for_ever)
    async with talk(witness) as (connection, other):
        if started:
            other.say({"id": "a", "method": "wait"})
            await until(lambda: len(connection.tasks) == 1)
            await turns()
            connection.cancel_inbound("a")
        else:
            # The request and its cancellation come in one piece.
            witness.notification = lambda notification: connection.cancel_inbound("a")  # type: ignore[method-assign]
            other.say({"id": "a", "method": "wait"}, {"method": "cancel"})
        answer = await other.next()
        assert (answer["id"], answer["error"]["code"]) == ("a", codes.REQUEST_CANCELLED)
        await until(lambda: len(connection.tasks) == 0)
        connection.cancel_inbound("a")
        connection.cancel_inbound("never there")
        other.say({"id": "a", "method": "wait"})
        await until(lambda: len(connection.tasks) == 1)


@aio
async def test_a_handler_that_lets_a_cancel_of_its_own_escape_has_failed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def stumble(request: Request) -> Any:
        inner = asyncio.get_running_loop().create_future()
        inner.cancel()
        await inner

    async with talk(Witness(stumble)) as (connection, other):
        other.say({"id": 1, "method": "stumble"})
        assert (await other.next())["error"]["code"] == codes.INTERNAL_ERROR
        await until(lambda: len(connection.tasks) == 0)
    assert "the handler of stumble failed" in caplog.text


@aio
async def test_a_handler_may_finish_although_its_request_was_cancelled() -> None:
    async def insist(request: Request) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "done anyway"
        raise AssertionError

    async with talk(Witness(insist)) as (connection, other):
        other.say({"id": 1, "method": "insist"})
        await until(lambda: len(connection.tasks) == 1)
        await turns()
        connection.cancel_inbound(1)
        assert (await other.next())["result"] == "done anyway"
        await turns()
        assert len(other.heard) == 1


@aio
async def test_an_id_used_again_belongs_to_the_new_request() -> None:
    # The first answer waits for the reader after it was sent; meanwhile its id is used again.
    stream = RecordingStream()
    replies = iter(["x" * HIGH_WATER_SIZE, None])

    async def reply(request: Request) -> Any:
        text = next(replies)
        return text if text is not None else await wait_for_ever(request)

    async with Connection(stream, handlers=Witness(reply)) as connection:
        stream.stuck = True
        connection.data_received(b'{"id":1,"method":"a"}\n')
        await turns()
        connection.data_received(b'{"id":1,"method":"b"}\n')
        await turns()
        stream.take(stream.unsent)
        await turns()
        connection.cancel_inbound(1)
        await turns()
        assert b"%d" % codes.REQUEST_CANCELLED in stream.writes[-1]


@aio
async def test_a_request_whose_id_is_still_open_is_refused_and_the_first_goes_on() -> None:
    gate = asyncio.Event()

    async def wait(request: Request) -> str:
        await gate.wait()
        return "first"

    witness = Witness(wait)
    async with talk(witness) as (_, other):
        other.say({"id": 1, "method": "wait"}, {"id": 1, "method": "wait"})
        assert (await other.next())["error"]["code"] == codes.INVALID_REQUEST
        gate.set()
        assert (await other.next())["result"] == "first"
        assert [noise.line for noise in witness.noises] == [b'{"id": 1, "method": "wait"}']


@aio
async def test_one_can_wait_until_everything_is_answered() -> None:
    gate = asyncio.Event()

    async def wait(request: Request) -> str:
        await gate.wait()
        return "done"

    async with talk(Witness(wait)) as (connection, other):
        await soon(connection.wait_answered())
        other.say({"id": 1, "method": "wait"}, {"id": 2, "method": "wait"})
        await turns()
        waiting = connection.tasks.start(connection.wait_answered(), "wait")
        await turns()
        assert not waiting.done()
        gate.set()
        await soon(waiting)
        assert {(await other.next())["id"], (await other.next())["id"]} == {1, 2}


@aio
async def test_an_agent_answers_what_is_not_a_message_and_a_client_does_not() -> None:
    for end, answers in ((End.AGENT, 2), (End.CLIENT, 0)):
        witness = Witness()
        async with talk(witness, end=end) as (connection, other):
            other.raw(b"garbage\n42\n")
            await until(lambda w=witness: len(w.noises) == 2)  # type: ignore[misc]
            connection.post("last")
            await until(lambda o=other: any("method" in m for m in o.heard))  # type: ignore[misc]
            assert [m["error"]["code"] for m in other.heard if "error" in m] == [
                codes.PARSE_ERROR,
                codes.INVALID_REQUEST,
            ][:answers]
            assert connection.failure is None


@aio
async def test_failing_handlers_of_what_wants_no_answer_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Clumsy(Witness):
        def notification(self, notification: Notification) -> None:
            raise {"news": ValueError("by design"), "more": asyncio.CancelledError()}[
                notification.method
            ]

        def noise(self, noise: Noise | Stray) -> None:
            raise ValueError("by design")

    async with talk(Clumsy(lambda request: "still here")) as (_, other):
        other.raw(b"garbage\n")
        other.say({"method": "news"}, {"method": "more"}, {"id": 1, "method": "ask"})
        assert (await other.next())["result"] == "still here"
    assert caplog.text.count("the handler of a notification failed") == 2
    assert caplog.text.count("the handler of unexpected input failed") == 1


@aio
async def test_without_handlers_requests_are_refused_and_the_rest_is_dropped() -> None:
    async with talk() as (connection, other):
        other.raw(b"garbage\n")
        other.say({"method": "news"}, {"id": 1, "method": "ask"})
        assert (await other.next())["error"]["code"] == codes.METHOD_NOT_FOUND
        assert connection.failure is None


# -- the end


@aio
async def test_the_end_of_the_stream_settles_every_call_with_its_own_error() -> None:
    async with talk() as (connection, other):
        calls = [connection.tasks.start(connection.call("ask"), "ask") for _ in range(3)]
        for _ in range(3):
            await other.next()
        await other.stream.aclose()
        errors = [await soon(asyncio.gather(call, return_exceptions=True)) for call in calls]
        assert all(isinstance(error, ConnectionEnded) and error.may_have_run for [error] in errors)
        assert len({id(error) for [error] in errors}) == 3
        assert isinstance(connection.failure, ConnectionEnded)
        assert await soon(connection.wait_ended()) is connection.failure
        for refused in (connection.call("ask"), connection.notify("tell")):
            with pytest.raises(ConnectionEnded) as caught:
                await refused
            assert not caught.value.may_have_run
            assert caught.value is not connection.failure


@aio
async def test_a_last_line_without_a_newline_still_counts() -> None:
    async with talk() as (connection, other):
        call = connection.tasks.start(connection.call("ask"), "ask")
        await other.next()
        other.raw(b'{"id":0,"result":"last"}')
        await other.stream.aclose()
        assert bytes(await soon(call)) == b'"last"'


@aio
async def test_a_line_that_is_too_long_ends_the_connection() -> None:
    async with talk(settings=ConnectionSettings(max_line_size=100)) as (connection, other):
        call = connection.tasks.start(connection.call("ask"), "ask")
        await other.next()
        other.raw(b"x" * 101)
        with pytest.raises(LineTooLong, match="more than 100 bytes") as caught:
            await soon(call)
        assert caught.value.may_have_run
        # Nobody closed it by hand, and yet the other side learns that nothing is read any more.
        await until(lambda: other.ended is not None)
        other_data = b'{"id":7,"method":"ask"}\n'
        connection.data_received(other_data)
        await turns()
        assert len(other.heard) == 1


@aio
async def test_requests_behind_the_end_are_not_begun() -> None:
    begun: list[str] = []

    async def note(request: Request) -> None:
        begun.append(request.method)

    class Ending(Witness):
        def notification(self, notification: Notification) -> None:
            self.connection.stream_ended(ConnectionEnded("by design"))

    async with talk(Ending(note)) as (connection, other):
        other.say({"method": "end"}, {"id": 1, "method": "late"})
        await soon(connection.wait_ended())
        await turns()
        assert len(connection.tasks) == 0
    assert begun == []


@aio
async def test_an_answer_that_comes_with_the_end_is_not_sent() -> None:
    def end(request: Request) -> str:
        witness.connection.stream_ended(ConnectionEnded("by design"))
        return "too late"

    witness = Witness(end)
    async with talk(witness) as (connection, other):
        other.say({"id": 1, "method": "end"})
        await soon(connection.wait_ended())
        await turns()
        assert other.heard == []


@aio
async def test_a_call_given_up_because_another_failed_is_not_called_off_any_more() -> None:
    told: list[str] = []
    async with talk(settings=ConnectionSettings(cancel_notice=lambda id: ("cancel", id))) as (
        connection,
        other,
    ):
        connection.begin(
            "one", settle=lambda result, error: second.give_up(CallTimeout("two", 1.0))
        )
        second = connection.begin("two", settle=lambda result, error: told.append(str(error)))
        await other.next()
        await other.stream.aclose()
        await soon(connection.wait_ended())
    assert told == ["no answer to two within 1 s"]


@aio
async def test_a_request_in_the_last_bytes_is_begun_and_cancelled_without_a_warning() -> None:
    # An unawaited coroutine would be a warning, and warnings are errors here.
    witness = Witness(wait_for_ever)
    async with talk(witness) as (connection, other):
        other.raw(b'{"id":1,"method":"ask"}')
        await other.stream.aclose()
        await soon(connection.wait_ended())
        await until(lambda: len(connection.tasks) == 0)


@aio
async def test_closing_sends_what_was_posted_fails_calls_and_ends_handlers() -> None:
    ended: list[str] = []

    async def wait(request: Request) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("handler")

    tasks = tasks_module.TaskOwner("test")
    async with talk(Witness(wait)) as (connection, other):
        other.say({"id": 1, "method": "wait"})
        await until(lambda: len(connection.tasks) == 1)
        call = tasks.start(connection.call("ask"), "ask")
        await other.next()
        connection.post("last")
        await connection.aclose()
        assert (await other.next())["method"] == "last"
        with pytest.raises(ConnectionClosed) as caught:
            await soon(call)
        assert caught.value.may_have_run
        assert ended == ["handler"]
        await until(lambda: other.ended is not None)
        await connection.aclose()


@aio
async def test_a_connection_that_never_started_can_be_closed() -> None:
    ours, theirs = memory_pair()
    connection = Connection(ours)
    await connection.aclose()
    assert isinstance(connection.failure, ConnectionClosed)
    await theirs.aclose()


@aio
async def test_a_connection_is_started_once() -> None:
    async with talk() as (connection, _):
        with pytest.raises(UsageError):
            connection.start()


@pytest.mark.parametrize("kind", ["request", "notification"])
@aio
async def test_a_handler_may_close_its_own_connection(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    router = Router()
    notes: list[str] = []

    async def close(raw: Raw) -> None:
        try:
            await connection.aclose()
        finally:
            notes.append("closed")

    router.on_request("exit", close)
    router.on_notification("exit", close)
    async with talk(router) as (connection, other):
        with caplog.at_level(logging.WARNING, logger="dragoman.rpc"):
            other.say({"method": "exit", **({"id": 1} if kind == "request" else {})})
            await soon(connection.wait_ended())
            await until(lambda: len(connection.tasks) == 0)
    assert notes == ["closed"]
    assert caplog.text == ""


@aio
async def test_a_close_that_is_cancelled_twice_still_closes() -> None:
    gate = asyncio.Event()

    class Slow(RecordingStream):
        async def aclose(self) -> None:
            await gate.wait()
            await super().aclose()

    stream = Slow()
    connection = Connection(stream)
    connection.start()
    tasks = tasks_module.TaskOwner("test")
    closing = tasks.start(connection.aclose(), "close")
    for _ in range(2):
        await turns()
        closing.cancel()
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await soon(closing)
    assert stream.closed
    assert isinstance(connection.failure, ConnectionClosed)


@aio
async def test_a_side_that_owes_an_answer_is_not_given_long_to_end() -> None:
    class Hurried(RecordingStream):
        hurried = False

        def hurry(self) -> None:
            self.hurried = True

    silent, idle = Hurried(), Hurried()
    async with Connection(silent) as connection, Connection(idle):
        with pytest.raises(CallTimeout):
            await connection.call("ask", timeout=0.0)
    assert silent.hurried and not idle.hurried


@aio
async def test_a_stream_that_fails_to_close_leaves_no_call_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Broken(RecordingStream):
        async def aclose(self) -> None:
            raise OSError("by design")

    connection = Connection(Broken())
    connection.start()
    tasks = tasks_module.TaskOwner("test")
    call = tasks.start(connection.call("ask"), "ask")
    await turns()
    with pytest.raises(OSError, match="by design"):
        await connection.aclose()
    with pytest.raises(ConnectionLost):
        await soon(call)


@aio
async def test_telling_waits_only_where_the_other_side_does_not_keep_up() -> None:
    stream = RecordingStream()
    async with Connection(stream) as connection:
        assert connection.tell("news", {"n": 1}) is None
        await turns()
        assert b'"n":1' in stream.writes[-1]
        stream.stuck = True
        assert connection.tell("news", "x" * HIGH_WATER_SIZE) is None
        await turns()
        waiting = connection.tell("news", {"n": 2})
        assert waiting is not None
        task = connection.tasks.start(waiting, "tell")
        await turns()
        assert not task.done()
        stream.take(stream.unsent)
        await soon(task)
        await turns()
        assert b'"n":2' in stream.writes[-1]
    with pytest.raises(ConnectionClosed):
        connection.tell("news", {})


@aio
async def test_a_line_from_elsewhere_is_passed_on_as_it_is_unless_it_is_too_long() -> None:
    async with talk(Witness(), settings=ConnectionSettings(max_line_size=60)) as (
        connection,
        other,
    ):
        line = b'{"jsonrpc": "2.0", "method":"note" , "params":[1]}'
        connection.pass_on(line)
        assert await other.next() == {"jsonrpc": "2.0", "method": "note", "params": [1]}
        with pytest.raises(MessageTooLong):
            connection.pass_on(line + b" " * 60)
        await connection.aclose()
        with pytest.raises(ConnectionLost):
            connection.pass_on(line)


@aio
async def test_many_lines_are_passed_on_in_order_or_not_at_all() -> None:
    async with talk(Witness(), settings=ConnectionSettings(max_line_size=60)) as (
        connection,
        other,
    ):
        lines = [b'{"method":"note","params":[%d]}' % number for number in range(100)]
        connection.pass_all_on(lines)
        connection.pass_all_on([])
        assert [(await other.next())["params"] for _ in lines] == [[n] for n in range(100)]
        with pytest.raises(MessageTooLong):
            connection.pass_all_on([lines[0], lines[0] + b" " * 60])
        connection.post("end")
        assert (await other.next())["method"] == "end"
        await connection.aclose()
        with pytest.raises(ConnectionLost):
            connection.pass_all_on(lines)


@aio
async def test_inbound_messages_can_be_handed_to_another_receiver() -> None:
    first, second = Witness(), Witness(lambda request: "second")
    async with talk(first) as (connection, other):
        other.say({"method": "one"})
        await until(lambda: first.told == ["one"])
        connection.hand_to(second)
        other.say({"method": "two"}, {"id": 1, "method": "ask"})
        assert (await other.next())["result"] == "second"
        assert (first.told, second.told) == (["one"], ["two"])


def test_by_default_both_ends_talk_at_once_in_standard_messages() -> None:
    settings = ConnectionSettings()
    assert settings.jsonrpc
    assert not settings.half_duplex
    assert settings.max_line_size == DEFAULT_MAX_LINE_SIZE == 16 * 1024 * 1024
    assert settings.limits == Limits()
    assert settings.cancel_notice is None
    assert settings.reserved is None


class Together:
    """Takes notifications of the method `many` together."""

    def __init__(self, fails: bool = False) -> None:
        self.taken: list[list[str]] = []
        self._fails = fails

    def count_alike(self, events: Sequence[Any]) -> int:
        methods = [getattr(event, "method", "") for event in events]
        return next((at for at, method in enumerate(methods) if method != "many"), len(methods))

    def notifications(self, notifications: Sequence[Notification]) -> None:
        self.taken.append([each.method for each in notifications])
        if self._fails:
            raise ValueError("by design")


@aio
async def test_notifications_that_came_together_are_taken_together_and_the_rest_in_order(
    caplog: pytest.LogCaptureFixture,
) -> None:
    witness = Witness()
    async with talk(witness) as (connection, other):
        connection.batches = together = Together()
        many, one = {"jsonrpc": "2.0", "method": "many"}, {"jsonrpc": "2.0", "method": "one"}
        other.say(many)
        await until(lambda: len(witness.told) == 1)
        other.say(many, many, one, many)
        await until(lambda: len(witness.told) == 3)
        assert together.taken == [["many", "many"]]
        assert witness.told == ["many", "one", "many"]
        connection.batches = together = Together(fails=True)
        other.say(many, many, one)
        await until(lambda: len(witness.told) == 4)
        assert together.taken == [["many", "many"]]
    assert "by design" in caplog.text
