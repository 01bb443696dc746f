"""Modes, models and config options of a session, and how they are changed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dragoman.client.acp import ClientOptions
from dragoman.client.acp.peer import AcpPeer
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import RemoteError, Unsupported
from dragoman.events import model
from tests.aio import aio
from tests.unit.client.acp.agent_side import (
    CWD,
    EVERYTHING,
    MODELS,
    MODES,
    Refusal,
    driven,
    opened,
    select,
)


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
                await session.set_option(option, value)  # type: ignore[arg-type]
        assert agent.told("session/set_config_option") == []
        await session.set_option("which", "deep")
        agent.replies["session/set_config_option"] = {"configOptions": after}
        await session.set_option("fast", True)
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
            session.set_option("x", "y"),
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


@aio
async def test_models_apart_from_options_are_choices() -> None:
    replies = {"session/new": {"sessionId": "s1", "models": MODELS}}
    async with opened(replies=replies) as (session, _):
        assert [choice.value for choice in session.model_choices] == ["small", "large"]
    async with opened() as (session, _):
        assert session.model_choices == []


@aio
async def test_a_change_of_settings_is_one_event_where_events_are_made() -> None:
    replies = {
        "session/new": {"sessionId": "s1", "modes": MODES, "models": MODELS},
        "session/set_mode": {},
        "session/set_model": {},
    }
    async with driven(replies=replies) as (client, _):
        seen: list[model.Event] = []
        peer = AcpPeer(client, CWD)
        peer.on_event = seen.append

        def told() -> list[tuple[Any, Any]]:
            found = [(e.mode, e.model) for e in seen if isinstance(e, model.SettingsChanged)]
            seen.clear()
            return found

        async with peer.session(mode="plan", model="large") as session:
            assert told() == [("code", "small"), ("plan", "large")]
            await session.set_model("small")
            assert told() == [("plan", "small")]
            await session.switch_mode("code")  # type: ignore[attr-defined]
            await session.switch_mode("code")  # type: ignore[attr-defined]
            assert told() == [("code", "small")]


@aio
async def test_the_former_name_of_setting_an_option_works_for_one_release() -> None:
    options = [select("m", "mode", "code", "code", "plan")]
    replies = {
        "session/new": {"sessionId": "s1", "configOptions": options},
        "session/set_config_option": {"configOptions": options},
    }
    async with opened(replies=replies) as (session, agent):
        with pytest.warns(DeprecationWarning, match="set_option"):
            await session.set_config_option("m", "plan")
        assert len(agent.told("session/set_config_option")) == 1
