"""The host is met before the SDK is there."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dragoman.mcp_server.stdio_entry import serve_early
from dragoman.mcp_server.tool_handlers import ToolHandlers
from dragoman.rpc.tasks import TaskOwner
from dragoman.transports.memory import memory_pair
from tests.aio import aio
from tests.unit.mcp_server.hands import HELLO, Hand, asked


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

    with pytest.raises(ImportError, match="it is broken"):
        await serve_early(make, far, stop=asyncio.Event())
    await near.aclose()


def test_the_way_in_does_not_load_the_sdk() -> None:
    code = "import sys, dragoman.cli.serve_mcp, dragoman.mcp_server.stdio_entry\n"
    code += "assert not {'mcp', 'mcp_types', 'pydantic'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=20)
