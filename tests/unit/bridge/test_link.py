"""One client of a bridge: what it is told, in which order, and what it is spared.

With programs on both sides it is in tests/integration/test_bridge_acp.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.agent import Agent, Turn
from dragoman.client.permissions import Answer, Question, approve_all
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import RemoteError
from dragoman.events import model
from tests.aio import aio
from tests.unit.bridge.between import CONNECTIONS, bridged, plain
from tests.unit.rpc.other_side import soon, turns

OPTION = acp.SessionConfigBoolean(id="fast", name="Fast", current_value=False)


def talker() -> Agent:
    agent = Agent("talker", options=[OPTION])

    @agent.prompt
    async def answer(turn: Turn) -> None:
        await turn.notice("Look", description="there")
        await turn.update(acp.CompactionUpdate(compaction_id="c", status="completed"))
        await turn.option("fast", True)
        await turn.say("done")

    return agent


async def updates_of(capabilities: dict[str, Any]) -> list[Any]:
    async with plain(talker(), capabilities) as client:
        opened, _ = await client.call("session/new", {"cwd": "/w", "mcpServers": []})
        session = opened["result"]["sessionId"]
        prompt = {"sessionId": session, "prompt": [{"type": "text", "text": "x"}]}
        answer, before = await client.call("session/prompt", prompt)
        assert answer["result"] == {"stopReason": "end_turn"}
        return [message["params"]["update"] for message in before]


@aio
async def test_a_client_is_told_only_what_it_said_it_knows() -> None:
    updates = await updates_of({})
    assert [update["sessionUpdate"] for update in updates] == [
        "agent_thought_chunk",
        "agent_message_chunk",
    ]
    assert updates[0]["content"]["text"] == "Look: there\n"


@aio
async def test_a_client_that_knows_more_is_told_more() -> None:
    knows: dict[str, Any] = {"notices": {}, "compaction": {}, "configOptions": {"boolean": {}}}
    updates = await updates_of({"session": knows})
    assert [update["sessionUpdate"] for update in updates] == [
        "notice",
        "compaction_update",
        "config_option_update",
        "agent_message_chunk",
    ]


@aio
async def test_a_question_comes_behind_the_tool_call_it_is_about() -> None:
    agent = Agent("asker")

    @agent.prompt
    async def answer(turn: Turn) -> None:
        for number in range(300):
            await turn.say(f"{number} ")
        async with turn.tool("Dig", kind="execute", tool_call_id="t") as tool:
            await tool.permission()

    seen: list[str] = []

    def permit(question: Question) -> Answer:
        seen.append("asked")
        return Answer.ALLOW_ONCE

    async with bridged(agent, permit) as (near, _), near.session() as session:
        near.on_event = lambda event: (
            seen.append("told") if isinstance(event, model.ToolChanged) else None
        )
        async with session.prompt("x") as turn:
            assert (await soon(turn.wait())).ok
    assert seen.index("told") < seen.index("asked")


@aio
async def test_what_happens_after_a_turn_is_told_after_its_answer() -> None:
    agent = Agent("late")

    @agent.prompt
    async def answer(turn: Turn) -> None:
        late = acp.SessionNotification(
            session_id=turn.session.id, update=acp.UsageUpdate(used=1, size=2)
        )
        connection = CONNECTIONS["late"]
        connection.tasks.start(_after(connection, late), "late")
        await turn.say("done")

    async def _after(connection: Any, message: acp.SessionNotification) -> None:
        await turns(30)
        await connection.notify("session/update", message)

    async with plain(agent, {}) as client:
        opened, _ = await client.call("session/new", {"cwd": "/w", "mcpServers": []})
        prompt = {"sessionId": opened["result"]["sessionId"], "prompt": []}
        _, before = await client.call("session/prompt", prompt)
        assert [m["params"]["update"]["sessionUpdate"] for m in before] == ["agent_message_chunk"]
        late = await client.next()
        assert late["params"]["update"]["sessionUpdate"] == "usage_update"


@aio
async def test_commands_that_are_told_right_after_the_opening_reach_the_client() -> None:
    agent = Agent("commander")

    @agent.prompt
    async def answer(turn: Turn) -> None:
        pass

    @agent.command("go", "Go")
    async def go(turn: Turn, text: str) -> None:
        await turn.say(f"gone {text}")

    async with plain(agent, {}) as client:
        opened, before = await client.call("session/new", {"cwd": "/w", "mcpServers": []})
        assert before == []
        commands = await client.next()
        assert commands["params"]["update"]["availableCommands"][0]["name"] == "go"
        session = opened["result"]["sessionId"]
        assert commands["params"]["sessionId"] == session
        prompt = {"sessionId": session, "prompt": [{"type": "text", "text": "/go far"}]}
        _, before = await client.call("session/prompt", prompt)
        assert before[0]["params"]["update"]["content"]["text"] == "gone far"


@aio
async def test_a_peer_that_has_gone_ends_the_link_after_the_answers() -> None:
    agent = Agent("dying")

    @agent.prompt
    async def answer(turn: Turn) -> None:
        await turn.say("last words")
        connection = CONNECTIONS["dying"]
        connection.tasks.start(connection.aclose(), "close")
        await turns(1000)

    async with bridged(agent) as (near, _), near.session() as session:
        result = await soon(session.ask("x"))
        assert result.text == "last words"
        assert isinstance(result.error, RemoteError)
        await soon(near.client.connection.wait_ended())


@aio
async def test_a_refusal_of_the_peer_is_the_clients_with_its_code_and_data() -> None:
    agent = Agent("strict")

    @agent.prompt
    async def answer(turn: Turn) -> None:
        raise RemoteError(4711, "no", {"why": "so"})

    @agent.new_session
    async def new(session: Any) -> None:
        if session.cwd.name == "bad":
            raise RemoteError(4712, "not there")

    async with bridged(agent, approve_all) as (near, _):
        with pytest.raises(RemoteError) as caught:
            async with near.session(cwd="/bad"):
                pytest.fail("it was refused")
        assert (caught.value.code, caught.value.message) == (4712, "not there")
        async with near.session() as session:
            result = await soon(session.ask("x"))
    assert isinstance(result.error, RemoteError)
    assert (result.error.code, result.error.data) == (4711, {"why": "so"})
