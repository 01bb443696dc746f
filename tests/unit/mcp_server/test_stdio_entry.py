"""The host is met before the SDK is there."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from dragoman.mcp_server.stdio_entry import VERSIONS, EarlyResponder, serve_early
from dragoman.mcp_server.tool_handlers import ToolHandlers
from dragoman.rpc.tasks import TaskOwner
from dragoman.transports.memory import memory_pair
from tests.aio import aio
from tests.unit.mcp_server.hands import HELLO, Hand, asked, served


class Slow:
    """Loads as soon as it may."""

    def __init__(self, work: Path) -> None:
        self.may = threading.Event()
        self._work = work

    def __call__(self) -> ToolHandlers:
        assert self.may.wait(10)
        return ToolHandlers(cwd=self._work)


@aio
async def test_a_host_is_greeted_while_the_sdk_is_loaded_and_nothing_is_said_twice(
    work: Path,
) -> None:
    near, far = memory_pair()
    tasks, make = TaskOwner("test"), Slow(work)
    serving = tasks.start(serve_early(make, far, stop=asyncio.Event()), "serve")
    hand = Hand(near)
    assert (await hand.ask(HELLO))["result"]["serverInfo"]["name"] == "dragoman"
    assert len((await hand.ask(asked(2, "tools/list")))["result"]["tools"]) == 8
    for message in (asked(3, "ping"), asked(4, "tools/call", name="list_peers", arguments={})):
        near.write(str(message).replace("'", '"').encode() + b"\n")
    make.may.set()
    async with asyncio.timeout(10):
        assert {(await hand.lines.get())["id"] for _ in range(2)} == {3, 4}
    # With the same id again, which nobody has answered.
    assert len((await hand.ask(asked(2, "tools/list")))["result"]["tools"]) == 8
    assert (await hand.ask(asked(5, "ping")))["id"] == 5
    await near.aclose()
    async with asyncio.timeout(10):
        await serving
    assert hand.lines.empty()


@aio
async def test_a_signal_ends_it_also_before_the_sdk_is_there(work: Path) -> None:
    near, far = memory_pair()
    tasks, make, stop = TaskOwner("test"), Slow(work), asyncio.Event()
    serving = tasks.start(serve_early(make, far, stop=stop), "serve")
    hand = Hand(near)
    await hand.ask(HELLO)
    stop.set()
    async with asyncio.timeout(10):
        await serving
        await hand.ended.wait()
    make.may.set()
    await near.aclose()


@aio
async def test_what_keeps_the_sdk_from_loading_is_raised(caplog: pytest.LogCaptureFixture) -> None:
    near, far = memory_pair()

    def make() -> ToolHandlers:
        raise ImportError("it is broken")

    Hand(near)
    near.write(json.dumps(asked(1, "tools/call", name="x", arguments={})).encode() + b"\n")
    with pytest.raises(ImportError, match="it is broken"):
        await serve_early(make, far, stop=asyncio.Event())
    await near.aclose()


@aio
async def test_the_sdk_is_not_loaded_for_a_host_that_calls_no_tool(work: Path) -> None:
    near, far = memory_pair()
    loaded: list[str] = []

    def make() -> ToolHandlers:
        loaded.append("it")
        return ToolHandlers(cwd=work)

    tasks = TaskOwner("test")
    serving = tasks.start(serve_early(make, far, stop=asyncio.Event()), "serve")
    hand = Hand(near)
    await hand.ask(HELLO)
    near.write(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
    assert len((await hand.ask(asked(2, "tools/list")))["result"]["tools"]) == 8
    assert (await hand.ask(asked(3, "ping")))["result"] == {}
    await near.aclose()
    async with asyncio.timeout(10):
        await serving
    assert loaded == []


@aio
async def test_many_pings_are_answered_before_and_after_the_sdk_is_loaded(work: Path) -> None:
    near, far = memory_pair()
    tasks = TaskOwner("test")
    make = Slow(work)
    make.may.set()
    serving = tasks.start(serve_early(make, far, stop=asyncio.Event()), "serve")
    hand = Hand(near)
    await hand.ask(HELLO)
    for number in range(2, 40):
        assert (await hand.ask(asked(number, "ping")))["id"] == number
    await near.aclose()
    async with asyncio.timeout(10):
        await serving


def test_the_way_in_does_not_load_the_sdk() -> None:
    code = "import sys, dragoman.cli.serve_mcp, dragoman.mcp_server.stdio_entry\n"
    code += "assert not {'mcp', 'mcp_types', 'pydantic'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=20)


LIST = asked(2, "tools/list")


def told(greeting: EarlyResponder, message: Any) -> Any:
    answer = greeting.answer(json.dumps(message).encode())
    return None if answer is None else json.loads(answer)


def hello(version: str) -> dict[str, Any]:
    return {**HELLO, "params": {**HELLO["params"], "protocolVersion": version}}


@pytest.mark.parametrize("version", HANDSHAKE_PROTOCOL_VERSIONS)
@aio
async def test_the_answers_are_those_of_the_sdk(version: str, work: Path) -> None:
    greeting = EarlyResponder()
    async with served(work) as hand:
        for message in (hello(version), LIST, {**LIST, "params": {"_meta": {"progressToken": 1}}}):
            assert told(greeting, message) == await hand.ask(message)
    assert greeting.answered == {1: 1, 2: 2}


def test_every_protocol_with_a_handshake_is_known() -> None:
    assert set(VERSIONS) == set(HANDSHAKE_PROTOCOL_VERSIONS)


@pytest.mark.parametrize(
    "message",
    [
        LIST,
        hello("1999-01-01"),
        {**HELLO, "jsonrpc": "1.0"},
        {**HELLO, "id": True},
        {**HELLO, "params": {"protocolVersion": VERSIONS[0]}},
        {"jsonrpc": "2.0", "method": "initialize"},
        [HELLO],
    ],
)
def test_what_is_not_a_known_greeting_is_left_to_the_sdk(message: Any) -> None:
    greeting = EarlyResponder()
    assert told(greeting, message) is None
    assert not greeting.answered


def test_garbage_is_left_to_the_sdk() -> None:
    greeting = EarlyResponder()
    for line in (b"", b"no json", b"\xff\xfe", b"[" * 100_000):
        assert greeting.answer(line) is None
    assert told(greeting, HELLO) is not None


def test_only_the_first_request_can_be_a_greeting_and_only_tools_are_listed_behind_it() -> None:
    late = EarlyResponder()
    assert told(late, asked(1, "ping")) is None
    assert told(late, {**HELLO, "id": 2}) is None
    greeting = EarlyResponder()
    assert told(greeting, HELLO)["id"] == 1
    assert told(greeting, {**HELLO, "id": 2}) is None
    assert told(greeting, {"jsonrpc": "2.0", "method": "notifications/initialized"}) is None
    assert told(greeting, asked(3, "tools/list", cursor="x")) is None
    assert told(greeting, asked(4, "tools/call", name="list_peers")) is None
    assert told(greeting, {**LIST, "id": "five"})["id"] == "five"
