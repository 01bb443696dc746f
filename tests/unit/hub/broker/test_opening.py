"""Sessions: opened, found again, restored, and given up."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dragoman.errors import RemoteError
from dragoman.hub.broker import opening
from tests.aio import aio
from tests.unit.hub.broker.near import NearAgent, dies, standing

RESUMES: dict[str, Any] = {"sessionCapabilities": {"resume": {}}}
LOADS: dict[str, Any] = {"loadSession": True}


def about(tmp_path: Path, session: str) -> dict[str, Any]:
    return {"sessionId": session, "cwd": str(tmp_path / "workspace"), "mcpServers": []}


def methods(agent: NearAgent) -> list[str]:
    return [method for method, _ in agent.asked]


@aio
async def test_a_session_gets_a_key_and_the_peer_sees_nothing_of_it(tmp_path: Path) -> None:
    agent = NearAgent()
    async with standing(tmp_path, agent) as at, at.caller() as caller:
        params = {
            "cwd": str(tmp_path),
            "mcpServers": [],
            "_meta": {"dragoman": {"key": "s-mine", "name": "n"}},
        }
        opened = await caller.call("session/new", params)
        assert opened["_meta"]["dragoman"] == {"key": "s-mine"}
        assert agent.asked[-1] == ("session/new", {"cwd": str(tmp_path), "mcpServers": []})
        live = at.broker.sessions.require("s1")
        assert (live.key, live.name) == ("s-mine", "n")


@aio
async def test_a_folder_that_is_no_full_path_is_refused(tmp_path: Path) -> None:
    async with standing(tmp_path, NearAgent()) as at, at.caller() as caller:
        wrong: tuple[dict[str, Any], ...] = ({"cwd": "here", "mcpServers": []}, {"mcpServers": []})
        for params in wrong:
            with pytest.raises(RemoteError) as refused:
                await caller.call("session/new", params)
            assert refused.value.code == -32602


@aio
async def test_resuming_what_nobody_knows_asks_the_peer_once_for_many(tmp_path: Path) -> None:
    agent = NearAgent(**RESUMES)
    async with standing(tmp_path, agent) as at, at.caller() as one, at.caller() as two:
        found = await asyncio.gather(
            *(each.call("session/resume", about(tmp_path, "old")) for each in (one, two))
        )
        assert methods(agent) == ["initialize", "session/resume"]
        contexts = sorted(each["_meta"]["dragoman"]["context"] for each in found)
        assert contexts == ["live", "restored"]


@aio
async def test_a_peer_that_can_only_load_is_made_to_load_and_its_words_are_swallowed(
    tmp_path: Path,
) -> None:
    agent = NearAgent(**LOADS)
    async with standing(tmp_path, agent) as at, at.caller() as caller:
        await caller.call("session/resume", about(tmp_path, "old"))
        assert methods(agent)[-1] == "session/load"
        agent.update("old", "history, late")
        live = at.broker.sessions.require("old")
        await at.until(lambda: not live.replaying)
        agent.update("old", "news")
        await caller.heard("news")
        assert caller.texts() == ["news"]


@aio
async def test_what_can_neither_be_resumed_nor_loaded_is_told_with_what_to_do(
    tmp_path: Path,
) -> None:
    async with standing(tmp_path, NearAgent()) as at, at.caller() as caller:
        with pytest.raises(RemoteError, match="begin a new one") as refused:
            await caller.call("session/resume", about(tmp_path, "old"))
        assert refused.value.code == -32002


@aio
async def test_a_session_that_the_peer_refuses_is_not_kept(tmp_path: Path) -> None:
    agent = NearAgent(**RESUMES)
    agent.refuses["session/resume"] = RemoteError(-32002, "gone")
    async with standing(tmp_path, agent) as at, at.caller() as caller:
        for _ in range(2):
            with pytest.raises(RemoteError, match="gone"):
                await caller.call("session/resume", about(tmp_path, "old"))
        assert at.broker.sessions.get("old") is None


@aio
async def test_after_a_restart_a_lost_session_can_be_tried_again_or_begun_afresh(
    tmp_path: Path,
) -> None:
    first, second = NearAgent(**RESUMES), NearAgent(**RESUMES)
    second.refuses["session/resume"] = RemoteError(-32002, "gone")
    second._sessions = 7
    async with standing(tmp_path, first, second) as at, at.caller() as caller:
        session = await caller.new(tmp_path)
        dies(first)
        await at.until(lambda: at.broker.far is not None and at.broker.far.generation == 2)
        for _ in range(2):
            with pytest.raises(RemoteError, match="has lost the session"):
                await caller.prompting(session, "x")
        prompting = at.broker.tasks.start(caller.prompting(session, "x", fresh=True), "prompt")
        await second.until(lambda: second.prompts)
        second.update("s8", "hello")
        second.end()
        assert (await prompting)["_meta"]["dragoman"]["context"] == "fresh"
        assert caller.updates[-1]["sessionId"] == session
        assert at.broker.sessions.require("s8") is at.broker.sessions.require(session)


@aio
async def test_what_nobody_has_is_closed_to_make_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "MAX_SESSIONS", 2)
    agent = NearAgent(sessionCapabilities={"close": {}})
    async with standing(tmp_path, agent) as at, at.caller() as caller:
        async with at.caller() as leaving:
            await leaving.new(tmp_path)
        await at.until(lambda: not at.broker.sessions.require("s1").readers)
        for _ in range(3):
            await caller.new(tmp_path)
        assert at.broker.sessions.get("s1") is None
        assert [method for method in methods(agent) if method == "session/close"] == [
            "session/close"
        ]
        assert at.broker.sessions.get("s4") is not None, "what somebody has is never closed"
