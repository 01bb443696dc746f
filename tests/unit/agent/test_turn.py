"""A turn as an agent's author sees it: what it sends, and when it stops sending."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dragoman.agent import Agent, Turn
from dragoman.agent import turn as turn_module
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import UsageError
from tests.aio import aio
from tests.unit.agent.client_end import in_session
from tests.unit.agent.test_settings import DEPTH, LOUD, MODES


def agent_with(handler: Any, **options: Any) -> Agent:
    agent = Agent("turns", **options)
    agent.prompt(handler)
    return agent


@aio
async def test_the_prompt_is_there_as_blocks_and_as_text() -> None:
    seen: list[Any] = []

    async def handler(turn: Turn) -> None:
        seen.extend([turn.text, len(turn.prompt), turn.meta, turn.session.id])
        seen.append([image.mime_type for image in turn.blocks(acp.ImageContent)])

    async with in_session(agent_with(handler, image=True)) as (client, session):
        await client.call(
            "session/prompt",
            {
                "sessionId": session,
                "prompt": [
                    {"type": "text", "text": "look"},
                    {"type": "image", "data": "AA==", "mimeType": "image/png"},
                    {"type": "hologram", "beam": 1},
                    {"type": "text", "text": "here"},
                ],
                "_meta": {"k": 1},
            },
        )
        assert seen == ["look\nhere", 4, {"k": 1}, session, ["image/png"]]


@aio
async def test_every_shorthand_is_the_update_it_stands_for() -> None:
    async def handler(turn: Turn) -> None:
        await turn.say("said", message_id="m")
        await turn.say(acp.ImageContent(data="AA==", mime_type="image/png"))
        await turn.think("thought")
        await turn.echo("echoed")
        entry = acp.PlanEntry(content="b", priority="high", status="completed")
        await turn.plan(["a", entry])
        await turn.usage(1, 2, acp.Cost(amount=0.5, currency="USD"))
        await turn.commands([acp.AvailableCommand(name="c", description="d")])
        await turn.title("title")
        await turn.title(None)
        await turn.notice("notice", severity="error", description="why")
        await turn.update(acp.CompactionUpdate(compaction_id="k", status="in_progress"))

    async with in_session(agent_with(handler)) as (client, session):
        await client.ask(session)
        assert client.updates() == [
            {
                "sessionUpdate": "agent_message_chunk",
                "content": {"type": "text", "text": "said"},
                "messageId": "m",
            },
            {
                "sessionUpdate": "agent_message_chunk",
                "content": {"type": "image", "data": "AA==", "mimeType": "image/png"},
            },
            {
                "sessionUpdate": "agent_thought_chunk",
                "content": {"type": "text", "text": "thought"},
            },
            {"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": "echoed"}},
            {
                "sessionUpdate": "plan",
                "entries": [
                    {"content": "a", "priority": "medium", "status": "pending"},
                    {"content": "b", "priority": "high", "status": "completed"},
                ],
            },
            {
                "sessionUpdate": "usage_update",
                "used": 1,
                "size": 2,
                "cost": {"amount": 0.5, "currency": "USD"},
            },
            {
                "sessionUpdate": "available_commands_update",
                "availableCommands": [{"name": "c", "description": "d"}],
            },
            {"sessionUpdate": "session_info_update", "title": "title"},
            {"sessionUpdate": "session_info_update", "title": None},
            {
                "sessionUpdate": "notice",
                "severity": "error",
                "title": "notice",
                "description": "why",
            },
            {"sessionUpdate": "compaction_update", "compactionId": "k", "status": "in_progress"},
        ]


@aio
async def test_a_notice_is_said_to_a_client_that_shows_none() -> None:
    async def handler(turn: Turn) -> None:
        await turn.notice("Careful")
        await turn.notice("Careful", description="hot")

    async with in_session(agent_with(handler), {}) as (client, session):
        await client.ask(session)
        assert client.texts() == ["Careful\n", "Careful: hot\n"]


@aio
async def test_a_mode_that_the_agent_changes_is_sent_in_both_ways() -> None:
    async def handler(turn: Turn) -> None:
        await turn.mode("plan")
        with pytest.raises(UsageError):
            await turn.mode("yolo")
        assert turn.session.mode == "plan"

    async with in_session(agent_with(handler, modes=MODES)) as (client, session):
        await client.ask(session)
        mode, options = client.updates()
        assert mode == {"sessionUpdate": "current_mode_update", "currentModeId": "plan"}
        assert options["sessionUpdate"] == "config_option_update"
        assert [o["currentValue"] for o in options["configOptions"]] == ["plan"]


@aio
async def test_an_option_that_the_agent_changes_is_sent_with_all_the_others() -> None:
    async def handler(turn: Turn) -> None:
        await turn.option("loud", True)
        with pytest.raises(UsageError):
            await turn.option("loud", "very")

    agent = agent_with(handler, options=[DEPTH, LOUD])
    async with in_session(agent) as (client, session):
        await client.ask(session)
        (update,) = client.updates()
        assert [o["currentValue"] for o in update["configOptions"]] == ["flat", True]


@aio
async def test_nothing_can_be_said_after_the_end_of_the_turn() -> None:
    kept: list[Turn] = []

    async def handler(turn: Turn) -> None:
        kept.append(turn)
        await turn.say("in time")

    async with in_session(agent_with(handler)) as (client, session):
        await client.ask(session)
        with pytest.raises(UsageError, match="over"):
            await kept[0].say("too late")
        await client.ask(session)
        assert client.texts() == ["in time", "in time"]


@aio
async def test_a_handler_that_talks_without_pause_lets_a_cancel_in() -> None:
    async def handler(turn: Turn) -> None:
        while True:
            await turn.say("x")

    async with in_session(agent_with(handler)) as (client, session):
        prompt = client.prompt(session)
        await client.update()
        client.cancel(session)
        assert (await client.answer_to(prompt))["result"] == {"stopReason": "cancelled"}
        assert len(client.texts()) >= turn_module.UPDATES_PER_BREATH


@aio
async def test_many_updates_arrive_in_order_and_before_the_answer() -> None:
    many = 10 * turn_module.UPDATES_PER_BREATH + 3

    async def handler(turn: Turn) -> None:
        for number in range(many):
            await turn.say(str(number))

    async with in_session(agent_with(handler)) as (client, session):
        prompt = client.prompt(session)
        answer = await client.answer_to(prompt)
        assert client.heard[-1] is answer
        assert client.texts() == [str(number) for number in range(many)]


@aio
async def test_tasks_of_one_handler_may_talk_at_once() -> None:
    async def handler(turn: Turn) -> None:
        async def talk(name: str) -> None:
            for number in range(20):
                await turn.say(f"{name}{number}")
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as tasks:
            for name in "abc":
                tasks.create_task(talk(name))

    async with in_session(agent_with(handler)) as (client, session):
        await client.ask(session)
        for name in "abc":
            said = [text for text in client.texts() if text.startswith(name)]
            assert said == [f"{name}{number}" for number in range(20)]


@aio
async def test_the_tokens_of_a_turn_are_sent_with_its_end() -> None:
    async def handler(turn: Turn) -> Any:
        turn.tokens(1, 1)
        turn.tokens(1234, 5678)
        return "max_tokens" if turn.text == "long" else None

    used = {"totalTokens": 6912, "inputTokens": 1234, "outputTokens": 5678}
    async with in_session(agent_with(handler)) as (client, session):
        for text, stop in (("hi", "end_turn"), ("long", "max_tokens")):
            body = {"sessionId": session, "prompt": [{"type": "text", "text": text}]}
            answer = await client.call("session/prompt", body)
            assert answer == {"stopReason": stop, "usage": used}


@aio
async def test_an_answer_with_its_own_usage_keeps_it() -> None:
    own = {"totalTokens": 3, "inputTokens": 1, "outputTokens": 2}

    async def handler(turn: Turn) -> Any:
        turn.tokens(1234, 5678)
        return acp.PromptResponse(stop_reason="end_turn", extra={"usage": own})

    async with in_session(agent_with(handler)) as (client, session):
        body = {"sessionId": session, "prompt": [{"type": "text", "text": "hi"}]}
        assert (await client.call("session/prompt", body))["usage"] == own


@pytest.mark.parametrize("tokens", [(1.5, 2), ("1", 2), (True, 2), (1, -2), (1, None)])
@aio
async def test_what_is_not_a_number_of_tokens_is_refused(tokens: tuple[Any, Any]) -> None:
    refused: list[Exception] = []

    async def handler(turn: Turn) -> None:
        try:
            turn.tokens(*tokens)
        except (TypeError, ValueError) as error:
            refused.append(error)

    async with in_session(agent_with(handler)) as (client, session):
        body = {"sessionId": session, "prompt": [{"type": "text", "text": "hi"}]}
        assert await client.call("session/prompt", body) == {"stopReason": "end_turn"}
        assert "the tokens of a turn" in str(refused[0])


@aio
async def test_a_prompt_handler_sees_the_slash_command_of_an_agent_without_commands() -> None:
    seen: list[Any] = []

    async def handler(turn: Turn) -> None:
        seen.append(turn.command and (turn.command.name, turn.command.input))

    async with in_session(agent_with(handler)) as (client, session):
        for text in ("/search routers", "/fix", "no command", "/usr/bin is one"):
            body = {"sessionId": session, "prompt": [{"type": "text", "text": text}]}
            await client.call("session/prompt", body)
    assert seen == [("search", "routers"), ("fix", ""), None, None]
