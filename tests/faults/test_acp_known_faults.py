"""Known faults of other ACP implementations that this one must not have.

Each was found in an official SDK or in a program built on one: updates out of order under load,
responses that overtake updates, exceptions sent on the wire, dropped arguments, frames that end a
connection, growing memory, processes left behind. Each has one test, named after it.
"""

from __future__ import annotations

import asyncio
import gc
import json
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from dragoman.agent import Agent, Turn
from dragoman.client.acp import AcpClient, ClientOptions, use_agent
from dragoman.client.permissions import Answer, Question
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import LineTooLong, MessageTooLong, ProcessExited, RemoteError, UsageError
from dragoman.testing.scripted import (
    Exit,
    Expect,
    FloodStderr,
    Notify,
    Reply,
    SendBytes,
    SpawnGrandchild,
)
from dragoman.transports.base import Receiver, Stream
from dragoman.transports.memory import MemoryStream, memory_pair
from dragoman.wire.peer import Noise, Stray
from tests.aio import aio
from tests.integration.acp_programs import TIMEOUT, program, running, scripted
from tests.integration.children import wait_dead
from tests.unit.rpc.other_side import turns, until

MIB = 1024 * 1024


def agent_that(work: str) -> list[str]:
    """Return the command line of an agent whose turns do this."""
    return program(
        "from dragoman.agent import Agent, Turn\n"
        'agent = Agent("test")\n'
        "@agent.prompt\n"
        "async def answer(turn: Turn) -> None:\n"
        f"    {work}\n"
        "agent.run()\n"
    )


@asynccontextmanager
async def in_memory(
    agent: Agent, options: ClientOptions | None = None, *, tap: bytearray | None = None
) -> AsyncIterator[AcpClient]:
    """Yield a client and an agent in this process; `tap` receives every byte between them."""
    ours, theirs = memory_pair()
    stream: Stream = ours if tap is None else Tapped(ours, tap)
    async with asyncio.timeout(TIMEOUT), asyncio.TaskGroup() as tasks:
        tasks.create_task(agent.serve(theirs))
        async with use_agent(stream, options=options) as client:
            yield client


class Tapped(MemoryStream):
    """Forwards everything and keeps a copy."""

    def __init__(self, inner: MemoryStream, tap: bytearray) -> None:
        self.__dict__ = inner.__dict__
        self._inner, self._tap = inner, tap

    def start(self, receiver: Receiver) -> None:
        tap, deliver = self._tap, receiver.data_received

        class Tap:
            stream_ended = receiver.stream_ended

            @staticmethod
            def data_received(data: bytes) -> None:
                tap.extend(data)
                deliver(data)

        self._inner.start(Tap)

    def write(self, data: bytes) -> None:
        self._tap.extend(data)
        self._inner.write(data)


def number_of(update: acp.SessionUpdate) -> int:
    assert isinstance(update, acp.AgentMessageChunk)
    assert isinstance(update.content, acp.TextContent)
    return int(update.content.text)


def echoing() -> Agent:
    agent = Agent("echo")

    @agent.prompt
    async def answer(turn: Turn) -> None:
        await turn.say(turn.text)

    @agent.extension("_echo/ask")
    async def ask(params: Any) -> Any:
        return params

    return agent


# -- order


@aio
async def test_notifications_keep_their_order_under_a_slow_consumer() -> None:
    argv = agent_that("for number in range(2000): await turn.say(str(number))")
    async with asyncio.timeout(TIMEOUT), running(argv) as (client, _):
        session = await client.new_session(Path.cwd())
        seen = []
        async with session.prompt("go") as turn:
            async for update in turn:
                seen.append(number_of(update))
                # Slow at times, so that sometimes one update waits and sometimes many.
                for _ in range(len(seen) % 5):
                    await asyncio.sleep(0)
        assert seen == list(range(2000))


@pytest.mark.parametrize("is_async", [True, False])
@aio
async def test_notifications_keep_their_order_under_a_slow_handler(is_async: bool) -> None:
    agent = echoing()
    heard: list[int] = []
    all_heard = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hear(number: int) -> None:
        heard.append(number)
        if len(heard) == 200:
            loop.call_soon_threadsafe(all_heard.set)

    async def hear_slowly(number: int) -> None:
        # Sometimes slow and sometimes fast: without waiting for each, the order would change.
        await turns(number % 7)
        hear(number)

    agent.extension_notification("_echo/tell")(hear_slowly if is_async else hear)
    async with in_memory(agent) as client:
        for number in range(200):
            await client.notify_extension("_echo/tell", number)
        # It does not delay anything else.
        assert await client.call_extension("_echo/ask", 7) == 7
        await all_heard.wait()
    assert heard == list(range(200))


@aio
async def test_the_answer_does_not_overtake_its_updates() -> None:
    argv = agent_that("for number in range(5000): await turn.say(str(number))")
    async with asyncio.timeout(TIMEOUT), running(argv) as (client, _):
        session = await client.new_session(Path.cwd())
        async with session.prompt("go") as turn:
            # Nothing is read before the response has arrived.
            await until(lambda: session.turn is None)
            seen = [number_of(update) async for update in turn]
        assert seen == list(range(5000))


# -- what travels


@aio
async def test_the_text_of_an_exception_is_not_on_the_wire_from_either_side() -> None:
    agent = Agent("failing")

    @agent.prompt
    async def answer(turn: Turn) -> None:
        with pytest.raises(RemoteError):
            await turn.ask_permission("May I?")
        raise RuntimeError("swordfish of the agent")

    def permit(question: Question) -> Answer:
        raise RuntimeError("swordfish of the client")

    tap = bytearray()
    async with in_memory(agent, ClientOptions(permit=permit), tap=tap) as client:
        session = await client.new_session("/w")
        async with session.prompt("go") as turn:
            # An exception of our own `permit` is raised here and not sent.
            with pytest.raises(UsageError, match="swordfish of the client"):
                (await turn.wait()).require_ok()
    assert b"session/request_permission" in tap
    assert b"swordfish" not in tap


STRUCTS = [
    value
    for name in acp.__all__
    if isinstance(value := getattr(acp, name), type) and issubclass(value, Struct)
]


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.__name__)
def test_a_misspelt_argument_of_a_value_is_an_error(struct: type[Struct]) -> None:
    with pytest.raises(TypeError):
        struct(sesion_id="s1")


@aio
async def test_a_misspelt_argument_of_a_method_is_an_error_and_nothing_is_sent() -> None:
    errors = []
    agent = Agent("misspelt")

    @agent.prompt
    async def answer(turn: Turn) -> None:
        for work in (
            lambda: turn.say("x", mesage_id="m"),  # type: ignore[call-arg]
            lambda: turn.tool("x", knd="read"),  # type: ignore[call-arg]
            lambda: turn.read_file("/x", lne=1),  # type: ignore[call-arg]
            lambda: turn.plan(entires=[]),  # type: ignore[call-arg]
        ):
            with pytest.raises(TypeError) as caught:
                work()
            errors.append(caught.value)

    tap = bytearray()
    async with in_memory(agent, tap=tap) as client:
        session = await client.new_session("/w")
        before = len(tap)
        for work in (
            lambda: client.new_session("/w", mcp_server=[]),  # type: ignore[call-arg]
            lambda: session.prompt("x", mta={}),  # type: ignore[call-arg]
            lambda: client.load_session("s", "/w", on_updates=print),  # type: ignore[call-arg]
        ):
            with pytest.raises(TypeError):
                work()
        await turns()
        assert len(tap) == before
        await session.ask("go")
    assert len(errors) == 4
    assert b"session/load" not in tap and b"agent_message_chunk" not in tap


# -- frames


FRAMES = [b"[]", b"7", b'"text"', b"null", b"true", b"[{}]", b"{", b"garbage", b"{}", b"\xff\xfe"]


@aio
async def test_a_frame_that_is_not_an_object_ends_neither_the_turn_nor_the_client() -> None:
    update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "1"}}
    argv = scripted(
        Expect("session/prompt"),
        SendBytes(b"\n".join([*FRAMES, b""])),
        Notify("session/update", {"sessionId": "s1", "update": update}),
        Reply({"stopReason": "end_turn"}),
    )
    noises: list[Noise | Stray] = []
    options = ClientOptions(on_noise=noises.append)
    async with asyncio.timeout(TIMEOUT), running(argv, options) as (client, _):
        session = await client.new_session(Path.cwd())
        async with session.prompt("go") as turn:
            assert [number_of(update) async for update in turn] == [1]
            assert turn.result.stop == "end_turn"
    assert [noise.line for noise in noises] == FRAMES


@aio
async def test_a_frame_that_is_not_an_object_does_not_end_the_agent() -> None:
    ours, theirs = memory_pair()
    heard = bytearray()

    class Ear:
        @staticmethod
        def data_received(data: bytes) -> None:
            heard.extend(data)

        @staticmethod
        def stream_ended(failure: object) -> None: ...

    async with asyncio.timeout(TIMEOUT), asyncio.TaskGroup() as tasks:
        tasks.create_task(echoing().serve(theirs))
        ours.start(Ear)
        ours.write(b"\n".join([*FRAMES, b""]))
        hello = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {"protocolVersion": 1},
        }
        ours.write(json.dumps(hello).encode() + b"\n")
        while b'"protocolVersion"' not in heard:  # noqa: ASYNC110 - the stream has no event
            await asyncio.sleep(0)
        await ours.aclose()


@aio
async def test_long_lines_pass_and_lines_over_the_limit_end_the_agent_with_a_reason() -> None:
    long = 4 * MIB
    argv = agent_that("await turn.say(turn.text)")
    async with asyncio.timeout(TIMEOUT), running(argv) as (client, _):
        session = await client.new_session(Path.cwd())
        assert len((await session.ask("x" * long)).text) == long
    limited = ClientOptions(max_line_size=MIB)
    async with asyncio.timeout(TIMEOUT), running(argv, limited) as (client, child):
        session = await client.new_session(Path.cwd())
        # Our own is refused before anything is sent, and the session can still be used.
        with pytest.raises(MessageTooLong):
            async with session.prompt("x" * long):
                pytest.fail("the turn must not begin")
        assert (await session.ask("short")).text == "short"
    argv = agent_that(f'await turn.say("x" * {long})')
    async with asyncio.timeout(TIMEOUT), running(argv, limited) as (client, child):
        session = await client.new_session(Path.cwd())
        async with session.prompt("go") as turn:
            with pytest.raises(LineTooLong):
                (await turn.wait()).require_ok()
    assert not child.is_running


@aio
async def test_a_flood_on_stderr_does_not_stall_the_turn_and_is_not_kept() -> None:
    argv = scripted(
        Expect("session/prompt"),
        FloodStderr(8 * MIB),
        Reply({"stopReason": "end_turn"}),
        Expect("session/prompt"),
        Exit(1),
    )
    async with asyncio.timeout(TIMEOUT), running(argv) as (client, _):
        session = await client.new_session(Path.cwd())
        async with session.prompt("go") as turn:
            assert (await turn.wait()).stop == "end_turn"
        async with session.prompt("die") as turn:
            with pytest.raises(ProcessExited) as caught:
                (await turn.wait()).require_ok()
    assert 0 < len(caught.value.stderr_tail) < MIB


# -- memory and processes


@aio
async def test_finished_requests_are_not_retained() -> None:
    async with in_memory(echoing()) as client:
        session = await client.new_session("/w")

        async def call(times: int) -> None:
            for number in range(times):
                assert await client.call_extension("_echo/ask", number) == number

        # The first ones fill what is filled once: caches, and the memory of late responses.
        await call(2_000)
        await session.ask("warm")
        gc.collect()
        tracemalloc.start()
        try:
            objects = len(gc.get_objects())
            await call(10_000)
            for _ in range(100):
                await session.ask("x")
            gc.collect()
            size = tracemalloc.get_traced_memory()[0]
            grown = len(gc.get_objects()) - objects
        finally:
            tracemalloc.stop()
    assert size < MIB // 8
    assert grown < 100


@aio
async def test_the_whole_group_of_an_agent_is_ended_and_not_only_its_first_process() -> None:
    argv = scripted(SpawnGrandchild(), Expect("session/prompt"), Reply({"stopReason": "end_turn"}))
    pids: list[int] = []

    class Listener:
        async def request(self, method: str, params: Any) -> Any:
            raise AssertionError

        def notification(self, method: str, params: Any) -> None:
            pids.append(params["pid"])

    async with (
        asyncio.timeout(TIMEOUT),
        running(argv, ClientOptions(extension=Listener())) as (
            client,
            child,
        ),
    ):
        session = await client.new_session(Path.cwd())
        async with session.prompt("go") as turn:
            await turn.wait()
        assert child.is_running
    assert not child.is_running
    (grandchild,) = pids
    wait_dead(grandchild)


@aio
async def test_memory_is_bounded_under_a_slow_consumer() -> None:
    many = 50_000
    argv = agent_that(f'for number in range({many}): await turn.say(f"{{number:0>2000}}")')
    async with asyncio.timeout(2 * TIMEOUT), running(argv) as (client, _):
        session = await client.new_session(Path.cwd())
        gc.collect()
        tracemalloc.start()
        try:
            async with session.prompt("go") as turn:
                expected, held_back = 0, False
                async for update in turn:
                    # Slower than the agent, which would have filled 100 MiB meanwhile.
                    if expected % 10 == 0:
                        await turns(10)
                    held_back = held_back or client.connection.flow.paused
                    assert number_of(update) == expected
                    expected += 1
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert expected == many
    assert held_back, "the consumer was not slow enough to show anything"
    assert peak < 64 * MIB
