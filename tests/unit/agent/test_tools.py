"""A reported tool call: what the client hears of it, however it ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dragoman.agent import Agent, Turn
from dragoman.dialects.acp import v1 as acp
from tests.aio import aio
from tests.unit.agent.client_end import ClientEnd, in_session

IMAGE = acp.ImageContent(data="AA==", mime_type="image/png")


def agent_with(handler: Any) -> Agent:
    agent = Agent("tools")
    agent.prompt(handler)
    return agent


def statuses(client: ClientEnd) -> list[str | None]:
    return [update.get("status") for update in client.updates()]


@aio
async def test_a_block_that_ends_completes_the_call() -> None:
    async def handler(turn: Turn) -> None:
        async with turn.tool(
            "Read x",
            kind="read",
            name="read_file",
            locations=["/workspace/x", acp.ToolCallLocation(path="/workspace/y", line=3)],
            raw_input={"path": "x"},
        ) as tool:
            assert tool.id.startswith("call-")

    async with in_session(agent_with(handler)) as (client, session):
        await client.ask(session)
        first, last = client.updates()
        assert first == {
            "sessionUpdate": "tool_call",
            "toolCallId": first["toolCallId"],
            "title": "Read x",
            "name": "read_file",
            "kind": "read",
            "status": "in_progress",
            "locations": [{"path": "/workspace/x"}, {"path": "/workspace/y", "line": 3}],
            "rawInput": {"path": "x"},
        }
        assert last == {
            "sessionUpdate": "tool_call_update",
            "toolCallId": first["toolCallId"],
            "status": "completed",
        }


@aio
async def test_a_block_that_raises_fails_the_call_and_tells_nothing_of_the_reason() -> None:
    async def handler(turn: Turn) -> None:
        with pytest.raises(ZeroDivisionError):
            async with turn.tool("x"):
                raise ZeroDivisionError("the password is swordfish")

    async with in_session(agent_with(handler)) as (client, session):
        assert await client.ask(session) == "end_turn"
        assert statuses(client) == ["in_progress", "failed"]
        assert "swordfish" not in str(client.heard)


@aio
async def test_a_cancelled_block_fails_the_call_before_the_turn_ends() -> None:
    async def handler(turn: Turn) -> None:
        async with turn.tool("x"):
            await asyncio.Event().wait()

    async with in_session(agent_with(handler)) as (client, session):
        prompt = client.prompt(session)
        await client.update()
        client.cancel(session)
        answer = await client.answer_to(prompt)
        assert answer["result"] == {"stopReason": "cancelled"}
        assert statuses(client) == ["in_progress", "failed"]
        assert client.heard[-1] is answer


@aio
async def test_a_call_that_was_ended_in_its_block_is_not_ended_again() -> None:
    async def handler(turn: Turn) -> None:
        async with turn.tool("x") as tool:
            await tool.fail("no such file")
        async with turn.tool("y") as tool:
            await tool.update(status="completed", raw_output=[1])
        with pytest.raises(ZeroDivisionError):
            async with turn.tool("z") as tool:
                await tool.update(status="completed")
                raise ZeroDivisionError

    async with in_session(agent_with(handler)) as (client, session):
        await client.ask(session)
        assert statuses(client) == ["in_progress", "failed"] + ["in_progress", "completed"] * 2
        assert client.updates()[1]["content"] == [
            {"type": "content", "content": {"type": "text", "text": "no such file"}}
        ]
        assert client.updates()[3]["rawOutput"] == [1]


@aio
async def test_an_end_that_cannot_be_sent_does_not_end_the_call() -> None:
    async def handler(turn: Turn) -> None:
        with pytest.raises(TypeError, match="cannot be sent"):
            async with turn.tool("x") as tool:
                await tool.update(status="completed", content=["not an item"])  # type: ignore[list-item]

    async with in_session(agent_with(handler)) as (client, session):
        await client.ask(session)
        assert statuses(client) == ["in_progress", "failed"]


@aio
async def test_content_that_cannot_be_sent_is_not_sent_with_the_next_change_either() -> None:
    async def handler(turn: Turn) -> None:
        async with turn.tool("x") as tool:
            await tool.add("one")
            with pytest.raises(TypeError, match="cannot be sent"):
                await tool.add(2)  # type: ignore[arg-type]
            await tool.fail("no more")

    async with in_session(agent_with(handler)) as (client, session):
        assert await client.ask(session) == "end_turn"
        last = client.updates()[-1]
        assert last["status"] == "failed"
        assert [item["content"]["text"] for item in last["content"]] == ["one", "no more"]


@aio
async def test_content_grows_and_is_sent_whole_each_time() -> None:
    async def handler(turn: Turn) -> None:
        async with turn.tool("x", content=[acp.Diff(path="/x", new_text="a")]) as tool:
            await tool.add("text", IMAGE)
            await tool.add(acp.Terminal(terminal_id="t"))
            await tool.diff("/y", "new", "old")
            await tool.update(content=[])
            await tool.add("again")
            await tool.start()

    async with in_session(agent_with(handler)) as (client, session):
        await client.ask(session)
        kinds = [
            [item["type"] for item in update["content"]] if "content" in update else None
            for update in client.updates()
        ]
        assert kinds == [
            ["diff"],
            ["diff", "content", "content"],
            ["diff", "content", "content", "terminal"],
            ["diff", "content", "content", "terminal", "diff"],
            [],
            ["content"],
            None,
            None,
        ]


@aio
async def test_a_call_is_announced_once_even_if_it_asks_before_its_block() -> None:
    chosen: list[Any] = []

    async def handler(turn: Turn) -> None:
        tool = turn.tool("x", kind="edit", status="pending", tool_call_id="mine", raw_input=1)
        chosen.append(await tool.permission())
        async with tool:
            await tool.start()
        offered = [acp.PermissionOption(option_id="o", name="O", kind="reject_always")]
        chosen.append(await turn.tool("y").permission(offered))

    async with in_session(agent_with(handler)) as (client, session):
        prompt = client.prompt(session)
        asked = await client.asked("session/request_permission")
        assert asked["params"]["toolCall"] == {
            "toolCallId": "mine",
            "title": "x",
            "kind": "edit",
            "status": "pending",
            "rawInput": 1,
        }
        client.answer(asked, {"outcome": {"outcome": "selected", "optionId": "allow-always"}})
        asked = await client.asked("session/request_permission")
        assert [option["optionId"] for option in asked["params"]["options"]] == ["o"]
        client.answer(asked, {"outcome": {"outcome": "selected", "optionId": "o"}})
        await client.answer_to(prompt)
        kinds = [update["sessionUpdate"] for update in client.updates()]
        assert kinds == ["tool_call", "tool_call_update", "tool_call_update", "tool_call"]
    assert [option.option_id for option in chosen] == ["allow-always", "o"]


@aio
async def test_calls_have_ids_of_their_own_in_all_turns() -> None:
    async def handler(turn: Turn) -> None:
        for _ in range(3):
            async with turn.tool("x"):
                pass

    async with in_session(agent_with(handler)) as (client, session):
        await client.ask(session)
        await client.ask(session)
        assert len({update["toolCallId"] for update in client.updates()}) == 6
