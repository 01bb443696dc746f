"""An agent that serves a client of the oneshot dialect."""

from __future__ import annotations

import asyncio

from dragoman.agent import Agent, Session, Turn
from tests.aio import aio
from tests.fixtures.documents import load
from tests.unit.agent.speech.client_of_document import served
from tests.unit.rpc.other_side import until

EXAMPLES = load("oneshot")


@aio
async def test_the_documents_conversation_is_answered() -> None:
    async with served() as client:
        hello = await client.play(EXAMPLES["initialize"])
        assert hello["protocolVersion"] == "2025-06-18"
        assert hello["serverCapabilities"] == {"name": "my-coding-agent", "version": "1.0.0"}
        answer = await client.play(EXAMPLES["prompt"])
        said = "You said: Research best React state libs"
        assert answer == {
            "content": said,
            "finish_reason": "stop",
            "usage": {"input_tokens": 1234, "output_tokens": 5678},
        }
        assert client.told == [("agent_message_chunk", {"text": said})]


@aio
async def test_tools_and_changes_are_reported_in_the_documents_words() -> None:
    async with served() as client:
        await client.play(EXAMPLES["initialize"])
        answer = await client.call("prompt", {"text": "tools"})
        assert answer["content"] == "edited"
        assert [method for method, _ in client.told] == [
            "tool_call",
            "file_change",
            "agent_message_chunk",
        ]
        assert client.told[0][1] == {"tool": "Edit c.py", "input": {"path": "c"}}
        assert "-pass\n+return\n" in client.told[1][1]["diff"]


@aio
async def test_a_prompt_without_a_handshake_is_answered_and_the_session_is_one() -> None:
    agent = Agent("counter")
    sessions: list[str] = []

    @agent.new_session
    async def new(session: Session) -> None:
        sessions.append(session.id)
        await asyncio.sleep(0)

    @agent.prompt
    async def answer(turn: Turn) -> None:
        turn.session.state.count = getattr(turn.session.state, "count", 0) + 1
        await turn.say(str(turn.session.state.count))

    async with served(agent) as client:
        assert (await client.call("prompt", {"text": "a"}))["content"] == "1"
        assert (await client.call("prompt", {"text": "b"}))["content"] == "2"
    assert len(sessions) == 1


@aio
async def test_a_second_prompt_meanwhile_is_refused_and_a_failure_is_an_error() -> None:
    async with served() as client:
        await client.play(EXAMPLES["initialize"])
        client.send("prompt", {"text": "wait"})
        await until(lambda: bool(client.told))
        assert (await client.refused("prompt", {"text": "x"}))["code"] == -32600
    async with served() as client:
        await client.play(EXAMPLES["initialize"])
        assert (await client.refused("prompt", {"text": "fail"}))["code"] == -32603
        assert (await client.refused("prompt", {"text": "refuse"}))["code"] == -32000
        assert (await client.call("prompt", {"text": "long"}))["finish_reason"] == "length"
