"""Sessions: opened, found again, restored, and given up."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman.broker.error_codec import refusal, revive
from dragoman.broker.server import recorder, sessions
from dragoman.broker.server.peer_sessions import PeerSide
from dragoman.errors import ConnectionClosed, RemoteError, TurnInProgress
from dragoman.store import store_path
from dragoman.store.records import EVENT_SPAN
from dragoman.wire.messages import Request
from tests.aio import aio
from tests.integration.broker_stage import Stage, TestCaller, stored
from tests.unit.broker.near import NearAgent, dies, standing
from tests.unit.store.stores import locked

RESUMES: dict[str, Any] = {"sessionCapabilities": {"resume": {}}}
LOADS: dict[str, Any] = {"loadSession": True}


def about(tmp_path: Path, session: str) -> dict[str, Any]:
    return {"sessionId": session, "cwd": str(tmp_path / "workspace"), "mcpServers": []}


def methods(agent: NearAgent) -> list[str]:
    return [method for method, _ in agent.asked]


def begin(at: Stage, work: Any) -> asyncio.Task[Any]:
    return at.broker.tasks.start(work, "beside")


async def taken_by_now(caller: TestCaller) -> None:
    """Wait until what the caller has just begun would have reached the peer, by way of the
    store."""
    for _ in range(2):
        with pytest.raises(RemoteError, match="there is no job"):
            await caller.call("_dragoman/result", {"job": "none"})


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
async def test_resuming_an_unknown_session_asks_the_peer_once_for_many(tmp_path: Path) -> None:
    agent = NearAgent(**RESUMES)
    async with standing(tmp_path, agent) as at, at.caller() as one, at.caller() as two:
        found = await asyncio.gather(
            *(each.call("session/resume", about(tmp_path, "old")) for each in (one, two))
        )
        assert methods(agent) == ["initialize", "session/resume"]
        contexts = sorted(each["_meta"]["dragoman"]["context"] for each in found)
        assert contexts == ["live", "restored"]


@aio
async def test_a_session_that_is_being_resumed_is_live_only_when_the_peer_has_it(
    tmp_path: Path,
) -> None:
    agent = NearAgent(**RESUMES)
    agent.holds.add("session/resume")
    async with standing(tmp_path, agent) as at, at.caller() as one, at.caller() as two:
        resuming = begin(at, one.call("session/resume", about(tmp_path, "old")))
        await agent.until(lambda: "session/resume" in methods(agent))
        following = [
            begin(at, two.call("session/resume", about(tmp_path, "old"))),
            begin(at, two.call("session/set_mode", {"sessionId": "old", "modeId": "code"})),
            begin(at, two.prompting("old", "x")),
        ]
        await taken_by_now(two)
        assert methods(agent) == ["initialize", "session/resume"]
        assert not any(each.done() for each in following)
        agent.release()
        await agent.until(lambda: agent.prompts)
        agent.end()
        async with asyncio.timeout(5):
            first, second, *_ = await asyncio.gather(resuming, *following)
        assert first["_meta"]["dragoman"]["context"] == "restored"
        assert second["_meta"]["dragoman"]["context"] == "live"


@aio
async def test_nothing_is_sent_to_a_session_that_a_restarted_peer_is_still_reopening(
    tmp_path: Path,
) -> None:
    first, second = NearAgent(**RESUMES), NearAgent(**RESUMES)
    second.holds.add("session/resume")
    async with standing(tmp_path, first, second) as at, at.caller() as one, at.caller() as two:
        session = await one.new(tmp_path)
        await answered(at, first, one, session)
        dies(first)
        await at.until(lambda: at.broker.far is not None and at.broker.far.generation == 2)
        resuming = begin(at, one.call("session/resume", about(tmp_path, session)))
        await second.until(lambda: "session/resume" in methods(second))
        prompting = begin(at, two.prompting(session, "x"))
        await taken_by_now(two)
        assert not second.prompts
        second.release()
        await second.until(lambda: second.prompts)
        second.end()
        async with asyncio.timeout(5):
            assert (await resuming)["_meta"]["dragoman"]["context"] == "restored"
            assert (await prompting)["_meta"]["dragoman"]["context"] == "live"


@aio
async def test_a_session_that_is_being_closed_is_resumed_after_that(tmp_path: Path) -> None:
    agent = NearAgent(sessionCapabilities={"resume": {}, "close": {}})
    agent.holds.add("session/close")
    async with standing(tmp_path, agent) as at, at.caller() as one, at.caller() as two:
        session = await one.new(tmp_path)
        releasing = begin(at, one.call("_dragoman/release", {"sessionId": session}))
        await at.until(lambda: at.broker.sessions.get(session) is None)
        resuming = begin(at, two.call("session/resume", about(tmp_path, session)))
        await agent.until(lambda: "session/close" in methods(agent))
        await taken_by_now(two)
        assert methods(agent)[1:] == ["session/new", "session/close"]
        agent.release()
        async with asyncio.timeout(5):
            assert await releasing == {"released": True, "closed": True}
            assert (await resuming)["_meta"]["dragoman"]["context"] == "restored"
        assert methods(agent)[1:] == ["session/new", "session/close", "session/resume"]
        assert at.broker.sessions.get(session) is not None


@aio
async def test_a_restarted_peer_may_give_the_id_of_an_unused_session_again(tmp_path: Path) -> None:
    first, second = NearAgent(), NearAgent()
    async with standing(tmp_path, first, second) as at, at.caller() as caller:
        async with at.caller() as leaving:
            assert await leaving.new(tmp_path) == "s1"
            await answered(at, first, leaving, "s1")
        assert await caller.new(tmp_path) == "s2"
        await answered(at, first, caller, "s2")
        dies(first)
        await at.until(lambda: at.broker.far is not None and at.broker.far.generation == 2)
        assert await caller.new(tmp_path) == "s1"
        with pytest.raises(RemoteError, match="the session id 's2' twice"):
            await caller.new(tmp_path)
        keys = {each.key for each in at.broker.sessions}
    assert {each["record"].key for each in stored(tmp_path)} > keys


@aio
async def test_a_session_that_begins_afresh_does_not_take_the_id_of_another(
    tmp_path: Path,
) -> None:
    first, second = NearAgent(), NearAgent()
    async with standing(tmp_path, first, second) as at, at.caller() as one, at.caller() as two:
        for caller, session in ((one, "s1"), (two, "s2")):
            assert await caller.new(tmp_path) == session
            await answered(at, first, caller, session)
        dies(first)
        await at.until(lambda: at.broker.far is not None and at.broker.far.generation == 2)
        with pytest.raises(RemoteError, match="the session id 's1' twice"):
            await two.prompting("s2", "x", fresh=True)
        assert at.broker.sessions.require("s1").id == "s1"


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


class Forks(NearAgent):
    """An agent that can fork its sessions."""

    def request(self, request: Request) -> Any:
        if request.method != "session/fork":
            return super().request(request)
        self.asked.append((request.method, msgspec.json.decode(request.params)))
        return {"sessionId": "fork"}


@aio
async def test_the_history_of_a_fork_is_that_of_the_peer(tmp_path: Path) -> None:
    agent = Forks(**LOADS)
    async with standing(tmp_path, agent) as at, at.caller() as one, at.caller() as two:
        session = await one.new(tmp_path)
        forked = await one.call("session/fork", about(tmp_path, session))
        assert forked["sessionId"] == "fork"
        await two.call("session/load", about(tmp_path, "fork"))
        assert methods(agent)[-1] == "session/load", "the log has only what came after the fork"


@aio
async def test_a_restarted_peer_reopens_a_session_before_it_is_forked(tmp_path: Path) -> None:
    first, second = NearAgent(**RESUMES), Forks(**RESUMES)
    async with standing(tmp_path, first, second) as at, at.caller() as caller:
        session = await caller.new(tmp_path)
        dies(first)
        await at.until(lambda: at.broker.far is not None and at.broker.far.generation == 2)
        await caller.call("session/fork", about(tmp_path, session))
        assert methods(second)[-2:] == ["session/resume", "session/fork"]


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


@pytest.mark.parametrize(
    "error",
    [
        RemoteError(-32000, "Authentication required"),
        RemoteError(-32001, "overloaded"),
        RemoteError(-32603, "429 Too Many Requests"),
    ],
    ids=str,
)
@aio
async def test_after_a_restart_a_session_that_cannot_be_resumed_for_now_is_not_lost(
    tmp_path: Path, error: RemoteError
) -> None:
    first, second = NearAgent(**RESUMES), NearAgent(**RESUMES)
    second.refuses["session/resume"] = error
    async with standing(tmp_path, first, second) as at, at.caller() as caller:
        session = await caller.new(tmp_path)
        await answered(at, first, caller, session)
        dies(first)
        await at.until(lambda: at.broker.far is not None and at.broker.far.generation == 2)
        for fresh in (False, True):
            with pytest.raises(RemoteError) as refused:
                await caller.prompting(session, "x", fresh=fresh)
            told = refused.value
            assert (told.code, told.message) == (error.code, error.message)
            # The code of a required login already says that nothing ran.
            assert told.code == -32000 or not (revive(told.data) or told).may_have_run
        del second.refuses["session/resume"]
        prompting = at.broker.tasks.start(caller.prompting(session, "x"), "prompt")
        await second.until(lambda: second.prompts)
        second.end()
        assert (await prompting)["_meta"]["dragoman"]["context"] == "restored"


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
async def test_sessions_without_a_caller_are_closed_to_make_room(
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
async def test_a_session_is_not_released_before_its_last_events_are_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = NearAgent(**CLOSES)
    async with standing(tmp_path, agent) as at, at.caller() as caller:
        session = await caller.new(tmp_path, name="talk")
        monkeypatch.setattr(recorder, "STORED_TIMEOUT", 0.01)
        with locked(store_path(tmp_path / "state")):
            agent.update(session, "last")
            await caller.heard("last")
            with pytest.raises(RemoteError, match="the disk has not accepted it") as refused:
                await caller.call("_dragoman/release", {"sessionId": session})
            assert isinstance(revive(refused.value.data), TurnInProgress)
        monkeypatch.undo()
        told = await caller.call("_dragoman/release", {"sessionId": session})
        assert told == {"released": True, "closed": True}
    (kept,) = stored(tmp_path)
    assert [number for number, _ in kept["lines"]] == [0]


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


@aio
async def test_a_session_in_which_a_turn_begins_meanwhile_is_not_released(tmp_path: Path) -> None:
    agent = NearAgent(**RESUMES)
    async with standing(tmp_path, agent) as at, at.caller() as caller:
        async with at.caller() as other:
            session = await other.new(tmp_path)
            releasing = begin(at, caller.call("_dragoman/release", {"sessionId": session}))
            await taken_by_now(caller)
            left = {"sessionId": session, "prompt": [], "job": "j-left"}
            await other.call("_dragoman/submit", left)
        with pytest.raises(RemoteError, match="is running or queued"):
            await releasing
        await agent.until(lambda: agent.prompts)
        agent.end()
        assert (await caller.call("_dragoman/result", {"job": "j-left", "wait": True}))["outcome"]


@aio
async def test_a_session_that_is_closed_meanwhile_is_not_released_again(tmp_path: Path) -> None:
    agent = NearAgent(sessionCapabilities={"resume": {}, "close": {}})
    async with standing(tmp_path, agent) as at, at.caller() as caller, at.caller() as other:
        session = await other.new(tmp_path)
        releasing = begin(at, caller.call("_dragoman/release", {"sessionId": session}))
        await taken_by_now(caller)
        await other.call("session/close", {"sessionId": session})
        assert await releasing == {"released": False}
        assert methods(agent).count("session/close") == 1


@aio
async def test_closing_a_session_cancels_the_turn_of_the_caller_and_then_closes_it(
    tmp_path: Path,
) -> None:
    agent = NearAgent(sessionCapabilities={"close": {}})
    async with standing(tmp_path, agent) as at, at.caller() as caller:
        session = await caller.new(tmp_path)
        prompting = begin(at, caller.prompting(session, "x"))
        await agent.until(lambda: agent.prompts)
        assert await caller.call("session/close", {"sessionId": session}) == {}
        await agent.until(lambda: agent.told)
        assert agent.told == [("session/cancel", {"sessionId": session})]
        assert "session/close" not in methods(agent)
        agent.end("cancelled")
        assert (await prompting)["stopReason"] == "cancelled"
        await agent.until(lambda: "session/close" in methods(agent))
        assert at.broker.sessions.get(session) is None


@aio
async def test_a_session_that_is_closed_while_an_unattended_job_runs_is_closed_after_it(
    tmp_path: Path,
) -> None:
    agent = NearAgent(sessionCapabilities={"close": {}})
    async with standing(tmp_path, agent) as at, at.caller() as caller:
        session = await caller.new(tmp_path)
        left = {"sessionId": session, "prompt": [], "job": "j-left"}
        await caller.call("_dragoman/submit", left)
        await agent.until(lambda: agent.prompts)
        await caller.call("session/close", {"sessionId": session})
        agent.end()
        job = await caller.call("_dragoman/result", {"job": "j-left", "wait": True})
        assert job["stop"] == "end_turn"
        await agent.until(lambda: "session/close" in methods(agent))
        assert agent.told == []


@aio
async def test_a_session_whose_opening_is_cancelled_while_it_is_stored_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = NearAgent(**CLOSES)
    async with standing(tmp_path, agent) as at, at.caller() as caller:
        storing = asyncio.Event()

        async def hangs() -> bool:
            storing.set()
            return await asyncio.Event().wait()

        monkeypatch.setattr(at.broker.recording, "flush", hangs)
        params = {"cwd": str(tmp_path / "workspace"), "mcpServers": []}
        opening = caller.connection.begin("session/new", params, settle=lambda *_: None)
        await storing.wait()
        caller.connection.post("$/cancel_request", {"requestId": opening.id})
        await agent.until(lambda: agent.asked[-1][0] == "session/close")
        assert list(at.broker.sessions) == []
        monkeypatch.undo()
    (kept,) = stored(tmp_path)
    assert kept["record"].closed_at is not None


@aio
async def test_the_end_of_one_close_does_not_end_another_of_the_same_id(tmp_path: Path) -> None:
    async with standing(tmp_path, NearAgent()) as at:
        first, second = (at.broker.sessions._leaves("s1") for _ in range(2))
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert "s1" in at.broker.sessions._leaving
        second.__exit__(None, None, None)
        assert at.broker.sessions._leaving == {}
        with at.broker.sessions._leaves("s1"):
            # The second one ends first.
            with at.broker.sessions._leaves("s1"):
                pass


REOPENS: dict[str, Any] = {"sessionCapabilities": {"resume": {}, "close": {}}, "loadSession": True}


@pytest.mark.parametrize("method", ["session/load", "session/resume"])
@aio
async def test_a_known_session_that_opens_after_its_caller_has_left_is_closed_at_the_peer(
    tmp_path: Path, method: str
) -> None:
    agent = NearAgent(**REOPENS)
    agent.holds.add(method)
    async with standing(tmp_path, agent) as at, at.caller() as other:
        async with at.caller() as leaving:
            opening = begin(at, leaving.call(method, about(tmp_path, "old")))
            await agent.until(lambda: method in methods(agent))
        await asyncio.wait([opening])
        assert isinstance(opening.exception(), ConnectionClosed)
        await agent.until(lambda: "$/cancel_request" in [method for method, _ in agent.told])
        assert at.broker.sessions.get("old") is None
        # What the peer replays until then must not become a part of the session.
        agent.update("old", "history")
        agent.release()
        await agent.until(lambda: agent.asked[-1] == ("session/close", {"sessionId": "old"}))
        await other.call("session/resume", about(tmp_path, "old"))
        assert at.broker.sessions.require("old").log.next == 0


@aio
async def test_a_session_that_is_resumed_again_is_not_closed_for_the_caller_that_has_left(
    tmp_path: Path,
) -> None:
    agent = NearAgent(**REOPENS)
    agent.holds.add("session/resume")
    async with standing(tmp_path, agent) as at, at.caller() as other:
        async with at.caller() as leaving:
            opening = begin(at, leaving.call("session/resume", about(tmp_path, "old")))
            await agent.until(lambda: "session/resume" in methods(agent))
        await asyncio.wait([opening])
        again = begin(at, other.call("session/resume", about(tmp_path, "old")))
        await agent.until(lambda: methods(agent).count("session/resume") == 2)
        agent.release()
        await again
        await other.call("session/set_mode", {"sessionId": "old", "modeId": "code"})
        assert "session/close" not in methods(agent)


@aio
async def test_a_session_that_a_restarted_peer_reopens_after_the_caller_has_left_is_closed_there(
    tmp_path: Path,
) -> None:
    first, second = NearAgent(**REOPENS), NearAgent(**REOPENS)
    second.holds.add("session/resume")
    async with standing(tmp_path, first, second) as at, at.caller() as one:
        session = await one.new(tmp_path)
        await answered(at, first, one, session)
        dies(first)
        await at.until(lambda: at.broker.far is not None and at.broker.far.generation == 2)
        async with at.caller() as leaving:
            leaves = begin(at, leaving.call("session/resume", about(tmp_path, session)))
            await second.until(lambda: "session/resume" in methods(second))
        await asyncio.wait([leaves])
        await second.until(lambda: second.told)
        second.release()
        await second.until(lambda: second.asked[-1][0] == "session/close")
        # It can still be restored for the caller that has it open.
        told = await one.call("session/resume", about(tmp_path, session))
        assert told["_meta"]["dragoman"]["context"] == "restored"


@aio
async def test_a_resumed_session_that_cannot_be_prepared_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def prepare(*_: Any) -> bool:
        raise RemoteError(-32603, "no such mode")

    monkeypatch.setattr(PeerSide, "prepare", prepare)
    agent = NearAgent(**REOPENS)
    async with standing(tmp_path, agent) as at, at.caller() as caller:
        with pytest.raises(RemoteError, match="no such mode"):
            await caller.call("session/resume", about(tmp_path, "old"))
        await agent.until(lambda: agent.asked[-1] == ("session/close", {"sessionId": "old"}))


@pytest.mark.parametrize("works", [True, False])
@aio
async def test_a_session_that_is_closed_while_another_caller_reopens_it_is_kept_for_that_caller(
    tmp_path: Path, works: bool
) -> None:
    first, second = NearAgent(**REOPENS), NearAgent(**REOPENS)
    second.holds.add("session/resume")
    async with standing(tmp_path, first, second) as at, at.caller() as one, at.caller() as two:
        session = await one.new(tmp_path)
        await answered(at, first, one, session)
        dies(first)
        await at.until(lambda: at.broker.far is not None and at.broker.far.generation == 2)
        resuming = begin(at, two.call("session/resume", about(tmp_path, session)))
        await second.until(lambda: "session/resume" in methods(second))
        await one.call("session/close", {"sessionId": session})
        if works:
            second.release()
            assert (await resuming)["_meta"]["dragoman"]["context"] == "restored"
            assert "session/close" not in methods(second)
            assert at.broker.sessions.get(session) is not None
            await answered(at, second, two, session)
            await two.call("session/close", {"sessionId": session})
            assert "session/close" in methods(second)
        else:
            await two.connection.aclose()
            await asyncio.wait([resuming])
        # Closed when no caller needs it any more.
        await at.until(lambda: at.broker.sessions.get(session) is None)
