"""What ACP costs in memory: long turns, and many sessions that do nothing."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dragoman.agent import Agent, Turn
from dragoman.client.acp import use_agent
from dragoman.transports.memory import memory_pair
from tests.aio import aio
from tests.integration.acp_programs import TIMEOUT, program, running

MIB = 1024 * 1024

UPDATES = 20_000
TURN_SIZE = 64 * MIB
"""What a turn that is read and not kept may cost either side; the updates themselves are 20 MiB."""

SESSIONS = 1_000
SESSION_SIZE = 20 * 1024
"""What a session that does nothing may cost, both sides together."""

TALKER = f"""
    from dragoman.agent import Agent, Turn
    agent = Agent("talker")
    @agent.prompt
    async def answer(turn: Turn) -> None:
        for number in range({UPDATES}):
            await turn.say("x" * 1000)
    agent.run()
"""


@contextmanager
def traced() -> Iterator[None]:
    gc.collect()
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


@aio
async def test_a_long_turn_that_is_read_and_not_kept_costs_neither_side_much() -> None:
    async with asyncio.timeout(2 * TIMEOUT), running(program(TALKER)) as (client, child):
        session = await client.new_session(Path.cwd())
        before = child.peak_memory_size
        with traced():
            async with session.prompt("talk") as turn:
                count = 0
                async for _ in turn:
                    count += 1
            peak = tracemalloc.get_traced_memory()[1]
        assert count == UPDATES
        assert peak < TURN_SIZE
        assert child.peak_memory_size - before < TURN_SIZE


@aio
async def test_a_session_that_does_nothing_costs_next_to_nothing() -> None:
    agent = Agent("idle")

    @agent.prompt
    async def answer(turn: Turn) -> None:
        await turn.say(turn.text)

    ours, theirs = memory_pair()
    async with asyncio.timeout(TIMEOUT), asyncio.TaskGroup() as tasks:
        tasks.create_task(agent.serve(theirs))
        async with use_agent(ours) as client:
            # The first one brings along what all share.
            assert (await (await client.new_session("/w")).ask("hello")).text == "hello"
            with traced():
                for _ in range(SESSIONS):
                    await client.new_session("/w")
                gc.collect()
                size = tracemalloc.get_traced_memory()[0]
            assert len(client.sessions) == SESSIONS + 1
            assert size / SESSIONS < SESSION_SIZE
            # They are not asleep: each of them works.
            assert (await client.sessions[-1].ask("still there")).text == "still there"
