"""Sessions as a client opens them: how they begin, where they are found, and what is too early."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dragoman.client import base
from dragoman.client.acp import ClientOptions
from dragoman.client.budgets import Budgets
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import (
    CallTimeout,
    InvalidAnswer,
    RemoteError,
    Unsupported,
    UsageError,
)
from tests.aio import aio
from tests.unit.client.acp.agent_side import (
    CWD,
    EVERYTHING,
    MODELS,
    MODES,
    Noises,
    Refusal,
    chunk,
    driven,
    select,
)
from tests.unit.rpc.other_side import until

TINY = 0.02
"""A budget that is meant to run out."""


# -- a starting mode and model


@aio
async def test_a_starting_mode_and_model_are_options_where_the_agent_has_such_options() -> None:
    options = [
        select("how", "mode", "code", "code", "plan"),
        select("which", "model", "small", "small", "large"),
    ]
    after = [
        select("how", "mode", "plan", "code", "plan"),
        select("which", "model", "large", "small", "large"),
    ]
    replies = {
        "session/new": {"sessionId": "s1", "modes": MODES, "configOptions": options},
        "session/set_config_option": {"configOptions": after},
    }
    async with driven(replies=replies) as (client, agent):
        session = await client.new_session(CWD, mode="plan", model="large")
        assert agent.told("session/set_config_option") == [
            {"sessionId": "s1", "configId": "which", "value": "large"},
            {"sessionId": "s1", "configId": "how", "value": "plan"},
        ]
        assert session.modes is not None and session.modes.current_mode_id == "plan"


@aio
async def test_a_starting_mode_and_model_are_set_the_older_way_without_such_options() -> None:
    replies = {
        "session/new": {"sessionId": "s1", "modes": MODES, "models": MODELS},
        "session/set_mode": {},
        "session/set_model": None,
    }
    async with driven(replies=replies) as (client, agent):
        session = await client.new_session(CWD, mode="plan", model="large")
        assert agent.told("session/set_mode") == [{"sessionId": "s1", "modeId": "plan"}]
        assert agent.told("session/set_model") == [{"sessionId": "s1", "modelId": "large"}]
        assert session.modes is not None and session.modes.current_mode_id == "plan"
        assert session.models is not None and session.models.current_model_id == "large"


@pytest.mark.parametrize("capabilities", [{}, EVERYTHING])
@pytest.mark.parametrize("wanted", [{"mode": "yolo"}, {"model": "huge"}])
@aio
async def test_an_unknown_mode_or_model_is_unsupported_and_leaves_no_session(
    wanted: dict[str, str], capabilities: dict[str, Any]
) -> None:
    replies = {
        "session/new": {"sessionId": "s1", "modes": MODES, "models": MODELS},
        "session/close": {},
    }
    async with driven(capabilities=capabilities, replies=replies) as (client, agent):
        with pytest.raises(Unsupported, match="yolo|huge"):
            await client.new_session(CWD, **wanted)  # type: ignore[arg-type]
        assert client.sessions == ()
        assert len(agent.told("session/close")) == (1 if capabilities else 0)
        assert agent.told("session/set_mode") == agent.told("session/set_model") == []


@aio
async def test_a_mode_that_the_agent_refuses_leaves_no_session_even_if_closing_fails() -> None:
    replies = {
        "session/new": {"sessionId": "s1", "modes": MODES},
        "session/set_mode": Refusal(-32602, "no"),
        "session/close": Refusal(-32603, "neither"),
    }
    async with driven(capabilities=EVERYTHING, replies=replies) as (client, _):
        with pytest.raises(RemoteError) as caught:
            await client.new_session(CWD, mode="plan")
        assert caught.value.code == -32602
        assert client.sessions == ()


# -- loading, resuming, forking


@aio
async def test_sessions_are_loaded_resumed_and_forked_only_where_the_agent_can() -> None:
    async with driven(ClientOptions(unstable=True)) as (client, agent):
        before = len(agent.heard)
        with pytest.raises(Unsupported, match="loadSession"):
            await client.load_session("s", CWD)
        with pytest.raises(Unsupported, match=r"sessionCapabilities\.resume"):
            await client.resume_session("s", CWD)
        with pytest.raises(Unsupported, match=r"sessionCapabilities\.fork"):
            await client.fork_session("s", CWD)
        with pytest.raises(Unsupported, match=r"sessionCapabilities\.delete"):
            await client.delete_session("s")
        with pytest.raises(Unsupported, match=r"sessionCapabilities\.list"):
            async for _ in client.list_sessions():
                pass
        assert len(agent.heard) == before
        assert client.sessions == ()


@aio
async def test_forking_is_unstable_and_has_to_be_allowed() -> None:
    async with driven(capabilities=EVERYTHING) as (client, agent):
        with pytest.raises(UsageError, match="unstable=True"):
            await client.fork_session("s", CWD)
    replies = {"session/fork": {"sessionId": "s2", "modes": MODES}}
    options = ClientOptions(unstable=True)
    async with driven(options, capabilities=EVERYTHING, replies=replies) as (client, agent):
        fork = await client.fork_session("s", CWD)
        sent = {"sessionId": "s", "cwd": "/workspace", "mcpServers": []}
        assert agent.told("session/fork") == [sent]
        assert fork.id == "s2"
        assert fork.modes is not None and fork.modes.current_mode_id == "code"
        agent.update(chunk("hello"), session_id="s2")
        await until(lambda: len(fork.outside) == 1)


@aio
async def test_a_resumed_session_has_its_settings_and_no_history() -> None:
    replies = {"session/resume": {"modes": MODES}}
    async with driven(capabilities=EVERYTHING, replies=replies) as (client, agent):
        session = await client.resume_session("old", CWD, additional_directories=["/more"])
        (params,) = agent.told("session/resume")
        assert params["sessionId"] == "old"
        assert params["additionalDirectories"] == ["/more"]
        assert session.modes is not None and session.modes.current_mode_id == "code"
        assert session.replayed == []
        assert not session.replaying


@pytest.mark.parametrize("reply", [None, {}])
@aio
async def test_a_load_may_be_answered_with_nothing(reply: Any) -> None:
    replies = {"session/load": reply}
    async with driven(capabilities=EVERYTHING, replies=replies) as (client, agent):
        session = await client.load_session("old", CWD, meta={"k": 1})
        assert agent.told("session/load") == [
            {"sessionId": "old", "cwd": "/workspace", "mcpServers": [], "_meta": {"k": 1}}
        ]
        assert session.modes is None


@aio
async def test_a_session_is_open_only_once_on_a_connection() -> None:
    async with driven(capabilities=EVERYTHING, replies={"session/resume": {}}) as (client, _):
        await client.resume_session("old", CWD)
        for again in (client.load_session, client.resume_session):
            with pytest.raises(UsageError, match="already open"):
                await again("old", CWD)
        assert len(client.sessions) == 1


@aio
async def test_a_session_that_cannot_be_loaded_is_forgotten() -> None:
    refusal = Refusal(-32002, "Resource not found")
    replies = {"session/load": refusal, "session/resume": refusal}
    async with driven(capabilities=EVERYTHING, replies=replies) as (client, _):
        with pytest.raises(RemoteError) as caught:
            await client.load_session("gone", CWD)
        assert caught.value.code == -32002
        with pytest.raises(RemoteError):
            await client.resume_session("gone", CWD)
        assert client.sessions == ()


# -- listing and deleting


@pytest.mark.parametrize("last", [{}, {"nextCursor": None}])
@aio
async def test_a_list_is_read_page_by_page_to_its_end(last: dict[str, Any]) -> None:
    pages = {
        None: {"sessions": [{"sessionId": "a", "cwd": "/a"}], "nextCursor": "2"},
        "2": {"sessions": [], "nextCursor": "3"},
        "3": {"sessions": [{"sessionId": "b", "cwd": "/b", "title": "B"}], **last},
    }
    replies = {"session/list": lambda params: pages[params.get("cursor")]}
    async with driven(capabilities=EVERYTHING, replies=replies) as (client, agent):
        found = [info async for info in client.list_sessions("/somewhere")]
        assert [(info.session_id, info.title) for info in found] == [("a", None), ("b", "B")]
        assert agent.told("session/list") == [
            {"cwd": "/somewhere"},
            {"cwd": "/somewhere", "cursor": "2"},
            {"cwd": "/somewhere", "cursor": "3"},
        ]


@aio
async def test_a_list_is_fetched_no_further_than_it_is_read() -> None:
    replies = {
        "session/list": {"sessions": [{"sessionId": "a", "cwd": "/a"}], "nextCursor": "more"}
    }
    async with driven(capabilities=EVERYTHING, replies=replies) as (client, agent):
        listing = client.list_sessions()
        assert (await anext(listing)).session_id == "a"
        assert len(agent.told("session/list")) == 1
        await listing.aclose()  # type: ignore[attr-defined]


@aio
async def test_a_list_that_goes_round_in_a_circle_is_an_invalid_answer() -> None:
    replies = {"session/list": {"sessions": [], "nextCursor": "again"}}
    async with driven(capabilities=EVERYTHING, replies=replies) as (client, agent):
        with pytest.raises(InvalidAnswer, match="does not end"):
            async for _ in client.list_sessions():
                pass
        assert len(agent.told("session/list")) == 2


@aio
async def test_a_list_whose_cursors_alternate_is_an_invalid_answer() -> None:
    replies: dict[str, Any] = {
        "session/list": lambda params: {
            "sessions": [],
            "nextCursor": "b" if params.get("cursor") == "a" else "a",
        }
    }
    async with driven(capabilities=EVERYTHING, replies=replies) as (client, agent):
        with pytest.raises(InvalidAnswer, match="does not end"):
            async for _ in client.list_sessions():
                pass
        assert len(agent.told("session/list")) == 3


@aio
async def test_a_list_without_end_is_an_invalid_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "MAX_PAGES", 20)
    replies = {
        "session/list": lambda params: {
            "sessions": [],
            "nextCursor": params.get("cursor", "") + "x",
        }
    }
    async with driven(capabilities=EVERYTHING, replies=replies) as (client, agent):
        with pytest.raises(InvalidAnswer, match="does not end"):
            async for _ in client.list_sessions():
                pass
        assert len(agent.told("session/list")) == 20


@aio
async def test_deleting_names_the_session() -> None:
    async with driven(capabilities=EVERYTHING, replies={"session/delete": {}}) as (client, agent):
        await client.delete_session("old")
        assert agent.told("session/delete") == [{"sessionId": "old"}]


@aio
async def test_a_question_without_an_answer_uses_up_its_budget() -> None:
    options = ClientOptions(budgets=Budgets(request=TINY))
    async with driven(options, capabilities=EVERYTHING) as (client, agent):
        with pytest.raises(CallTimeout, match="session/delete"):
            await client.delete_session("old")
        with pytest.raises(CallTimeout, match="_vendor/slow"):
            await client.call_extension("_vendor/slow", {})
        await until(lambda: len(agent.told("$/cancel_request")) == 2)


# -- what belongs to no session


@aio
async def test_an_update_before_the_session_is_known_is_not_lost() -> None:
    async with driven() as (client, agent):
        del agent.replies["session/new"]
        async with asyncio.TaskGroup() as tasks:
            opening = tasks.create_task(client.new_session(CWD))
            asked = await agent.expect("session/new")
            agent.update({"sessionUpdate": "available_commands_update", "availableCommands": []})
            agent.update(chunk("early"))
            # In one piece with the answer, and right behind it.
            agent.say(
                agent.updating(chunk("together")),
                {"jsonrpc": "2.0", "id": asked["id"], "result": {"sessionId": "s1"}},
                agent.updating(chunk("behind")),
            )
            session = await opening
        texts = [
            update.content.text
            for update in session.outside
            if isinstance(update, acp.AgentMessageChunk)
            and isinstance(update.content, acp.TextContent)
        ]
        assert texts == ["early", "together", "behind"]
        assert len(session.outside) == 4


@aio
async def test_an_observer_of_noise_that_fails_does_not_spoil_the_opening_of_a_session(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(noise: object) -> None:
        raise ZeroDivisionError

    async with driven(ClientOptions(on_noise=fail)) as (client, agent):
        del agent.replies["session/new"]
        async with asyncio.TaskGroup() as tasks:
            opening = tasks.create_task(client.new_session(CWD))
            asked = await agent.expect("session/new")
            agent.update(chunk("for nobody"), session_id="other")
            agent.answer(asked, {"sessionId": "s1"})
            assert (await opening).id == "s1"
    assert "the on_noise callback failed" in caplog.text


@aio
async def test_updates_of_sessions_that_are_opened_at_once_find_their_own() -> None:
    noises = Noises()
    async with driven(ClientOptions(on_noise=noises)) as (client, agent):
        del agent.replies["session/new"]
        async with asyncio.TaskGroup() as tasks:
            one = tasks.create_task(client.new_session(CWD))
            two = tasks.create_task(client.new_session(CWD))
            first, second = await agent.expect("session/new"), await agent.expect("session/new")
            for name in ("b", "nobody", "a"):
                agent.update(chunk(f"for {name}"), session_id=name)
            agent.answer(second, {"sessionId": "b"})
            agent.answer(first, {"sessionId": "a"})
        for session, text in ((one.result(), "for a"), (two.result(), "for b")):
            (update,) = session.outside
            assert isinstance(update, acp.AgentMessageChunk)
            assert update.content == acp.TextContent(text=text)
        # What was for nobody is told when nobody is expected any more.
        assert len(noises) == 1
        assert b"for nobody" in noises[0].line


@aio
async def test_an_update_of_a_session_that_is_never_opened_is_noise() -> None:
    noises = Noises()
    async with driven(ClientOptions(on_noise=noises)) as (client, agent):
        agent.update(chunk("who?"), session_id="unknown")
        assert b"who?" in (await noises.first()).line
        agent.replies["session/new"] = {"sessionId": "unknown"}
        assert not (await client.new_session(CWD)).outside


@aio
async def test_what_is_kept_for_sessions_to_come_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    noises = Noises()
    async with driven(ClientOptions(on_noise=noises)) as (client, agent):
        del agent.replies["session/new"]
        async with asyncio.TaskGroup() as tasks:
            opening = tasks.create_task(client.new_session(CWD))
            asked = await agent.expect("session/new")
            for size in (9, 9, 1):
                agent.update(chunk("x" * size * 1024 * 1024))
                await asyncio.sleep(0)
            agent.answer(asked, {"sessionId": "s1"})
            session = await opening
        assert len(session.outside) == 2
        assert len(noises) == 1
