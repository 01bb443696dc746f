"""Sessions: opened, found again, restored, and given up."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dragoman.broker.error_codec import refusal, revive
from dragoman.broker.server import sessions
from dragoman.errors import ConnectionClosed, RemoteError, TurnInProgress
from dragoman.store.records import EVENT_SPAN
from dragoman.wire.messages import Request
from tests.aio import aio
from tests.integration.broker_stage import Stage, TestCaller, stored
from tests.unit.broker.near import NearAgent, dies, standing

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
async def test_a_folder_that_is_not_a_full_path_is_refused(tmp_path: Path) -> None:
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
async def test_what_can_neither_be_resumed_nor_loaded_is_reported_with_what_to_do(
    tmp_path: Path,
) -> None:
    async with standing(tmp_path, NearAgent()) as at, at.caller() as caller:
        with pytest.raises(RemoteError, match="start a new one") as refused:
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
        await answered(at, first, caller, session)
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


async def answered(at: Stage, agent: NearAgent, caller: TestCaller, session: str) -> Any:
    """A prompt and its answer."""
    prompting = at.broker.tasks.start(caller.prompting(session, "x"), "prompt")
    await agent.until(lambda: agent.prompts)
    agent.end()
    return await prompting


@pytest.mark.parametrize("capabilities", [{}, RESUMES], ids=["cannot resume", "refuses"])
def test_after_a_restart_a_session_without_a_prompt_is_opened_again(
    tmp_path: Path, capabilities: dict[str, Any]
) -> None:
    @aio
    async def run() -> None:
        first, second = NearAgent(**capabilities), NearAgent(**capabilities)
        second.refuses["session/resume"] = RemoteError(-32002, "gone")
        second._sessions = 7
        async with standing(tmp_path, first, second) as at, at.caller() as caller:
            folder = str(tmp_path / "workspace")
            asked = {"cwd": folder, "mcpServers": [], "_meta": {"mine": 1}}
            session = (await caller.call("session/new", asked))["sessionId"]
            dies(first)
            await at.until(lambda: at.broker.far is not None and at.broker.far.generation == 2)
            end = await answered(at, second, caller, session)
            assert end["_meta"]["dragoman"]["context"] == "live"
            assert ("session/new", asked) in second.asked
            assert second.asked[-1][1]["sessionId"] == "s8"

    run()


@aio
async def test_after_a_restart_a_session_with_a_changed_setting_is_not_opened_without_it(
    tmp_path: Path,
) -> None:
    first, second = NearAgent(), NearAgent()
    async with standing(tmp_path, first, second) as at, at.caller() as caller:
        session = await caller.new(tmp_path)
        await caller.call("session/set_mode", {"sessionId": session, "modeId": "plan"})
        dies(first)
        await at.until(lambda: at.broker.far is not None and at.broker.far.generation == 2)
        with pytest.raises(RemoteError, match="cannot reopen the session"):
            await caller.prompting(session, "x")


class Ending(NearAgent):
    """An agent behind a gateway that loses it before it sends the first request."""

    def __init__(self, *, may_have_run: bool) -> None:
        super().__init__()
        self.lost = ConnectionClosed()
        self.lost.may_have_run = may_have_run

    def request(self, request: Request) -> Any:
        if request.method == "session/new" and "session/new" not in methods(self):
            self.refuses["session/new"] = refusal(self.lost)
        else:
            self.refuses.clear()
        return super().request(request)


@aio
async def test_a_session_whose_opening_was_not_sent_to_the_peer_is_opened_at_the_next(
    tmp_path: Path,
) -> None:
    agent = Ending(may_have_run=False)
    async with standing(tmp_path, agent) as at, at.caller() as caller:
        assert await caller.new(tmp_path) == "s1"
        assert methods(agent) == ["initialize", "session/new", "session/new"]
    agent = Ending(may_have_run=True)
    async with standing(tmp_path, agent) as at, at.caller() as caller:
        with pytest.raises(RemoteError, match="closed on this side"):
            await caller.new(tmp_path)
        assert methods(agent) == ["initialize", "session/new"]


@aio
async def test_what_nobody_has_is_closed_to_make_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "MAX_SESSIONS", 2)
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


CLOSES: dict[str, Any] = {"sessionCapabilities": {"close": {}, "resume": {}}}


@aio
async def test_a_named_session_is_in_the_store_before_its_caller_is_answered(
    tmp_path: Path,
) -> None:
    async with standing(tmp_path, NearAgent()) as at, at.caller() as caller:
        await caller.new(tmp_path, name="talk", key="s-talk")
        assert [each["record"].name for each in stored(tmp_path)] == ["talk"]


@aio
async def test_a_released_session_is_stored_to_the_last_event_and_keeps_its_name(
    tmp_path: Path,
) -> None:
    agent = NearAgent(**CLOSES)
    async with standing(tmp_path, agent) as at, at.caller() as other:
        async with at.caller() as caller:
            session = await caller.new(tmp_path, name="talk", key="s-talk")
            agent.update(session, "one")
            await caller.heard("one")
            with pytest.raises(RemoteError, match="open in another shell") as refused:
                await other.call("_dragoman/release", {"sessionId": session})
            assert isinstance(revive(refused.value.data), TurnInProgress)
        await at.until(lambda: not at.broker.sessions.require(session).readers)
        told = await other.call("_dragoman/release", {"sessionId": session})
        assert told == {"released": True, "closed": True}
        (kept,) = stored(tmp_path)
        assert [number for number, _ in kept["lines"]] == [0]
        assert (kept["record"].name, kept["record"].closed_at) == ("talk", None)
        assert agent.asked[-1] == ("session/close", {"sessionId": session})
        told = await other.call("_dragoman/release", {"sessionId": session})
        assert told == {"released": False}
        # It comes back, and its numbers go on behind all that the one before can have shown.
        meta = {"_meta": {"dragoman": {"key": "s-talk"}}}
        again = await other.call("session/resume", about(tmp_path, session) | meta)
        assert again["_meta"]["dragoman"]["next"] == 1 + EVENT_SPAN


@aio
async def test_those_who_follow_a_session_hear_that_it_was_released(tmp_path: Path) -> None:
    agent = NearAgent(**CLOSES)
    async with standing(tmp_path, agent) as at, at.caller() as caller, at.caller() as follower:
        session = await caller.new(tmp_path, name="talk", key="s-talk")
        await follower.call("_dragoman/attach", {"sessionId": session, "start": 0})
        await caller.call("_dragoman/release", {"sessionId": session})
        released = ("_dragoman/released", {"sessionId": session})
        await follower.until(lambda: released in follower.told)


@aio
async def test_a_session_is_not_released_while_its_events_cannot_be_stored(tmp_path: Path) -> None:
    agent = NearAgent(**CLOSES)
    async with standing(tmp_path, agent) as at, at.caller() as caller:
        session = await caller.new(tmp_path, name="talk")
        at.broker.recording.trouble = "the disk is full"
        with pytest.raises(RemoteError, match="the disk is full") as refused:
            await caller.call("_dragoman/release", {"sessionId": session})
        assert isinstance(revive(refused.value.data), TurnInProgress)
        at.broker.recording.trouble = ""
        told = await caller.call("_dragoman/release", {"sessionId": session})
        assert told == {"released": True, "closed": True}


@aio
async def test_a_session_whose_turn_runs_is_not_released(tmp_path: Path) -> None:
    agent = NearAgent(**CLOSES)
    async with standing(tmp_path, agent) as at, at.caller() as caller, at.caller() as other:
        session = await caller.new(tmp_path)
        prompting = at.broker.tasks.start(caller.prompting(session, "x"), "prompt")
        await agent.until(lambda: agent.prompts)
        for each in (caller, other):
            with pytest.raises(RemoteError, match="is running or queued"):
                await each.call("_dragoman/release", {"sessionId": session})
        agent.end()
        await prompting


@aio
async def test_a_peer_that_cannot_close_never_gets_a_session_back_that_went_on_elsewhere(
    tmp_path: Path,
) -> None:
    agent, again = NearAgent(**RESUMES), NearAgent(**RESUMES)
    async with standing(tmp_path, agent, again) as at, at.caller() as caller:
        session = await caller.new(tmp_path)
        told = await caller.call("_dragoman/release", {"sessionId": session})
        assert told == {"released": True, "closed": False}
        with pytest.raises(RemoteError, match="was continued in another process"):
            await caller.call("session/resume", about(tmp_path, session))
        # A new process reads what is on its disk.
        dies(agent)
        await at.until(lambda: at.broker.far is not None and at.broker.far.generation == 2)
        await caller.call("session/resume", about(tmp_path, session))
        assert methods(again)[-1] == "session/resume"
