"""One client of a bridge: what it is told, in which order, and what it is spared.

With programs on both sides it is in tests/integration/test_bridge_acp.py.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman.agent import Agent, Turn
from dragoman.client.acp import session
from dragoman.client.permissions import Answer, Question, approve_all
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import RemoteError
from dragoman.events import model
from dragoman.gateway.acp_filter import RAW_KEY
from dragoman.transports.base import HIGH_WATER_SIZE
from tests.aio import aio
from tests.unit.client.acp.agent_side import OPTIONS, Refusal, chunk
from tests.unit.gateway.between import CONNECTIONS, bridged, plain
from tests.unit.gateway.both_sides import scene
from tests.unit.rpc.other_side import soon, turns, until

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
async def test_a_client_is_sent_only_what_it_supports() -> None:
    updates = await updates_of({})
    assert [update["sessionUpdate"] for update in updates] == [
        "agent_thought_chunk",
        "agent_message_chunk",
    ]
    assert updates[0]["content"]["text"] == "Look: there\n"


@pytest.mark.parametrize("way", ["cancelled", "left"])
@aio
async def test_a_session_that_opens_after_nothing_needs_it_is_closed_at_the_peer(way: str) -> None:
    events: list[model.Event] = []
    # With an observer, the gateway translates and forwards nothing unchanged.
    async with scene(on_event=events.append) as here:
        del here.agent.replies["session/new"]
        client = await here.client()
        asking = client.begin("session/new", {"cwd": "/w", "mcpServers": []})
        opening = await here.agent.expect("session/new")
        if way == "cancelled":
            cancel = {"method": "$/cancel_request", "params": {"requestId": asking}}
            client.say({"jsonrpc": "2.0", **cancel})
            assert (await client.answered(asking))["error"]["code"] == -32800
        else:
            await client.stream.aclose()
            await client.served
        await here.agent.expect("$/cancel_request")
        here.agent.answer(opening, {"sessionId": "late"})
        await until(lambda: here.agent.told("session/close") == [{"sessionId": "late"}])
        assert not here.peer.client.conversations
    assert not any(isinstance(event, model.SessionOpened) for event in events)


@aio
async def test_the_sessions_of_a_client_that_leaves_are_closed_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session, "CLOSE_TIMEOUT", 600.0)
    async with scene(on_event=lambda event: None, replies={"session/resume": {}}) as here:
        del here.agent.replies["session/close"]
        client = await here.client()
        for name in ("s1", "s2"):
            opening = {"cwd": "/w", "mcpServers": []}
            await client.call("session/resume", {"sessionId": name, **opening})
        await client.stream.aclose()
        closing = [await here.agent.expect("session/close") for _ in range(2)]
        for each in closing:
            here.agent.answer(each, {})
        await client.served


@aio
async def test_a_client_that_supports_more_is_sent_more() -> None:
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
async def test_questions_that_come_together_each_come_behind_what_was_said_before_them() -> None:
    agent = Agent("asker")

    @agent.prompt
    async def answer(turn: Turn) -> None:
        async def one(number: int) -> None:
            await turn.say(f"{number}")
            await turn.ask_permission(f"{number}")

        # The first is asked alone, and the others all at once.
        await one(0)
        async with asyncio.TaskGroup() as group:
            for number in range(1, 20):
                group.create_task(one(number))
        await one(20)

    seen: list[str] = []

    async def permit(question: Question) -> Answer:
        seen.append(f"asked {question.title}")
        await turns(1)
        return Answer.ALLOW_ONCE

    def told(event: model.Event) -> None:
        if isinstance(event, model.MessageDelta):
            seen.append(f"told {event.text}")

    async with bridged(agent, permit) as (near, _), near.session() as session:
        near.on_event = told
        async with session.prompt("x") as turn:
            assert (await soon(turn.wait())).ok
    assert len(seen) == 42
    for number in range(21):
        assert seen.index(f"told {number}") < seen.index(f"asked {number}")


@aio
async def test_what_happens_after_a_turn_is_reported_after_its_answer() -> None:
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
async def test_commands_that_are_reported_right_after_the_opening_reach_the_client() -> None:
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


# -- both sides played message by message

END = {"stopReason": "end_turn"}
OPENING = {"cwd": "/workspace", "mcpServers": []}


@aio
async def test_the_client_is_not_offered_what_the_peer_cannot_do() -> None:
    async with scene(capabilities={}) as here:
        client = await here.client()
        offered = client.heard[0]["result"]["agentCapabilities"]
        assert not offered.get("loadSession")
        assert not {"list", "delete", "resume"} & set(offered.get("sessionCapabilities", {}))
        error = await client.refused("session/load", {"sessionId": "s1", **OPENING})
        assert error["code"] == -32601


@aio
async def test_the_sessions_of_the_peer_are_listed() -> None:
    sessions = [{"sessionId": "a", "cwd": "/w", "title": "A", "updatedAt": "2026-01-01T00:00:00Z"}]
    async with scene(replies={"session/list": {"sessions": sessions}}) as here:
        client = await here.client()
        answer = await client.call("session/list", {"cwd": "/w"})
        assert answer["sessions"] == sessions
        assert here.agent.told("session/list")[0]["cwd"] == "/w"


@aio
async def test_an_update_of_an_acp_agent_is_passed_on_with_all_it_has() -> None:
    update = {**chunk("hi"), "_meta": {"vendor": {"x": [1, None]}}, "novelty": 3}
    async with scene() as here:
        client = await here.client()
        await client.open()
        here.agent.update(update)
        assert await client.told("session/update") == {"sessionId": "s1", "update": update}


@aio
async def test_a_line_that_is_several_events_is_passed_on_once() -> None:
    update = {
        "sessionUpdate": "tool_call",
        "toolCallId": "x",
        "title": "edit",
        "content": [{"type": "diff", "path": "/w/a", "newText": "y"}],
    }
    async with scene() as here:
        client = await here.client()
        await client.open()
        prompting = client.prompt("go")
        prompt = await here.agent.expect("session/prompt")
        here.agent.update(update)
        here.agent.answer(prompt, END)
        assert (await client.told("session/update"))["update"] == update
        await client.answered(prompting)


@aio
async def test_an_answer_of_an_acp_agent_is_passed_on_with_its_unknown_fields() -> None:
    answer = {"stopReason": "max_tokens", "usage": {"totalTokens": 4}, "_meta": {"a": 1}}
    async with scene() as here:
        client = await here.client()
        await client.open()
        prompting = client.prompt("go")
        here.agent.answer(await here.agent.expect("session/prompt"), answer)
        assert (await client.answered(prompting))["result"] == answer


@aio
async def test_last_words_after_a_cancel_come_before_the_answer() -> None:
    async with scene() as here:
        client = await here.client()
        await client.open()
        prompting = client.prompt("go")
        prompt = await here.agent.expect("session/prompt")
        here.agent.update(chunk("one"))
        await client.told("session/update")
        client.say({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "s1"}})
        await here.agent.expect("session/cancel")
        here.agent.say(
            here.agent.updating(chunk("two")),
            {"jsonrpc": "2.0", "id": prompt["id"], "result": {"stopReason": "cancelled"}},
        )
        assert (await client.told("session/update"))["update"]["content"]["text"] == "two"
        assert (await client.answered(prompting))["result"]["stopReason"] == "cancelled"


@pytest.mark.parametrize("raw", [False, True], ids=["forwarded", "translated"])
@aio
async def test_a_cancel_loses_no_update_of_a_client_that_reads_slowly(raw: bool) -> None:
    # With an observer of events, the messages are not just passed through.
    async with scene(on_event=lambda event: None, raw=raw) as here:
        client = await here.client()
        await client.open()
        prompting = client.prompt("go")
        prompt = await here.agent.expect("session/prompt")
        client.stream.pause_reading()
        sent = 0
        size = HIGH_WATER_SIZE // 4
        for _ in range(20):
            here.agent.update(chunk(f"{sent} {'x' * size}"))
            sent += 1
            await turns()
        client.say({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "s1"}})
        await here.agent.expect("session/cancel")
        here.agent.say(
            {"jsonrpc": "2.0", "id": prompt["id"], "result": {"stopReason": "cancelled"}}
        )
        await turns()
        client.stream.resume_reading()
        texts = [await client.told("session/update") for _ in range(sent)]
        numbers = [int(each["update"]["content"]["text"].split()[0]) for each in texts]
        assert numbers == list(range(sent))
        assert (await client.answered(prompting))["result"]["stopReason"] == "cancelled"


@pytest.mark.parametrize("raw", [False, True], ids=["forwarded", "translated"])
@aio
async def test_events_before_a_turn_reach_a_slow_client_before_the_turn(raw: bool) -> None:
    # With an observer of events, the messages are not just passed through.
    async with scene(on_event=lambda event: None, raw=raw) as here:
        client = await here.client()
        await client.open()
        client.stream.pause_reading()
        for number in range(5):
            here.agent.update(chunk(f"{number} {'x' * (HIGH_WATER_SIZE // 2)}"))
            await turns()
        prompting = client.prompt("go")
        prompt = await here.agent.expect("session/prompt")
        here.agent.update(chunk("5 in the turn"), chunk("6 in the turn"))
        here.agent.answer(prompt, END)
        await turns()
        client.stream.resume_reading()
        texts = [await client.told("session/update") for _ in range(7)]
        numbers = [int(each["update"]["content"]["text"].split()[0]) for each in texts]
        assert numbers == list(range(7))
        await client.answered(prompting)


@pytest.mark.parametrize("raw", [False, True], ids=["forwarded", "translated"])
@aio
async def test_events_after_a_turn_come_after_the_response_to_its_prompt(raw: bool) -> None:
    # With an observer of events, the messages are not just passed through.
    async with scene(on_event=lambda event: None, raw=raw) as here:
        client = await here.client()
        await client.open()
        for _ in range(2):
            prompting = client.prompt("go")
            prompt = await here.agent.expect("session/prompt")
            here.agent.say(
                here.agent.updating(chunk("in the turn")),
                {"jsonrpc": "2.0", "id": prompt["id"], "result": END},
                here.agent.updating(chunk("after it")),
            )
            assert (await client.told("session/update"))["update"] == chunk("in the turn")
            await client.answered(prompting)
            assert (await client.told("session/update"))["update"] == chunk("after it")


@pytest.mark.parametrize("kind", ["chunk", "notice"], ids=["forwarded", "translated"])
@aio
async def test_an_update_too_long_for_the_client_is_left_out_and_the_turn_ends_as_it_ended(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    text = "x" * 3000
    notice = {"sessionUpdate": "notice", "severity": "info", "title": text}
    # With an observer of events, the messages are not just passed through.
    async with scene(on_event=lambda event: None) as here:
        here.bridge.settings = replace(here.bridge.settings, max_line_size=1500)
        client = await here.client()
        await client.open()
        prompting = client.prompt("go")
        prompt = await here.agent.expect("session/prompt")
        too_long = chunk(text) if kind == "chunk" else notice
        here.agent.update(chunk("one"), too_long, chunk("two"))
        here.agent.answer(prompt, {"stopReason": "end_turn"})
        told = [(await client.told("session/update"))["update"] for _ in range(3)]
        assert (told[0], told[2]) == (chunk("one"), chunk("two"))
        assert "was left out: the message is 3" in told[1]["content"]["text"]
        assert (await client.answered(prompting))["result"] == {"stopReason": "end_turn"}
    assert "an update of session s1 was left out" in caplog.text


@aio
async def test_a_translated_update_shows_the_peers_own_message_if_that_is_wanted() -> None:
    notice = {"sessionUpdate": "notice", "severity": "info", "title": "T"}
    async with scene(raw=True) as here:
        client = await here.client()
        await client.open()
        here.agent.update(notice)
        update = (await client.told("session/update"))["update"]
        assert update["_meta"][RAW_KEY]["params"]["update"] == notice


@aio
async def test_a_history_is_replayed_before_the_session_is_loaded() -> None:
    async with scene() as here:
        client = await here.client()
        loading = client.begin("session/load", {"sessionId": "old", **OPENING})
        asked = await here.agent.expect("session/load")
        here.agent.update(chunk("long ago"), session_id="old")
        here.agent.answer(asked, {})
        replayed = await client.told("session/update")
        assert (replayed["sessionId"], replayed["update"]) == ("old", chunk("long ago"))
        assert "result" in await client.answered(loading)


@aio
async def test_a_session_whose_load_is_cancelled_is_closed_and_can_be_loaded_again() -> None:
    # With an observer, the gateway translates and forwards nothing unchanged.
    async with scene(on_event=lambda event: None) as here:
        client = await here.client()
        loading = client.begin("session/load", {"sessionId": "old", **OPENING})
        asked = await here.agent.expect("session/load")
        client.stream.pause_reading()
        for _ in range(4):
            here.agent.update(chunk("x" * HIGH_WATER_SIZE), session_id="old")
            await turns()
        here.agent.answer(asked, {})
        await turns()
        client.say(
            {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": loading}}
        )
        await until(lambda: here.agent.told("session/close") == [{"sessionId": "old"}])
        client.stream.resume_reading()
        while (message := await client.next()).get("id") != loading:
            assert message["method"] == "session/update"
        assert message["error"]["code"] == -32800
        here.agent.replies["session/load"] = {}
        assert await client.call("session/load", {"sessionId": "old", **OPENING}) == {}


@aio
async def test_closing_a_session_closes_it_at_the_peer_and_forgets_it() -> None:
    async with scene() as here:
        client = await here.client()
        await client.open()
        await client.call("session/close", {"sessionId": "s1"})
        assert here.agent.told("session/close") == [{"sessionId": "s1"}]
        here.agent.update(chunk("too late"))
        await turns()
        assert "session/update" not in [message.get("method") for message in client.heard]


@aio
async def test_a_mode_is_set_at_the_peer_which_has_the_last_word() -> None:
    modes = {
        "currentModeId": "a",
        "availableModes": [{"id": "a", "name": "A"}, {"id": "b", "name": "B"}],
    }
    replies = {
        "session/new": {"sessionId": "s1", "modes": modes},
        "session/set_mode": Refusal(-32602, "not now"),
    }
    async with scene(replies=replies) as here:
        client = await here.client()
        assert (await client.call("session/new", OPENING))["modes"] == modes
        error = await client.refused("session/set_mode", {"sessionId": "s1", "modeId": "b"})
        assert (error["code"], error["message"]) == (-32602, "not now")
        assert here.agent.told("session/set_mode") == [{"sessionId": "s1", "modeId": "b"}]


REJECTED = {"outcome": "selected", "optionId": "cancel"}


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        ({"result": {"outcome": REJECTED}}, REJECTED),
        ({"result": {"outcome": {"outcome": "cancelled"}}}, {"outcome": "cancelled"}),
        ({"error": {"code": -32601, "message": "what?"}}, REJECTED),
    ],
    ids=["rejected", "cancelled", "not understood"],
)
@aio
async def test_a_question_is_answered_as_the_clients_user_decided(
    reply: dict[str, Any], outcome: dict[str, Any]
) -> None:
    offered = [*OPTIONS, {"optionId": "zap", "name": "Zap", "kind": "of no known kind"}]
    async with scene() as here:
        client = await here.client()
        await client.open()
        prompting = client.prompt("go")
        prompt = await here.agent.expect("session/prompt")
        permission = here.agent.permission(options=offered)
        here.agent.ask("q", "session/request_permission", permission)
        asked = await client.next()
        assert asked["params"]["toolCall"]["toolCallId"] == "c1"
        assert asked["params"]["options"] == OPTIONS
        client.say({"jsonrpc": "2.0", "id": asked["id"], **reply})
        assert (await here.agent.heard_answer("q"))["result"]["outcome"] == outcome
        here.agent.answer(prompt, END)
        await client.answered(prompting)


@aio
async def test_a_client_that_went_in_the_middle_of_a_turn_leaves_no_turn_behind() -> None:
    async with scene() as here:
        client = await here.client()
        await client.open()
        client.prompt("go")
        prompt = await here.agent.expect("session/prompt")
        await client.stream.aclose()
        await here.agent.expect("session/cancel")
        here.agent.answer(prompt, {"stopReason": "cancelled"})
        await soon(asyncio.wait([client.served]))
        assert here.agent.told("session/close") == [{"sessionId": "s1"}]


SELECT = {
    "type": "select",
    "id": "effort",
    "name": "Effort",
    "currentValue": "low",
    "options": [{"value": "low", "name": "Low"}, {"value": "high", "name": "High"}],
}


@aio
async def test_an_option_is_set_at_the_peer_and_shown_as_the_peer_has_it() -> None:
    replies = {
        "session/new": {"sessionId": "s1", "configOptions": [SELECT]},
        "session/set_config_option": {"configOptions": [{**SELECT, "currentValue": "high"}]},
    }
    async with scene(replies=replies) as here:
        client = await here.client()
        assert (await client.call("session/new", OPENING))["configOptions"] == [SELECT]
        choice = {"sessionId": "s1", "configId": "effort", "value": "high"}
        setting = client.begin("session/set_config_option", choice)
        message = await client.next()
        while message.get("id") != setting:
            message = await client.next()
        (shown,) = message["result"]["configOptions"]
        assert shown["currentValue"] == "high"
        assert here.agent.told("session/set_config_option") == [choice]


@aio
async def test_choosing_among_models_that_stand_apart_sets_the_model() -> None:
    models = {
        "currentModelId": "big",
        "availableModels": [
            {"modelId": "big", "name": "Big"},
            {"modelId": "small", "name": "Small"},
        ],
    }
    replies = {"session/new": {"sessionId": "s1", "models": models}, "session/set_model": {}}
    async with scene(replies=replies) as here:
        client = await here.client()
        (offered,) = (await client.call("session/new", OPENING))["configOptions"]
        assert (offered["id"], offered["currentValue"]) == ("model", "big")
        choice = {"sessionId": "s1", "configId": "model", "value": "small"}
        setting = client.begin("session/set_config_option", choice)
        message = await client.next()
        while message.get("id") != setting:
            message = await client.next()
        (shown,) = message["result"]["configOptions"]
        assert shown["currentValue"] == "small"
        assert here.agent.told("session/set_model") == [{"sessionId": "s1", "modelId": "small"}]
