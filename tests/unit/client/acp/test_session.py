"""What a session knows: its settings, its history, and what came outside of turns."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from dragoman.client.acp import ClientOptions
from dragoman.client.acp import session as session_module
from dragoman.client.budgets import Budgets
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import CallTimeout, RemoteError, SessionUnusable, Unsupported
from tests.aio import aio
from tests.unit.client.acp.agent_side import (
    CWD,
    EVERYTHING,
    MODELS,
    MODES,
    AgentSide,
    Noises,
    Refusal,
    chunk,
    driven,
    opened,
    select,
)
from tests.unit.rpc.other_side import soon, until

TINY = 0.02
"""A budget that is meant to run out."""

QUIET = 0.05
"""The quiet after which a replay is over, in these tests."""


def texts(updates: Any) -> list[str]:
    return [update.content.text for update in updates if hasattr(update, "content")]


# -- where an update goes


@aio
async def test_updates_outside_of_turns_are_kept_and_those_of_a_turn_are_not() -> None:
    async with opened() as (session, agent):
        agent.update(chunk("before"))
        await until(lambda: len(session.outside) == 1)
        async with session.prompt("hello") as turn:
            prompt = await agent.expect("session/prompt")
            agent.update(chunk("during"))
            agent.answer(prompt, {"stopReason": "end_turn"})
            agent.update(chunk("after"))
            await until(lambda: len(session.outside) == 2)
            assert texts([update async for update in turn]) == ["during"]
        assert texts(session.outside) == ["before", "after"]


@aio
async def test_the_oldest_updates_outside_of_turns_are_dropped_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with opened() as (session, agent):
        many = session_module.KEPT_OUTSIDE + 3
        agent.update(*(chunk(str(number)) for number in range(many)))
        await until(lambda: session.outside_dropped == 3)
        assert texts(session.outside)[0] == "3"
        assert len(session.outside) == session_module.KEPT_OUTSIDE


@aio
async def test_an_observer_sees_every_update_at_once() -> None:
    async with opened() as (session, agent):
        seen: list[acp.SessionUpdate] = []
        session.on_update = seen.append
        agent.update(chunk("outside"))
        async with session.prompt("hello") as turn:
            prompt = await agent.expect("session/prompt")
            agent.update(chunk("inside"))
            agent.answer(prompt, {"stopReason": "end_turn"})
            await until(lambda: len(seen) == 2)
            await turn.wait()
        assert texts(seen) == ["outside", "inside"]


@aio
async def test_an_observer_that_fails_costs_nobody_an_update(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(update: acp.SessionUpdate) -> None:
        raise ZeroDivisionError

    async with opened() as (session, agent):
        session.on_update = fail
        async with session.prompt("hello") as turn:
            prompt = await agent.expect("session/prompt")
            agent.update(chunk("a"))
            agent.ask(1, "session/request_permission", agent.permission())
            assert "error" not in await agent.heard_answer(1)
            agent.answer(prompt, {"stopReason": "end_turn"})
            seen = [update async for update in turn]
        assert len(seen) == 2
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 2


@aio
async def test_an_update_of_an_unknown_kind_is_delivered_whole() -> None:
    async with opened() as (session, agent):
        strange = {"sessionUpdate": "mood_update", "mood": {"of": ["the", "day"]}}
        agent.update(strange)
        await until(lambda: len(session.outside) == 1)
        (update,) = session.outside
        assert isinstance(update, acp.UnknownUpdate)
        assert update.raw == strange


@pytest.mark.parametrize(
    "params",
    [
        None,
        [],
        "x",
        {"sessionId": "s1"},
        {"sessionId": "s1", "update": None},
        {"sessionId": 1, "update": chunk("a")},
        {"update": chunk("a")},
        {"sessionId": "s1", "update": {"sessionUpdate": "agent_message_chunk"}},
        {"sessionId": "s1", "update": {"sessionUpdate": 7}},
    ],
)
@aio
async def test_a_garbled_update_is_noise_and_the_turn_goes_on(params: Any) -> None:
    noises = Noises()
    async with opened(ClientOptions(on_noise=noises)) as (session, agent):
        async with session.prompt("hello") as turn:
            prompt = await agent.expect("session/prompt")
            agent.say({"jsonrpc": "2.0", "method": "session/update", "params": params})
            agent.update(chunk("a"))
            agent.answer(prompt, {"stopReason": "end_turn"})
            assert texts([update async for update in turn]) == ["a"]
        assert len(noises) == 1


@aio
async def test_settings_follow_the_updates() -> None:
    options = [select("m", "mode", "plan", "code", "plan")]
    command = {"name": "review", "description": "Review it"}
    async with opened(replies={"session/new": {"sessionId": "s1", "modes": MODES}}) as (
        session,
        agent,
    ):
        agent.update(
            {"sessionUpdate": "current_mode_update", "currentModeId": "plan"},
            {"sessionUpdate": "config_option_update", "configOptions": options},
            {"sessionUpdate": "available_commands_update", "availableCommands": [command]},
            {"sessionUpdate": "session_info_update", "title": "A title"},
            {"sessionUpdate": "usage_update", "used": 7, "size": 100},
        )
        await until(lambda: session.usage is not None)
        assert session.modes is not None and session.modes.current_mode_id == "plan"
        assert session.config_options is not None and len(session.config_options) == 1
        assert [each.name for each in session.commands] == ["review"]
        assert session.info is not None and session.info.title == "A title"
        assert session.usage is not None and session.usage.used == 7
        agent.update({"sessionUpdate": "current_mode_update", "modeId": "code"})
        await until(lambda: session.modes is not None and session.modes.current_mode_id == "code")


@aio
async def test_a_mode_of_an_agent_without_modes_is_ignored() -> None:
    async with opened() as (session, agent):
        agent.update({"sessionUpdate": "current_mode_update", "currentModeId": "plan"})
        await until(lambda: len(session.outside) == 1)
        assert session.modes is None


# -- changing settings


@aio
async def test_an_option_is_changed_and_the_whole_list_read_back() -> None:
    groups = {
        **select("which", "model", "small"),
        "options": [
            {"group": "g", "name": "G", "options": [{"value": "deep", "name": "Deep"}]},
        ],
    }
    flag = {"type": "boolean", "id": "fast", "name": "Fast", "currentValue": False}
    odd = {"type": "slider", "id": "heat", "name": "Heat", "currentValue": 3}
    after = [{**flag, "currentValue": True}]
    replies = {
        "session/new": {"sessionId": "s1", "configOptions": [groups, flag, odd]},
        "session/set_config_option": {"configOptions": after},
    }
    async with opened(replies=replies) as (session, agent):
        for option, value in (("fast", 1), ("fast", "true"), ("which", "shallow"), ("heat", "3")):
            with pytest.raises(Unsupported):
                await session.set_config_option(option, value)  # type: ignore[arg-type]
        assert agent.told("session/set_config_option") == []
        await session.set_config_option("which", "deep")
        agent.replies["session/set_config_option"] = {"configOptions": after}
        await session.set_config_option("fast", True)
        assert agent.told("session/set_config_option") == [
            {"sessionId": "s1", "configId": "which", "value": "deep"},
            {"sessionId": "s1", "configId": "fast", "value": True, "type": "boolean"},
        ]
        assert session.config_options == [
            acp.SessionConfigBoolean(id="fast", name="Fast", current_value=True)
        ]


@aio
async def test_settings_that_there_are_not_are_refused_with_what_there_is() -> None:
    async with opened() as (session, agent):
        before = len(agent.heard)
        for change in (
            session.set_mode("plan"),
            session.set_model("large"),
            session.set_config_option("x", "y"),
        ):
            with pytest.raises(Unsupported, match="it has none"):
                await change
        assert len(agent.heard) == before
    replies = {"session/new": {"sessionId": "s1", "modes": MODES, "models": MODELS}}
    async with opened(replies=replies) as (session, agent):
        with pytest.raises(Unsupported, match="code, plan"):
            await session.set_mode("yolo")
        with pytest.raises(Unsupported, match="small, large"):
            await session.set_model("huge")


@aio
async def test_a_setting_that_the_agent_refuses_stays_as_it_was() -> None:
    replies = {
        "session/new": {"sessionId": "s1", "modes": MODES},
        "session/set_mode": Refusal(-32602, "no"),
    }
    async with opened(replies=replies) as (session, _):
        with pytest.raises(RemoteError):
            await session.set_mode("plan")
        assert session.modes is not None and session.modes.current_mode_id == "code"


@aio
async def test_a_mode_that_the_agent_does_not_take_is_read_back() -> None:
    options = [select("m", "mode", "code", "code", "plan")]
    replies = {
        "session/new": {"sessionId": "s1", "modes": MODES, "configOptions": options},
        "session/set_config_option": {"configOptions": options},
    }
    async with opened(replies=replies) as (session, _):
        await session.set_mode("plan")
        assert session.modes is not None and session.modes.current_mode_id == "code"
        assert session.config_options is not None
        (option,) = session.config_options
        assert isinstance(option, acp.SessionConfigSelect) and option.current_value == "code"


@aio
async def test_what_an_agent_says_of_its_mode_before_it_answers_counts() -> None:
    async with opened(replies={"session/new": {"sessionId": "s1", "modes": MODES}}) as (
        session,
        agent,
    ):
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(session.set_mode("plan"))
            asked = await agent.expect("session/set_mode")
            agent.say(
                agent.updating({"sessionUpdate": "current_mode_update", "currentModeId": "code"}),
                {"jsonrpc": "2.0", "id": asked["id"], "result": {}},
            )
        assert session.modes is not None and session.modes.current_mode_id == "code"


@aio
async def test_what_an_agent_says_right_after_its_answer_is_newer_than_the_answer() -> None:
    options = [select("m", "mode", "code", "code", "plan")]
    answered = [select("m", "mode", "plan", "code", "plan")]
    replies = {"session/new": {"sessionId": "s1", "modes": MODES, "configOptions": options}}
    async with opened(replies=replies) as (session, agent):
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(session.set_mode("plan"))
            asked = await agent.expect("session/set_config_option")
            # The agent switches, and switches back at once; all of it arrives in one piece.
            agent.say(
                {"jsonrpc": "2.0", "id": asked["id"], "result": {"configOptions": answered}},
                agent.updating({"sessionUpdate": "config_option_update", "configOptions": options}),
                agent.updating({"sessionUpdate": "current_mode_update", "currentModeId": "code"}),
            )
        assert session.modes is not None and session.modes.current_mode_id == "code"
        (option,) = session.config_options or ()
        assert isinstance(option, acp.SessionConfigSelect)
        assert option.current_value == "code"


@aio
async def test_a_mode_that_is_switched_by_its_own_method_shows_in_its_option_as_well() -> None:
    options = [select("x", "other", "1", "1"), select("m", "mode", "code", "code", "plan")]
    replies = {
        "session/new": {"sessionId": "s1", "modes": MODES, "configOptions": options},
        "session/set_mode": {},
    }
    async with opened(replies=replies) as (session, agent):
        await session.switch_mode("plan")
        assert agent.heard[-1]["method"] == "session/set_mode"
        assert session.modes is not None and session.modes.current_mode_id == "plan"
        other, mode = session.config_options or ()
        assert isinstance(other, acp.SessionConfigSelect) and other.current_value == "1"
        assert isinstance(mode, acp.SessionConfigSelect) and mode.current_value == "plan"
        # What does not change the mode changes nothing.
        before = session.modes
        await session.switch_mode("plan")
        assert session.modes is before


@pytest.mark.parametrize("way", ["mode", "model"])
@aio
async def test_the_older_ways_keep_the_order_of_the_wire_too(way: str) -> None:
    replies = {"session/new": {"sessionId": "s1", "modes": MODES, "models": MODELS}}
    async with opened(replies=replies) as (session, agent):
        async with asyncio.TaskGroup() as tasks:
            setting = session.set_mode("plan") if way == "mode" else session.set_model("large")
            tasks.create_task(setting)
            asked = await agent.next()
            agent.say(
                {"jsonrpc": "2.0", "id": asked["id"], "result": {}},
                agent.updating({"sessionUpdate": "current_mode_update", "currentModeId": "code"}),
            )
        assert session.modes is not None and session.modes.current_mode_id == "code"
        assert session.models is not None
        assert session.models.current_model_id == ("small" if way == "mode" else "large")


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ([], [("session/set_mode", "plan")]),
        ([select("m", "mode", "code", "code", "plan")], [("session/set_config_option", "plan")]),
        ([select("m", "mode", "plan", "code", "plan")], []),
        ([select("m", "mode", "code", "code", "yolo")], []),
    ],
)
@aio
async def test_every_way_to_open_a_session_leads_into_the_starting_mode(
    options: list[dict[str, Any]], asked: list[tuple[str, str]]
) -> None:
    settings = {"modes": MODES, "configOptions": options}
    replies = {
        "session/new": {"sessionId": "s1", **settings},
        "session/fork": {"sessionId": "s2", **settings},
        "session/load": settings,
        "session/resume": settings,
        "session/set_mode": {},
        "session/set_config_option": {"configOptions": options},
    }
    wanted = ClientOptions(starting_mode="plan", unstable=True)
    async with driven(wanted, capabilities=EVERYTHING, replies=replies) as (client, agent):
        await client.new_session(CWD)
        await client.load_session("s3", CWD)
        await client.resume_session("s4", CWD)
        await client.fork_session("s1", CWD)
        told = [
            (method, params.get("modeId") or params.get("value"))
            for method in ("session/set_mode", "session/set_config_option")
            for params in agent.told(method)
        ]
        assert told == asked * 4
        for method in replies:
            if method.startswith("session/set"):
                assert len({params["sessionId"] for params in agent.told(method)}) in (0, 4)


@aio
async def test_a_starting_mode_that_the_agent_refuses_leaves_no_session() -> None:
    replies = {
        "session/new": {"sessionId": "s1", "modes": MODES},
        "session/set_mode": Refusal(-32602, "no"),
    }
    async with driven(ClientOptions(starting_mode="plan"), replies=replies) as (client, _):
        with pytest.raises(RemoteError):
            await client.new_session(CWD)
        assert client.sessions == ()


# -- history


def quick() -> ClientOptions:
    return ClientOptions(budgets=Budgets(replay_quiet=QUIET, replay_total=60.0))


def history(*words: str) -> list[dict[str, Any]]:
    kinds = ("user_message_chunk", "agent_message_chunk")
    return [
        {**chunk(word), "sessionUpdate": kinds[number % 2]} for number, word in enumerate(words)
    ]


@aio
async def test_history_before_the_answer_is_replayed_and_not_outside() -> None:
    seen: list[acp.SessionUpdate] = []
    async with driven(quick(), capabilities=EVERYTHING) as (client, agent):
        async with asyncio.TaskGroup() as tasks:
            loading = tasks.create_task(client.load_session("s1", CWD, on_update=seen.append))
            asked = await agent.expect("session/load")
            agent.update(*history("q1", "a1", "q2", "a2"))
            agent.answer(asked, {"modes": MODES})
        session = loading.result()
        assert texts(session.replayed) == texts(seen) == ["q1", "a1", "q2", "a2"]
        assert not session.outside


@aio
async def test_history_that_begins_before_the_answer_and_goes_on_after_it_is_one() -> None:
    # What a real agent does: one message, the answer, and then the others.
    async with driven(quick(), capabilities=EVERYTHING) as (client, agent):
        async with asyncio.TaskGroup() as tasks:
            loading = tasks.create_task(client.load_session("s1", CWD))
            asked = await agent.expect("session/load")
            agent.update(*history("q1"))
            agent.answer(asked, {"modes": MODES})
            session = await loading
            # The caller prompts at once; nothing of the history may fall into its turn.
            asking = tasks.create_task(session.ask("hello"))
            agent.update(*history("a1", "q2", "a2"))
            prompt = await agent.expect("session/prompt")
            agent.update(chunk("answer"))
            agent.answer(prompt, {"stopReason": "end_turn"})
        assert asking.result() == "answer"
        assert texts(session.replayed) == ["q1", "a1", "q2", "a2"]
        assert not session.outside


@aio
async def test_the_first_prompt_waits_until_a_late_replay_is_quiet() -> None:
    async with driven(quick(), capabilities=EVERYTHING) as (client, agent):
        async with asyncio.TaskGroup() as tasks:
            loading = tasks.create_task(client.load_session("s1", CWD))
            agent.answer(await agent.expect("session/load"), None)
            session = await loading
            assert session.replaying
            asking = tasks.create_task(session.ask("hello"))
            for word in range(5):
                agent.update(chunk(str(word)))
                heard = len(session.replayed)
                await until(lambda heard=heard: len(session.replayed) > heard)  # type: ignore[misc]
                assert agent.told("session/prompt") == []
            await agent.end()
        assert asking.result() == ""
        assert texts(session.replayed) == ["0", "1", "2", "3", "4"]
        assert not session.replaying


@aio
async def test_what_comes_long_after_the_load_is_no_history() -> None:
    async with driven(quick(), capabilities=EVERYTHING) as (client, agent):
        agent.replies["session/load"] = None
        session = await client.load_session("s1", CWD)
        await soon(session.wait_replayed())
        agent.update(chunk("news"))
        await until(lambda: len(session.outside) == 1)
        assert session.replayed == []


@aio
async def test_a_replay_ends_by_itself_where_nobody_prompts() -> None:
    async with driven(quick(), capabilities=EVERYTHING) as (client, agent):
        agent.replies["session/load"] = None
        session = await client.load_session("s1", CWD)
        passed = asyncio.Event()
        asyncio.get_running_loop().call_later(2 * QUIET, passed.set)
        await soon(passed.wait())
        agent.update(chunk("news"))
        await until(lambda: len(session.outside) == 1)
        assert session.replayed == []


@aio
async def test_a_replay_without_end_is_waited_for_only_so_long() -> None:
    budgets = Budgets(replay_quiet=60.0, replay_total=TINY)
    async with driven(ClientOptions(budgets=budgets), capabilities=EVERYTHING) as (client, agent):
        agent.replies["session/load"] = None
        session = await client.load_session("s1", CWD)
        await soon(session.wait_replayed())
        assert not session.replaying


@aio
async def test_a_session_that_was_not_loaded_is_prompted_at_once() -> None:
    budgets = Budgets(replay_quiet=60.0, replay_total=60.0)
    options = ClientOptions(budgets=budgets)
    replies: dict[str, Any] = {"session/resume": {}}
    async with driven(options, capabilities=EVERYTHING, replies=replies) as (client, agent):
        for session in (await client.new_session(CWD), await client.resume_session("s2", CWD)):
            async with session.prompt("hello") as turn:
                await agent.end()
                await soon(turn.wait())


@aio
async def test_a_lost_agent_is_not_waited_for() -> None:
    budgets = Budgets(replay_quiet=60.0, replay_total=60.0)
    options = ClientOptions(budgets=budgets)
    replies = {"session/load": None}
    async with driven(options, capabilities=EVERYTHING, replies=replies) as (client, agent):
        session = await client.load_session("s1", CWD)
        await agent.stream.aclose()
        await soon(client.connection.wait_ended())
        await soon(session.wait_replayed())


# -- the end


@aio
async def test_closing_tells_the_agent_and_forgets_the_session() -> None:
    replies: dict[str, Any] = {"session/close": {}}
    noises = Noises()
    options = ClientOptions(on_noise=noises)
    async with opened(options, capabilities=EVERYTHING, replies=replies) as (session, agent):
        client = session.client
        await session.close()
        assert agent.told("session/close") == [{"sessionId": "s1"}]
        assert client.sessions == ()
        with pytest.raises(SessionUnusable):
            async with session.prompt("hello"):
                pytest.fail("the turn must not begin")
        agent.update(chunk("a word too late"))
        assert b"too late" in (await noises.first()).line
        agent.replies["session/resume"] = {}
        assert not (await client.resume_session("s1", CWD)).outside


@aio
async def test_closing_without_the_capability_only_forgets() -> None:
    async with opened() as (session, agent):
        await session.close()
        assert agent.told("session/close") == []
        assert session.client.sessions == ()


@aio
async def test_closing_during_a_turn_cancels_it_first() -> None:
    async with opened(capabilities=EVERYTHING) as (session, agent):
        async with session.prompt("hello") as turn:
            prompt = await agent.expect("session/prompt")
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(session.close())
                await agent.expect("session/cancel")
                closing = await agent.expect("session/close")
                agent.answer(prompt, {"stopReason": "cancelled"})
                agent.answer(closing, {})
            assert (await turn.wait()).stop_reason == "cancelled"


@aio
async def test_a_session_is_forgotten_even_if_closing_it_fails() -> None:
    budgets = Budgets(request=TINY)
    async with opened(ClientOptions(budgets=budgets), capabilities=EVERYTHING) as (session, agent):
        with pytest.raises(CallTimeout):
            await session.close()
        assert session.client.sessions == ()
        await agent.expect("session/close")


def test_an_agent_side_says_what_real_agents_say() -> None:
    # The witness of these tests is checked against the protocol itself.
    permission = AgentSide.permission()
    assert acp.convert(permission, acp.RequestPermissionRequest).tool_call.tool_call_id == "c1"
    for update in history("q", "a"):
        message = {"sessionId": "s1", "update": update}
        assert not isinstance(acp.convert(message, acp.SessionNotification).update, acp.Unknown)
