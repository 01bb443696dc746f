"""How requests of theirs are answered: at once, in a task, or later by somebody else."""

from __future__ import annotations

import asyncio
import json

import pytest
from msgspec import Raw

from dragoman.errors import Overflow, RemoteError
from dragoman.rpc import LATER, ConnectionSettings, responder
from dragoman.rpc.responder import Ignore
from dragoman.wire import codes
from dragoman.wire.messages import Id, Notification, Request
from dragoman.wire.peer import Noise
from tests.aio import aio
from tests.unit.rpc.other_side import Witness, soon, talk, turns, until


@aio
async def test_what_is_answered_later_has_no_answer_until_then() -> None:
    kept: list[Request] = []

    def keep(request: Request) -> object:
        kept.append(request)
        return LATER

    async with talk(Witness(keep)) as (connection, other):
        other.say({"id": 1, "method": "a"}, {"id": 2, "method": "b"})
        await until(lambda: len(kept) == 2)
        await turns()
        assert other.heard == []
        connection.refuse(kept[1], codes.NOT_FOUND, "no", {"why": 1})
        connection.answer(kept[0], {"yes": True})
        refused, answered = await other.next(), await other.next()
        assert (refused["id"], refused["error"]["data"]) == (2, {"why": 1})
        assert (answered["id"], answered["result"]) == (1, {"yes": True})
        # The id is free again.
        other.say({"id": 1, "method": "a"})
        await until(lambda: len(kept) == 3)


@aio
async def test_what_was_answered_before_its_handler_returned_counts_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(responder, "MAX_INBOUND", 1)

    def at_once(request: Request) -> object:
        connection.answer(request, request.id)
        return LATER

    witness = Witness(at_once)
    async with talk(witness) as (connection, other):
        other.say(*({"id": n, "method": "a"} for n in range(3)))
        assert [(await other.next())["result"] for _ in range(3)] == [0, 1, 2]


@aio
async def test_what_is_answered_later_counts_among_those_that_are_handled_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(responder, "MAX_INBOUND", 2)
    kept: list[Request] = []

    def keep(request: Request) -> object:
        kept.append(request)
        return LATER

    async with talk(Witness(keep)) as (connection, other):
        other.say(*({"id": n, "method": "a"} for n in range(3)))
        refused = await other.next()
        assert (refused["id"], refused["error"]["code"]) == (2, codes.OVERLOADED)
        connection.answer(kept[0], None)
        assert (await other.next())["id"] == 0
        other.say({"id": 4, "method": "a"})
        await until(lambda: [request.id for request in kept] == [0, 1, 4])


@aio
async def test_after_the_end_a_late_answer_is_nothing() -> None:
    kept: list[Request] = []

    def keep(request: Request) -> object:
        kept.append(request)
        return LATER

    async with talk(Witness(keep)) as (connection, other):
        other.say({"id": 1, "method": "a"}, {"id": 2, "method": "a"})
        await until(lambda: len(kept) == 2)
        await soon(connection.aclose())
        connection.answer(kept[0], None)
        connection.refuse(kept[1], codes.NOT_FOUND, "no")
        assert other.heard == []


@aio
async def test_more_requests_than_we_handle_at_once_are_refused_unexecuted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(responder, "MAX_INBOUND", 3)
    begun: list[Id] = []

    async def wait(request: Request) -> None:
        begun.append(request.id)
        await gate.wait()

    gate = asyncio.Event()
    witness = Witness(wait)
    async with talk(witness) as (connection, other):
        other.say(*({"id": n, "method": "wait"} for n in range(5)))
        refused = [await other.next() for _ in range(2)]
        assert [(answer["id"], answer["error"]["code"]) for answer in refused] == [
            (3, codes.OVERLOADED),
            (4, codes.OVERLOADED),
        ]
        gate.set()
        assert sorted([(await other.next())["id"] for _ in range(3)]) == [0, 1, 2]
        await until(lambda: len(connection.tasks) == 0)
        other.say({"id": 9, "method": "wait"})
        assert (await other.next())["id"] == 9
    assert begun == [0, 1, 2, 9]
    # Whoever keeps all that comes gets their lines, too.
    assert [json.loads(noise.line)["id"] for noise in witness.noises] == [3, 4]


@aio
async def test_a_request_that_can_neither_be_answered_nor_refused_ends_the_connection() -> None:
    witness = Witness(lambda request: "an answer that is too long, too")
    async with talk(witness, settings=ConnectionSettings(max_line_size=100)) as (connection, other):
        other.say({"id": "x" * 60, "method": "ask"}, {"method": "after"})
        failure = await soon(connection.wait_ended())
        assert isinstance(failure, Overflow)
        assert (failure.blame, failure.retryable) == ("peer", False)
        assert witness.told == ["after"]


@aio
async def test_requests_that_hold_too_many_bytes_at_once_are_refused_unexecuted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(responder, "MAX_INBOUND_SIZE", 3000)
    begun: list[Id] = []

    async def wait(request: Request) -> None:
        begun.append(request.id)
        await gate.wait()

    gate = asyncio.Event()
    async with talk(Witness(wait)) as (connection, other):
        # One that is longer than the limit by itself is handled: something has to be.
        other.say({"id": 0, "method": "wait", "params": "x" * 4000})
        other.say({"id": 1, "method": "wait"})
        refused = await other.next()
        assert (refused["id"], refused["error"]["code"]) == (1, codes.OVERLOADED)
        gate.set()
        assert (await other.next())["id"] == 0
        await until(lambda: len(connection.tasks) == 0)
        other.say(*({"id": n, "method": "wait", "params": "x" * 1000} for n in (2, 3)))
        assert sorted([(await other.next())["id"] for _ in range(2)]) == [2, 3]
    assert begun == [0, 2, 3]


class Unusual(BaseException):
    pass


@aio
async def test_an_exception_that_is_not_an_error_is_answered_too() -> None:
    async def fail(request: Request) -> None:
        await asyncio.sleep(0)
        raise Unusual

    async with talk(Witness(fail)) as (_, other):
        other.say({"id": 0, "method": "fail"})
        assert (await other.next())["error"]["code"] == codes.INTERNAL_ERROR


def test_without_methods_each_request_is_refused_by_name() -> None:
    handlers = Ignore()
    with pytest.raises(RemoteError) as refused:
        handlers.request(Request(1, "dance", Raw(b"{}"), b""))
    assert refused.value.code == codes.METHOD_NOT_FOUND
    assert refused.value.data == {"method": "dance"}
    handlers.notification(Notification("dance", Raw(b"{}"), b""))
    handlers.noise(Noise(b"?", "not JSON"))


@aio
async def test_a_connection_without_handlers_refuses_what_it_is_asked() -> None:
    async with talk() as (_, other):
        other.say({"method": "news"}, {"id": 1, "method": "dance"})
        assert (await other.next())["error"]["code"] == codes.METHOD_NOT_FOUND
