"""Many callers at one broker, which is a process of its own with a real socket."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from dragoman.rpc import outbox
from dragoman.transports.base import HIGH_WATER_SIZE
from tests.aio import aio
from tests.integration.broker_process import BrokerUnderTest, broker_process
from tests.integration.broker_stage import TIMEOUT, spec_of, stage, stored

CALLERS = 50
PROMPTS = 20
EVENTS = 5
CONNECTS = 1000

MAX_MEMORY = 150 * 1024 * 1024
"""Bytes of the broker. A peer holds more than that, so the broker is not what counts."""


@aio
async def test_fifty_callers_get_their_own_events_once_and_in_order(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, parallel=True)
    async with broker_process(spec) as broker:
        sessions = await asyncio.gather(*(_talk(broker, tmp_path) for _ in range(CALLERS)))
        async with broker.caller(greet=False) as looking, asyncio.timeout(10):
            # The last to leave are noticed a moment later, and the last job is stored then.
            status = await looking.call("_dragoman/status")
            while status["callers"] or status["jobs"]:
                status = await looking.call("_dragoman/status")
        assert status["rss"] < MAX_MEMORY
    kept = {each["record"].peer_session_id: each["lines"] for each in stored(tmp_path)}
    assert kept.keys() == set(sessions)
    for session, lines in kept.items():
        numbers = [number for number, _ in lines]
        assert numbers == list(range(1 + PROMPTS * EVENTS)), session


async def _talk(broker: BrokerUnderTest, folder: Path) -> str:
    async with broker.caller() as caller:
        session = await caller.new(folder)
        expected = [f"{session}#{number} " for number in range(EVENTS)]
        for prompt in range(PROMPTS):
            result = await caller.prompting(session, f"count {EVENTS}")
            assert result["_meta"]["dragoman"]["nextEvent"] == 1 + (prompt + 1) * EVENTS
            assert caller.texts() == expected * (prompt + 1), "nothing lost, doubled or foreign"
        assert {each["sessionId"] for each in caller.updates} == {session}
        return session


@aio
async def test_long_prompts_of_many_callers_wait_for_a_peer_that_reads_slowly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "MAX_UNSENT_SIZE", 2 * HIGH_WATER_SIZE)
    text = "say " + "x" * (2 * HIGH_WATER_SIZE)
    async with stage(tmp_path, parallel=True) as at, AsyncExitStack() as stack:
        callers = [await stack.enter_async_context(at.caller()) for _ in range(8)]
        sessions = [await caller.new(tmp_path) for caller in callers]
        async with asyncio.timeout(TIMEOUT):
            results = await asyncio.gather(
                *(
                    caller.prompting(session, text)
                    for caller, session in zip(callers, sessions, strict=True)
                )
            )
    assert [result["stopReason"] for result in results] == ["end_turn"] * 8


@aio
async def test_a_thousand_connects_leave_no_descriptor_behind(tmp_path: Path) -> None:
    async with broker_process(spec_of(tmp_path)) as broker:
        async with broker.caller() as caller:
            before = broker.descriptors
            for number in range(CONNECTS):
                async with broker.caller(greet=number % 100 == 0) as other:
                    if number % 10 == 0:
                        await other.call("_dragoman/ping")
            await caller.call("_dragoman/ping")
            async with asyncio.timeout(10):
                while broker.descriptors > before:  # noqa: ASYNC110 - nobody tells of it
                    await asyncio.sleep(0.01)
            assert (await caller.call("_dragoman/status"))["callers"] == 0
