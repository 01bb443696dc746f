"""What a session knows: its settings, its history, and what came outside of turns."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from dragoman.client.acp import ClientOptions
from dragoman.client.acp import session as session_module
from dragoman.client.acp.peer import AcpPeer
from dragoman.client.acp.session import Prompt
from dragoman.client.budgets import Budgets
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import CallTimeout, SessionUnusable
from dragoman.events import model, parts
from tests.aio import aio
from tests.unit.client.acp.agent_side import (
    CWD,
    EVERYTHING,
    MODES,
    AgentSide,
    Noises,
    chunk,
    driven,
    opened,
    select,
)
from tests.unit.client.clock import LoopClock
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
async def test_an_observer_that_fails_loses_no_update(
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
        assert asking.result().text == "answer"
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
        assert asking.result().text == ""
        assert texts(session.replayed) == ["0", "1", "2", "3", "4"]
        assert not session.replaying


@aio
async def test_what_comes_long_after_the_load_is_not_history() -> None:
    async with driven(quick(), capabilities=EVERYTHING) as (client, agent):
        agent.replies["session/load"] = None
        session = await client.load_session("s1", CWD)
        await soon(session.wait_replayed())
        agent.update(chunk("news"))
        await until(lambda: len(session.outside) == 1)
        assert session.replayed == []


@aio
async def test_a_replay_ends_by_itself_without_a_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = LoopClock(monkeypatch)
    async with driven(quick(), capabilities=EVERYTHING) as (client, agent):
        agent.replies["session/load"] = None
        session = await client.load_session("s1", CWD)
        await clock.advance(2 * QUIET)
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
            assert (await turn.wait()).stop == "cancelled"


@aio
async def test_a_session_is_forgotten_even_if_closing_it_fails() -> None:
    budgets = Budgets(request=TINY)
    async with opened(ClientOptions(budgets=budgets), capabilities=EVERYTHING) as (session, agent):
        with pytest.raises(CallTimeout):
            await session.close()
        assert session.client.sessions == ()
        await agent.expect("session/close")


@aio
async def test_closing_an_abandoned_session_does_not_wait_for_the_agent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session_module, "CLOSE_TIMEOUT", 3600.0)
    options = ClientOptions(budgets=Budgets(request=3600.0))
    async with opened(options, capabilities=EVERYTHING) as (session, agent):
        session.unusable = True
        await soon(session.close())
        await agent.expect("session/close")


@aio
async def test_closing_after_the_connection_has_ended_only_forgets() -> None:
    async with opened(capabilities=EVERYTHING) as (session, agent):
        client = session.client
        await agent.stream.aclose()
        await soon(client.connection.wait_ended())
        await session.close()
        assert client.sessions == ()


def test_an_agent_side_says_what_real_agents_say() -> None:
    # The witness of these tests is checked against the protocol itself.
    permission = AgentSide.permission()
    assert acp.convert(permission, acp.RequestPermissionRequest).tool_call.tool_call_id == "c1"
    for update in history("q", "a"):
        message = {"sessionId": "s1", "update": update}
        assert not isinstance(acp.convert(message, acp.SessionNotification).update, acp.Unknown)


# -- one session for both


@aio
async def test_a_prompt_takes_blocks_of_events_and_of_the_protocol_whatever_it_gives() -> None:
    given: Prompt = [parts.Text("one"), acp.ResourceLink(uri="file:///a", name="a")]
    for events in (False, True):
        async with driven() as (client, agent):
            if events:
                AcpPeer(client, CWD)
            session = await client.new_session(CWD)
            async with session.prompt(given) as turn:
                prompt = await agent.expect("session/prompt")
                assert [block["type"] for block in prompt["params"]["prompt"]] == [
                    "text",
                    "resource_link",
                ]
                agent.update(chunk("a"))
                agent.answer(prompt, {"stopReason": "end_turn"})
                items = [item async for item in turn]
            assert turn.result.text == "a"
            if events:
                started, said, ended = items
                assert started.prompt == (parts.Text("one"), parts.Link("file:///a", "a"))
                assert (said.text, ended.stop) == ("a", "end_turn")
            else:
                assert [type(item) for item in items] == [acp.AgentMessageChunk]


@aio
async def test_history_is_what_the_session_gives() -> None:
    for events in (False, True):
        async with driven(capabilities={"loadSession": True}) as (client, agent):
            if events:
                AcpPeer(client, CWD)
            async with asyncio.TaskGroup() as tasks:
                loading = tasks.create_task(client.load_session("s1", CWD))
                asked = await agent.expect("session/load")
                agent.update(chunk("old"))
                agent.answer(asked, {})
            (item,) = loading.result().replayed
            assert isinstance(item, model.MessageDelta if events else acp.AgentMessageChunk)
