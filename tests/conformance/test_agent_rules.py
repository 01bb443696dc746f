"""Rules for dragoman's agent kit that the checks cannot observe.

The manifest lists these tests with the requirements that they prove.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dragoman.agent import Agent, Turn
from dragoman.client.acp import use_agent
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import DragomanError, Unsupported
from dragoman.rpc.tasks import TaskOwner
from dragoman.testing.conformance.conversation import Conversation, Message, refuse
from dragoman.transports import connect_websocket, memory_pair
from tests.aio import aio
from tests.conformance.places import PATIENCE

EVERYTHING = {"terminal": True, "elicitation": {"form": {}, "url": {}}}


@asynccontextmanager
async def serving(agent: Agent, respond: Callable[[Message], Message | None]) -> AsyncIterator[Any]:
    """A raw conversation with an in-memory agent. `respond` answers the agent's requests."""
    near, far = memory_pair()
    tasks = TaskOwner("serve")
    tasks.start(agent.serve(far), "serve")
    conversation = Conversation(near, timeout=PATIENCE, respond=respond)
    try:
        yield conversation
    finally:
        await conversation.aclose()
        await tasks.aclose()


async def turn_of(
    work: Callable[[Turn], Awaitable[Any]],
    *,
    respond: Callable[[Message], Message | None] = lambda request: refuse(),
    capabilities: Message | None = None,
) -> Conversation:
    """The conversation after one turn that runs `work`. Raises what `work` raises."""
    agent = Agent("ruled")
    failures: list[BaseException] = []

    @agent.prompt
    async def answer(turn: Turn) -> None:
        try:
            await work(turn)
        except (AssertionError, DragomanError) as error:
            failures.append(error)

    async with serving(agent, respond) as conversation:
        hello = {"protocolVersion": 1, "clientCapabilities": capabilities or {}}
        (await conversation.ask("initialize", hello)).result()
        opened = await conversation.ask("session/new", {"cwd": "/somewhere", "mcpServers": []})
        params = {
            "sessionId": opened.fields()["sessionId"],
            "prompt": [{"type": "text", "text": "go"}],
        }
        (await conversation.ask("session/prompt", params)).result()
    if failures:
        raise failures[0]
    assert isinstance(conversation, Conversation)
    return conversation


def sent(conversation: Conversation, kind: str) -> list[Message]:
    found = [message["params"]["update"] for message in conversation.heard("session/update")]
    return [update for update in found if update["sessionUpdate"] == kind]


@aio
async def test_a_session_works_in_its_own_folder_and_not_where_the_agent_was_started(
    tmp_path: Path,
) -> None:
    agent = Agent("folders")
    seen: list[Path] = []

    @agent.prompt
    async def answer(turn: Turn) -> None:
        seen.extend(turn.session.roots)

    tasks = TaskOwner("serve")
    near, far = memory_pair()
    tasks.start(agent.serve(far), "serve")
    async with use_agent(near) as client:
        await (await client.new_session(tmp_path)).ask("where?")
    await tasks.aclose()
    assert seen == [tmp_path]
    assert Path(os.getcwd()) != tmp_path


@aio
async def test_a_websocket_carries_the_same_conversation(tmp_path: Path) -> None:
    agent = Agent("remote")

    @agent.prompt
    async def answer(turn: Turn) -> str:
        await turn.say("over ")
        await turn.say("the air")
        return "max_tokens"

    async def converse(client: Any) -> tuple[str, str]:
        session = await client.new_session(tmp_path)
        text = (await session.ask("how?")).text
        async with session.prompt("again") as turn:
            return text, (await turn.wait()).stop

    tasks = TaskOwner("serve")
    near, far = memory_pair()
    tasks.start(agent.serve(far), "serve")
    async with use_agent(near) as client:
        direct = await converse(client)
    await tasks.aclose()
    listener = await agent.serve_websocket("127.0.0.1", 0)
    try:
        async with use_agent(await connect_websocket(listener.address)) as client:
            assert await converse(client) == direct == ("over the air", "max_tokens")
    finally:
        await listener.aclose()


@aio
async def test_a_permitted_tool_call_is_marked_as_in_progress_when_it_starts() -> None:
    async def work(turn: Turn) -> None:
        async with turn.tool("Delete all", kind="delete", status="pending") as tool:
            assert await turn.ask_permission(tool)
            await tool.start()

    def allow(request: Message) -> Message:
        chosen = next(o for o in request["params"]["options"] if o["kind"] == "allow_once")
        return {"result": {"outcome": {"outcome": "selected", "optionId": chosen["optionId"]}}}

    conversation = await turn_of(work, respond=allow)
    assert sent(conversation, "tool_call")[0]["status"] == "pending"
    statuses = [update["status"] for update in sent(conversation, "tool_call_update")]
    assert statuses == ["in_progress", "completed"]


@aio
async def test_a_plan_is_sent_complete_each_time() -> None:
    async def work(turn: Turn) -> None:
        entries = [
            acp.PlanEntry(content=text, priority="high", status="pending") for text in ("a", "b")
        ]
        await turn.plan(entries)
        entries[0] = acp.PlanEntry(content="a", priority="high", status="completed")
        await turn.plan(entries)

    plans = sent(await turn_of(work), "plan")
    assert [[entry["content"] for entry in plan["entries"]] for plan in plans] == [["a", "b"]] * 2
    assert [entry["status"] for entry in plans[1]["entries"]] == ["completed", "pending"]


@aio
async def test_a_terminal_is_released_even_if_its_user_fails() -> None:
    async def work(turn: Turn) -> None:
        with pytest.raises(ZeroDivisionError):
            async with await turn.terminal("sleep", ["600"]) as terminal:
                await terminal.kill()
                raise ZeroDivisionError

    def run(request: Message) -> Message:
        return {"result": {"terminalId": "t"} if request["method"] == "terminal/create" else {}}

    conversation = await turn_of(work, respond=run, capabilities=EVERYTHING)
    assert [m["params"]["terminalId"] for m in conversation.heard("terminal/release")] == ["t"]


SCHEMA = acp.ElicitationSchema(properties={})


@aio
async def test_questions_are_not_asked_of_a_client_that_does_not_offer_them() -> None:
    async def work(turn: Turn) -> None:
        with pytest.raises(Unsupported):
            await turn.client.ask_form("Which?", SCHEMA)
        with pytest.raises(Unsupported):
            await turn.client.ask_url("Look", "https://example.invalid")
        # An agent can check first and do something else.
        assert not turn.client.can("elicitation.form")
        await turn.say("I choose blue.")

    conversation = await turn_of(work, capabilities={"elicitation": {}})
    assert conversation.heard("elicitation/create") == []
    assert sent(conversation, "agent_message_chunk")


@pytest.mark.parametrize(
    "answer",
    [
        {"result": {"action": "decline"}},
        {"result": {"action": "cancel"}},
        {"result": {"action": "of_tomorrow", "content": {"sure": True}}},
        {"result": {}},
        refuse(-32603),
    ],
    ids=["declined", "cancelled", "unknown", "empty", "failed"],
)
@aio
async def test_a_question_that_is_not_accepted_is_not_a_yes(answer: Message) -> None:
    async def work(turn: Turn) -> None:
        try:
            response = await turn.client.ask_form("Sure?", SCHEMA)
        except DragomanError:
            return
        assert not isinstance(response, acp.ElicitationAccepted)

    await turn_of(work, respond=lambda request: answer, capabilities=EVERYTHING)


@aio
async def test_questions_with_a_url_have_ids_of_their_own() -> None:
    async def work(turn: Turn) -> None:
        for _ in range(3):
            await turn.client.ask_url("Look", "https://example.invalid")
        await turn.client.ask_url("Look", "https://example.invalid", elicitation_id="mine")
        await turn.client.elicitation_done("mine")

    conversation = await turn_of(
        work, respond=lambda request: {"result": {"action": "accept"}}, capabilities=EVERYTHING
    )
    asked = [m["params"]["elicitationId"] for m in conversation.heard("elicitation/create")]
    assert len(set(asked)) == len(asked) == 4
    done = [m["params"]["elicitationId"] for m in conversation.heard("elicitation/complete")]
    assert done == ["mine"] == asked[-1:]
