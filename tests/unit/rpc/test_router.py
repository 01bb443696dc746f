"""A table of methods answers a connection, each with params of the type it asked for."""

from __future__ import annotations

import asyncio
import functools
import logging
from typing import Any

import pytest
from msgspec import Raw, Struct

from dragoman.errors import Overflow, RemoteError, UsageError
from dragoman.rpc import ConnectionSettings, Limits, Router
from dragoman.rpc import router as router_module
from dragoman.wire import codes
from dragoman.wire.peer import Noise, Stray
from tests.aio import aio
from tests.unit.rpc.other_side import soon, talk, turns, until


class Point(Struct):
    x: int = 0
    name: str = ""


# -- requests


@aio
async def test_a_plain_function_answers_with_what_it_returns() -> None:
    router = Router()
    router.on_request("double", lambda point: {"x": point.x * 2}, Point)
    async with talk(router) as (_, other):
        other.say({"id": "a", "method": "double", "params": {"x": 4}})
        assert await other.next() == {"jsonrpc": "2.0", "id": "a", "result": {"x": 8}}


@aio
async def test_a_coroutine_function_answers_with_what_it_returns() -> None:
    router = Router()

    async def double(point: Point) -> Point:
        await asyncio.sleep(0)
        return Point(point.x * 2, point.name)

    router.on_request("double", double, Point)
    async with talk(router) as (_, other):
        other.say({"id": 0, "method": "double", "params": {"x": 4, "name": "p", "more": 1}})
        assert (await other.next())["result"] == {"x": 8, "name": "p"}


@aio
async def test_without_a_type_the_handler_gets_the_raw_params() -> None:
    router = Router()
    router.on_request("echo", lambda raw: raw)
    async with talk(router) as (_, other):
        other.say({"id": 1, "method": "echo", "params": [1, {"a": None}]})
        assert (await other.next())["result"] == [1, {"a": None}]


@aio
async def test_params_may_be_left_out_where_every_field_has_a_default() -> None:
    router = Router()
    router.on_request("show", lambda point: point, Point)
    async with talk(router) as (_, other):
        other.say({"id": 1, "method": "show"})
        assert (await other.next())["result"] == {"x": 0, "name": ""}


@pytest.mark.parametrize("params", [{"x": "hunter2"}, [1], None, "text"], ids=repr)
@aio
async def test_params_of_the_wrong_type_are_refused_without_calling_the_handler(
    params: Any,
) -> None:
    router = Router()
    called: list[Point] = []
    router.on_request("show", called.append, Point)
    async with talk(router) as (_, other):
        other.say({"id": 1, "method": "show", "params": params})
        error = (await other.next())["error"]
    assert error["code"] == codes.INVALID_PARAMS
    assert "hunter2" not in str(error)
    assert called == []


@aio
async def test_an_unknown_method_is_refused() -> None:
    async with talk(Router()) as (_, other):
        other.say({"id": 1, "method": "nonesuch"})
        assert (await other.next())["error"]["code"] == codes.METHOD_NOT_FOUND


@aio
async def test_an_error_raised_on_purpose_travels_as_it_is() -> None:
    router = Router()

    def refuse(raw: Raw) -> None:
        raise RemoteError(-32042, "no", {"why": "because"})

    router.on_request("refuse", refuse)
    async with talk(router) as (_, other):
        other.say({"id": 1, "method": "refuse"})
        assert (await other.next())["error"] == {
            "code": -32042,
            "message": "no",
            "data": {"why": "because"},
        }


# -- notifications


@aio
async def test_a_plain_function_is_called_in_the_pump() -> None:
    router = Router()
    seen: list[int] = []
    router.on_notification("point", lambda point: seen.append(point.x), Point)
    async with talk(router) as (connection, other):
        other.say(*({"method": "point", "params": {"x": x}} for x in range(20)))
        await until(lambda: len(seen) == 20)
        assert len(connection.tasks) == 0
    assert seen == list(range(20))


@aio
async def test_handlers_of_one_lane_run_one_after_another_and_lanes_side_by_side() -> None:
    router = Router()
    gate = asyncio.Event()
    seen: list[tuple[str, int]] = []

    async def handle(point: Point) -> None:
        if point.name == "a":
            await gate.wait()
        seen.append((point.name, point.x))

    router.on_notification("point", handle, Point, lane_of=lambda point: point.name)
    async with talk(router) as (connection, other):
        for x in range(3):
            other.say(
                {"method": "point", "params": {"x": x, "name": "a"}},
                {"method": "point", "params": {"x": x, "name": "b"}},
            )
        await until(lambda: len(seen) == 3)
        assert seen == [("b", 0), ("b", 1), ("b", 2)]
        await until(lambda: len(connection.tasks) == 1)
        gate.set()
        await until(lambda: len(seen) == 6)
        assert seen[3:] == [("a", 0), ("a", 1), ("a", 2)]


@aio
async def test_without_a_lane_all_methods_share_one() -> None:
    router = Router()
    seen: list[str] = []

    async def slow(raw: Raw) -> None:
        await turns(10)
        seen.append("slow")

    async def quick(raw: Raw) -> None:
        seen.append("quick")

    router.on_notification("slow", slow)
    router.on_notification("quick", quick)
    async with talk(router) as (_, other):
        other.say({"method": "slow"}, {"method": "quick"})
        await until(lambda: len(seen) == 2)
    assert seen == ["slow", "quick"]


class Callable:
    def __init__(self) -> None:
        self.seen: list[int] = []

    async def __call__(self, point: Point) -> None:
        await turns(5 - point.x)
        self.seen.append(point.x)

    async def with_more(self, more: str, point: Point) -> None:
        await self(point)


@pytest.mark.parametrize("kind", ["object", "lambda", "partial"])
@aio
async def test_whatever_returns_an_awaitable_is_awaited_in_order(kind: str) -> None:
    router = Router()
    target = Callable()
    handler: Any = {
        "object": target,
        "lambda": lambda point: target(point),
        "partial": functools.partial(target.with_more, "more"),
    }[kind]
    router.on_notification("point", handler, Point)
    async with talk(router) as (_, other):
        other.say(*({"method": "point", "params": {"x": x}} for x in range(5)))
        await until(lambda: len(target.seen) == 5)
    assert target.seen == list(range(5))


@aio
async def test_a_notification_of_the_wrong_type_is_noise() -> None:
    noise: list[Noise | Stray] = []
    router = Router(on_noise=noise.append)
    router.on_notification("point", lambda point: None, Point)
    async with talk(router) as (_, other):
        other.say({"method": "point", "params": {"x": "no number"}})
        await until(lambda: len(noise) == 1)
    (heard,) = noise
    assert isinstance(heard, Noise)
    assert heard.reason.startswith("point: ")
    assert b"no number" in heard.line


@aio
async def test_an_unknown_notification_is_left_alone() -> None:
    noise: list[Noise | Stray] = []
    router = Router(on_noise=noise.append)
    async with talk(router) as (connection, other):
        other.say({"method": "nonesuch"})
        await turns()
        assert connection.failure is None
    assert noise == []


@aio
async def test_noise_and_stray_responses_reach_their_handlers() -> None:
    noise: list[Noise | Stray] = []
    async with talk(Router(on_noise=noise.append)) as (connection, other):
        other.raw(b"hello, world\n")
        other.say({"id": 77, "result": 1})
        await until(lambda: len(noise) == 2)
        assert connection.failure is None
    assert isinstance(noise[0], Noise) and noise[0].line == b"hello, world"
    assert isinstance(noise[1], Stray) and noise[1].why == "unknown"


@aio
async def test_noise_without_a_handler_is_dropped() -> None:
    async with talk(Router()) as (connection, other):
        other.raw(b"hello, world\n")
        await turns()
        assert connection.failure is None


@aio
async def test_a_failing_lane_key_is_logged_and_stops_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    router = Router()
    seen: list[int] = []

    async def handle(point: Point) -> None:
        seen.append(point.x)

    router.on_notification("point", handle, Point, lane_of=lambda point: 1 // point.x)
    async with talk(router) as (_, other):
        with caplog.at_level(logging.ERROR, logger="dragoman.rpc"):
            other.say(*({"method": "point", "params": {"x": x}} for x in (0, 1)))
            await until(lambda: seen == [1])
    assert "ZeroDivisionError" in caplog.text


@aio
async def test_a_lane_that_is_cut_is_reported_with_its_key() -> None:
    cut: list[tuple[object, Overflow]] = []
    router = Router(on_cut=lambda key, failure: cut.append((key, failure)))
    gate = asyncio.Event()
    seen: list[str] = []

    async def handle(point: Point) -> None:
        if point.name == "slow":
            await gate.wait()
        seen.append(point.name)

    router.on_notification("point", handle, Point, lane_of=lambda point: point.name)
    limits = Limits(1000, 2000, stall_interval=0.001, overflow_timeout=0.001)
    async with talk(router, settings=ConnectionSettings(limits=limits)) as (_, other):
        for _ in range(20):
            other.say({"method": "point", "params": {"name": "slow"}})
        await until(lambda: router.lane("slow").ended is not None)
        other.say({"method": "point", "params": {"name": "quick"}})
        await until(lambda: "quick" in seen)
        assert cut == []
        gate.set()
        await until(lambda: len(cut) == 1)
    assert cut[0][0] == "slow"
    assert isinstance(cut[0][1], Overflow)
    assert seen.count("slow") >= 1


# -- life


@aio
async def test_a_router_serves_one_connection() -> None:
    router = Router()
    async with talk(router):
        with pytest.raises(UsageError):
            async with talk(router):
                pass


@aio
async def test_a_lane_of_a_router_without_a_connection_is_refused() -> None:
    with pytest.raises(UsageError):
        Router().lane("x")


@aio
async def test_a_forgotten_lane_is_made_anew() -> None:
    router = Router()
    gate = asyncio.Event()
    seen: list[int] = []

    async def handle(point: Point) -> None:
        await gate.wait()
        seen.append(point.x)

    router.on_notification("point", handle, Point, lane_of=lambda point: point.name)
    async with talk(router) as (_, other):
        other.say(*({"method": "point", "params": {"x": x, "name": "a"}} for x in range(3)))
        first = router.lane("a")
        await turns()
        router.forget_lane("a")
        router.forget_lane("never there")
        assert router.lane("a") is not first
        gate.set()
        other.say({"method": "point", "params": {"x": 9, "name": "a"}})
        await until(lambda: 9 in seen)
    # What was being handled is handled to its end; what was queued behind it is forgotten.
    assert sorted(seen) == [0, 9]


@aio
async def test_the_answer_to_a_call_waits_for_its_lane() -> None:
    router = Router()
    seen: list[object] = []

    async def handle(point: Point) -> None:
        await turns(3)
        seen.append(point.x)

    router.on_notification("point", handle, Point, lane_of=lambda point: point.name)
    async with talk(router) as (connection, other):

        async def ask() -> None:
            await connection.call("ask", after=router.lane("a"))
            seen.append("answer")

        asking = connection.tasks.start(ask(), "ask")
        request = await other.next()
        other.say(
            *({"method": "point", "params": {"x": x, "name": "a"}} for x in range(5)),
            {"id": request["id"], "result": None},
            {"method": "point", "params": {"x": 5, "name": "a"}},
        )
        await soon(asking)
        await until(lambda: 5 in seen)
    assert seen == [0, 1, 2, 3, 4, "answer", 5]


@aio
async def test_keys_without_end_share_a_lane_and_keep_their_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(router_module, "MAX_LANES", 3)
    router = Router()
    seen: list[tuple[str, int]] = []

    async def handle(point: Point) -> None:
        await turns(point.x % 3)
        seen.append((point.name, point.x))

    router.on_notification("point", handle, Point, lane_of=lambda point: point.name)
    names = "abcdefgh"
    async with talk(router) as (_, other):
        sent = [{"x": x, "name": name} for x in range(6, 0, -1) for name in names]
        other.say(*({"method": "point", "params": point} for point in sent))
        await until(lambda: len(seen) == len(sent))
        lanes = {id(router.lane(name)) for name in names}
        assert len(lanes) == 4
        router.forget_lane("a")
        assert router.lane("h") is router.lane("g") is router.lane("new")
    for name in names:
        assert [x for who, x in seen if who == name] == [6, 5, 4, 3, 2, 1]


@aio
async def test_a_handler_that_asks_after_its_own_lane_does_not_wait_for_itself() -> None:
    router = Router()
    answers: list[Raw] = []

    async def handle(point: Point) -> None:
        answers.append(await connection.call("ask", after=router.lane("a")))

    router.on_notification("point", handle, Point, lane_of=lambda point: point.name)
    async with talk(router) as (connection, other):
        other.say(*({"method": "point", "params": {"x": x, "name": "a"}} for x in range(2)))
        for result in (10, 11):
            request = await other.next()
            other.say({"id": request["id"], "result": result})
        await until(lambda: len(answers) == 2)
    assert [bytes(answer) for answer in answers] == [b"10", b"11"]
