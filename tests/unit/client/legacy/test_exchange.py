"""One request at a time, with its notifications."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dragoman.client.legacy.exchange import MAX_LINE_SIZE
from dragoman.client.legacy.oneshot import OneshotClient
from dragoman.dialects.legacy.oneshot import Answer
from dragoman.errors import (
    ConnectionEnded,
    InvalidAnswer,
    LineTooLong,
    PeerBusy,
    RequestInProgress,
)
from dragoman.transports.memory import memory_pair
from tests.aio import aio
from tests.unit.client.legacy.far_end import SILENCE, HostAgent, garbage, hanging_up
from tests.unit.rpc.other_side import soon, until


def pair(replies: dict[str, Any], **options: Any) -> tuple[OneshotClient, HostAgent]:
    ours, theirs = memory_pair()
    agent = HostAgent(theirs, replies)
    theirs.start(agent)
    return OneshotClient(ours, **options), agent


async def when_allowed(client: OneshotClient) -> Answer:
    """Prompt as soon as nothing is under way any more."""
    while True:
        try:
            return await client.prompt("two")
        except PeerBusy:
            await asyncio.sleep(0)


@aio
async def test_a_second_request_is_refused_and_the_first_goes_on() -> None:
    client, agent = pair({"prompt": SILENCE})
    async with client:
        first = asyncio.get_running_loop().create_task(client.prompt("one"))
        await until(lambda: agent.prompts == 1)
        with pytest.raises(RequestInProgress):
            await client.prompt("two")
        agent.answer(agent.heard[0], {"content": "done"})
        assert (await soon(first)).content == "done"
        assert agent.prompts == 1
    await agent.stream.aclose()


@aio
async def test_after_a_cancelled_caller_the_next_request_waits_for_the_late_answer() -> None:
    client, agent = pair({"prompt": SILENCE})
    async with client:
        first = asyncio.get_running_loop().create_task(client.prompt("one"))
        await until(lambda: agent.prompts == 1)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        with pytest.raises(PeerBusy):
            await client.prompt("two")
        agent.replies["prompt"] = {"content": "two"}
        agent.answer(agent.heard[0], {"content": "late"})
        assert (await soon(when_allowed(client))).content == "two"
    await agent.stream.aclose()


@aio
async def test_notifications_go_to_the_call_under_way_only() -> None:
    client, agent = pair({"prompt": SILENCE})
    heard: list[tuple[str, Any]] = []
    async with client:
        first = asyncio.get_running_loop().create_task(
            client.prompt(
                "one", on_notification=lambda method, params: heard.append((method, params))
            )
        )
        await until(lambda: agent.prompts == 1)
        agent.tell("agent_message_chunk", {"text": "a"})
        agent.say({"jsonrpc": "2.0", "method": "bare"})
        agent.answer(agent.heard[0], {"content": "a"})
        agent.tell("agent_message_chunk", {"text": "late"})
        await soon(first)
        assert heard == [("agent_message_chunk", {"text": "a"}), ("bare", None)]
    await agent.stream.aclose()


@aio
async def test_a_malformed_answer_and_an_end_have_names() -> None:
    client, agent = pair({"prompt": garbage})
    async with client:
        with pytest.raises(InvalidAnswer):
            await soon(client.prompt("one"))
        agent.replies["prompt"] = hanging_up
        with pytest.raises(ConnectionEnded):
            await soon(client.prompt("two"))
    assert agent.prompts == 2


@aio
async def test_a_request_of_the_agent_is_refused_as_an_unknown_method() -> None:
    client, agent = pair({"prompt": {"content": ""}})
    async with client:
        await soon(client.prompt("one"))
        agent.say({"jsonrpc": "2.0", "id": 1, "method": "fs/read_text_file", "params": {}})
        await until(lambda: any("error" in message for message in agent.heard))
        assert agent.heard[-1]["error"]["code"] == -32601
    await agent.stream.aclose()


@aio
async def test_a_line_over_the_limit_ends_the_connection() -> None:
    assert MAX_LINE_SIZE == 16 * 1024 * 1024
    client, agent = pair({"prompt": SILENCE}, max_line_size=1000)
    async with client:
        first = asyncio.get_running_loop().create_task(client.prompt("one"))
        await until(lambda: agent.prompts == 1)
        agent.tell("agent_message_chunk", {"text": "x" * 2000})
        with pytest.raises(LineTooLong):
            await soon(first)
    await agent.stream.aclose()
