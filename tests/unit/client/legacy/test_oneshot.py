"""The small typed client of the oneshot dialect."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.client.legacy.oneshot import OneshotClient
from dragoman.dialects.legacy.oneshot import Usage
from dragoman.errors import ConnectionClosed, ProtocolMismatch, RemoteError
from dragoman.transports.memory import memory_pair
from tests.aio import aio
from tests.fixtures.documents import load
from tests.unit.client.legacy.far_end import HostAgent, refusing
from tests.unit.rpc.other_side import soon

EXAMPLES = load("oneshot")


def pair(replies: dict[str, Any]) -> tuple[OneshotClient, HostAgent]:
    ours, theirs = memory_pair()
    agent = HostAgent(theirs, {"initialize": EXAMPLES["initialized"].body, **replies})
    theirs.start(agent)
    return OneshotClient(ours), agent


def streaming(agent: HostAgent, request: Any) -> None:
    agent.say(*(EXAMPLES[name].message for name in ("chunk", "tool", "file")))
    agent.answer(request, EXAMPLES["answer"].body)


@aio
async def test_the_documents_conversation_is_held_as_written() -> None:
    client, agent = pair({"prompt": streaming})
    heard: list[tuple[str, Any]] = []
    async with client:
        greeted = await soon(client.initialize())
        answer = await soon(
            client.prompt(
                "Research best React state libs",
                on_notification=lambda method, params: heard.append((method, params)),
            )
        )
    assert greeted.protocol_version == "2025-06-18"
    assert (answer.content, answer.finish_reason) == ("...", "stop")
    assert answer.usage == Usage(1234, 5678)
    assert heard == [(e.method, e.body) for e in map(EXAMPLES.get, ("chunk", "tool", "file")) if e]
    sent = [{k: m[k] for k in ("jsonrpc", "method", "params")} for m in agent.heard]
    for message, name in zip(sent, ("initialize", "prompt"), strict=True):
        assert {**message, "id": EXAMPLES[name].message["id"]} == EXAMPLES[name].message
    await agent.stream.aclose()


@aio
async def test_another_version_is_a_mismatch_and_ends_the_connection() -> None:
    client, agent = pair({"initialize": {"protocolVersion": "2024-11-05"}})
    with pytest.raises(ProtocolMismatch):
        await soon(client.initialize())
    with pytest.raises(ConnectionClosed):
        await client.prompt("x")
    assert agent.prompts == 0
    await agent.stream.aclose()


@aio
async def test_an_error_is_raised_and_the_prompt_is_not_sent_again() -> None:
    client, agent = pair({"prompt": refusing(-32603, "broken")})
    async with client:
        await soon(client.initialize())
        with pytest.raises(RemoteError):
            await soon(client.prompt("x"))
    assert agent.prompts == 1
    await agent.stream.aclose()
