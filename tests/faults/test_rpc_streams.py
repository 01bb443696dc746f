"""A stream that is cut at any byte, in either direction, and conversations with random faults.

Both ends are our own connections in one event loop, so that any byte can be the last one.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from typing import Any, Literal

import pytest
from msgspec import Raw

from dragoman.errors import (
    CallCancelled,
    CallTimeout,
    ConnectionBroken,
    ConnectionClosed,
    ConnectionEnded,
    ConnectionLost,
    DragomanError,
    RemoteError,
)
from dragoman.rpc import Connection, ConnectionSettings, End, Router
from dragoman.rpc.tasks import TaskOwner
from dragoman.testing.faults import Cut, FaultyStream, HalfClosed, Silent, Slow
from dragoman.transports.memory import MemoryStream, memory_pair
from dragoman.wire.messages import Id
from tests.aio import aio
from tests.unit.rpc.other_side import soon, turns

FAILURES: dict[str, type[ConnectionLost]] = {
    "ended": ConnectionEnded,
    "broken": ConnectionBroken,
    "closed": ConnectionClosed,
}


def serving() -> Router:
    router = Router()

    async def later(raw: Raw) -> str:
        await turns(2)
        return "later"

    router.on_request("now", lambda raw: "now")
    router.on_request("later", later)
    return router


async def outcome(work: asyncio.Task[Raw]) -> Any:
    try:
        return json.loads(bytes(await soon(work)))
    except DragomanError as error:
        return error


@pytest.mark.parametrize("failure", ["ended", "broken", "closed"])
@pytest.mark.parametrize("direction", ["inbound", "outbound"])
@aio
async def test_a_stream_cut_at_any_byte_settles_every_call(
    direction: Literal["inbound", "outbound"], failure: Literal["ended", "broken", "closed"]
) -> None:
    whole = 0
    for at in range(400):
        ours, theirs = memory_pair()
        cut = FaultyStream(ours, [Cut(at=at, failure=failure, direction=direction)])
        async with (
            Connection(theirs, End.AGENT, serving()) as agent,
            Connection(cut, End.CLIENT) as client,
        ):
            tasks = TaskOwner("test")
            calls = [tasks.start(client.call(name), name) for name in ("now", "later", "now")]
            results = [await outcome(call) for call in calls]
            answers = [result for result in results if not isinstance(result, DragomanError)]
            errors = [result for result in results if isinstance(result, DragomanError)]
            assert all(type(error) is FAILURES[failure] for error in errors)
            # A stream that ended before the first call refuses it, and nothing was sent.
            sent = at > 0 or direction == "outbound"
            assert all(error.may_have_run is sent for error in errors)
            assert all(answer in ("now", "later") for answer in answers)
            if not errors:
                whole += 1
                assert results == ["now", "later", "now"]
        assert agent.failure is not None
        assert len(agent.tasks) == len(client.tasks) == 0
    # The table must reach beyond the last byte of the conversation, or it would prove too little.
    assert 0 < whole < 400


@aio
async def test_a_half_closed_stream_ends_the_connection_and_not_before_its_last_byte() -> None:
    ours, theirs = memory_pair()
    line = b'{"jsonrpc":"2.0","id":0,"result":"now"}\n'
    async with (
        Connection(theirs, End.AGENT, serving()),
        Connection(FaultyStream(ours, [HalfClosed(at=len(line))]), End.CLIENT) as client,
    ):
        assert bytes(await soon(client.call("now"))) == b'"now"'
        assert isinstance(await soon(client.wait_ended()), ConnectionEnded)


@aio
async def test_a_stream_of_single_bytes_is_only_slow() -> None:
    ours, theirs = memory_pair()
    slow = FaultyStream(ours, [Slow(), Slow(direction="outbound")])
    async with (
        Connection(theirs, End.AGENT, serving()),
        Connection(slow, End.CLIENT) as client,
    ):
        answers = await soon(asyncio.gather(client.call("later"), client.call("now")))
    assert [bytes(answer) for answer in answers] == [b'"later"', b'"now"']


@pytest.mark.parametrize("direction", ["inbound", "outbound"])
@aio
async def test_a_stream_that_falls_silent_is_noticed_by_a_timeout_only(
    direction: Literal["inbound", "outbound"],
) -> None:
    ours, theirs = memory_pair()
    silent = FaultyStream(ours, [Silent(at=60, direction=direction)])
    async with (
        Connection(theirs, End.AGENT, serving()),
        Connection(silent, End.CLIENT) as client,
    ):
        assert bytes(await soon(client.call("now"))) == b'"now"'
        with pytest.raises(CallTimeout):
            await client.call("now", timeout=0.02)
        assert client.failure is None


class Ledger:
    """Records the requests and responses on the wire, parsed with plain `json`."""

    def __init__(self, stream: MemoryStream) -> None:
        self.answers: Counter[Id] = Counter()
        write = stream.write

        def noted(data: bytes) -> None:
            for line in data.splitlines():
                message = json.loads(line)
                if "method" not in message and message["id"] is not None:
                    self.answers[message["id"]] += 1
            write(data)

        stream.write = noted  # type: ignore[method-assign]


def calling_off(id: Id) -> tuple[str, Any]:
    return "cancel", id


class Chaos:
    """An agent that at random answers in time, late, wrongly or not at all."""

    connection: Connection

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.begun: list[int] = []
        self.router = Router()
        self.router.on_request("ask", self.ask, int)
        self.router.on_request("quick", self.quick, int)
        self.router.on_notification("cancel", self.cancel, int)

    async def ask(self, n: int) -> Any:
        self.begun.append(n)
        await turns(self.chance.randrange(6))
        match self.chance.randrange(6):
            case 0:
                raise RemoteError(-5, "no", n)
            case 1:
                raise ValueError("by design")
            case 2:
                return object()
            case 3:
                await asyncio.Event().wait()
        return n

    def quick(self, n: int) -> int:
        self.begun.append(n)
        return n

    def cancel(self, id: int) -> None:
        self.connection.cancel_inbound(id)


@pytest.mark.parametrize("seed", range(12))
@aio
async def test_every_call_settles_with_its_own_end_and_every_request_is_answered_once(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("CRITICAL", logger="dragoman.rpc")
    chance = random.Random(seed)
    chaos = Chaos(chance)
    ours, theirs = memory_pair()
    ledger = Ledger(theirs)
    tasks = TaskOwner("test")
    settings = ConnectionSettings(cancel_notice=calling_off)
    results: dict[int, Any] = {}
    async with (
        Connection(theirs, End.AGENT, chaos.router) as chaos.connection,
        Connection(ours, End.CLIENT, settings=settings) as client,
    ):

        async def call(n: int) -> None:
            timeout = chance.choice([0.005, 0.05])
            try:
                answer = await client.call(chance.choice(["ask", "quick"]), n, timeout=timeout)
                results[n] = int(bytes(answer))
            except DragomanError as error:
                results[n] = error
            except asyncio.CancelledError:
                results[n] = None
                raise

        calls = []
        for n in range(120):
            calls.append(tasks.start(call(n), "call"))
            if chance.random() < 0.4:
                await turns(chance.randrange(4))
            if chance.random() < 0.2:
                chance.choice(calls).cancel()
        await asyncio.wait(calls, timeout=30.0)
        assert all(task.done() for task in calls)
        # Calls that were given up were cancelled, so the agent has nothing left to do either.
        async with asyncio.timeout(10.0):
            while len(chaos.connection.tasks):
                await turns()
        assert client.failure is None and chaos.connection.failure is None
    for n, result in results.items():
        match result:
            case int():
                assert result == n
            case RemoteError(code=-5, data=data):
                assert data == n
            case None | CallTimeout() | CallCancelled() | RemoteError(code=-32603):
                pass
            case _:
                raise AssertionError(result)
    assert len(ledger.answers) >= len(chaos.begun)
    assert set(ledger.answers.values()) == {1}
    assert {type(result) for result in results.values()} >= {int, CallTimeout, RemoteError}
