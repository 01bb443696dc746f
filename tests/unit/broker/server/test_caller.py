"""One caller of a broker: what it asks, and who answers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dragoman.broker.server import caller as callers
from dragoman.errors import DragomanError, RemoteError
from dragoman.gateway.gateway import Gateway
from dragoman.rpc import LATER
from dragoman.wire.messages import Request
from tests.aio import aio
from tests.unit.broker.near import NearAgent, dies, standing


@aio
async def test_before_it_greets_a_caller_offers_nothing(tmp_path: Path) -> None:
    async with standing(tmp_path, NearAgent()) as at, at.caller(greet=False) as caller:
        await caller.call("_dragoman/ping")
        (known,) = at.broker._callers
        assert not known.offers("session/request_permission")
        await caller.greet(fs={"readTextFile": True})
        assert known.offers("session/request_permission")
        assert known.offers("fs/read_text_file")
        assert not known.offers("fs/write_text_file")
        assert not known.offers("terminal/create")
        assert not known.offers("elicitation/create")


@aio
async def test_malformed_requests_are_refused_one_by_one(tmp_path: Path) -> None:
    async with standing(tmp_path, NearAgent()) as at, at.caller() as caller:
        for method, params, code in (
            ("initialize", {"protocolVersion": "x"}, -32602),
            ("session/prompt", {"sessionId": 7}, -32602),
            ("session/prompt", {"sessionId": "none", "prompt": []}, -32002),
            ("session/prompt", {"sessionId": "none", "_meta": {"dragoman": 5}}, -32602),
            ("_dragoman/attach", {}, -32602),
            ("_dragoman/attach", {"sessionId": "none"}, -32002),
            ("_dragoman/submit", {"sessionId": "none"}, -32602),
            ("_dragoman/result", {"job": "none"}, -32002),
            ("_dragoman/other", {}, -32601),
            ("session/close", {"sessionId": "none"}, -32002),
        ):
            with pytest.raises(RemoteError) as refused:
                await caller.call(method, params)
            assert refused.value.code == code, method
        assert await caller.call("_dragoman/cancel", {"job": "none"}) == {"cancelled": False}


@aio
async def test_a_legacy_caller_gets_an_answer_even_if_its_gateway_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(gateway: Gateway, *args: Any, **more: Any) -> None:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(Gateway, "__init__", broken)
    async with standing(tmp_path, NearAgent()) as at, at.caller(greet=False) as caller:
        with pytest.raises(RemoteError) as failed:
            async with asyncio.timeout(10):
                await caller.call("prompt", {"text": "hello"})
        assert failed.value.code == -32603
        assert "mistake" not in str(failed.value)
    assert "serve a caller of a legacy dialect failed" in caplog.text


@aio
async def test_requests_that_are_open_at_the_peer_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callers, "MAX_FORWARDED", 0)
    async with standing(tmp_path, NearAgent()) as at, at.caller() as caller:
        with pytest.raises(RemoteError) as busy:
            await caller.call("_theirs/own")
        assert busy.value.code == -32050


@aio
async def test_a_prompt_that_is_called_off_by_its_id_is_cancelled(tmp_path: Path) -> None:
    agent = NearAgent()
    async with standing(tmp_path, agent) as at, at.caller() as caller:
        session = await caller.new(tmp_path)
        params = {"sessionId": session, "prompt": []}
        call = caller.connection.begin("session/prompt", params, settle=lambda *_: None)
        await agent.until(lambda: agent.prompts)
        caller.connection.post("$/cancel_request", {"requestId": call.id})
        caller.connection.post("$/cancel_request", {"requestId": "unknown"})
        caller.connection.post("$/cancel_request", {})
        await agent.until(lambda: agent.told)
        assert agent.told == [("session/cancel", {"sessionId": session})]
        agent.end("cancelled")


@aio
async def test_notifications_of_the_peers_own_kind_are_passed_on_and_others_are_not(
    tmp_path: Path,
) -> None:
    agent = NearAgent()
    async with standing(tmp_path, agent) as at, at.caller() as caller:
        caller.connection.post("nothing/known", {})
        caller.connection.post("session/cancel", {"sessionId": "none"})
        caller.connection.post("session/cancel", [])
        caller.connection.post("_theirs/own", {"a": 1})
        await agent.until(lambda: agent.told)
        assert agent.told == [("_theirs/own", {"a": 1})]


@aio
async def test_attaching_starts_where_the_caller_says_and_detaching_ends_it(tmp_path: Path) -> None:
    agent = NearAgent()
    async with standing(tmp_path, agent) as at, at.caller() as owner, at.caller() as watcher:
        session = await owner.new(tmp_path)
        for number in range(5):
            agent.update(session, str(number))
        await owner.heard("4")
        about = {"sessionId": session}
        assert await watcher.call("_dragoman/attach", about | {"start": 3}) == {
            "next": 5,
            "first": 0,
            "running": None,
        }
        await watcher.heard("4")
        with pytest.raises(RemoteError, match="no event 6 yet; the next is 5"):
            await owner.call("_dragoman/attach", about | {"start": 6})
        agent.update(session, "5")
        await watcher.heard("5")
        assert watcher.texts() == ["3", "4", "5"]
        await watcher.call("_dragoman/detach", about)
        agent.update(session, "6")
        await owner.heard("6")
        await watcher.call("_dragoman/ping")
        assert watcher.texts() == ["3", "4", "5"]
        await watcher.call("_dragoman/attach", about | {"start": None})
        agent.update(session, "7")
        await watcher.heard("7")
        assert watcher.texts() == ["3", "4", "5", "7"]


@aio
async def test_a_caller_that_attaches_as_the_session_is_done_still_gets_its_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = NearAgent()
    async with standing(tmp_path, agent) as at, at.caller() as owner, at.caller() as watcher:
        session = await owner.new(tmp_path)
        agent.update(session, "0")
        await owner.heard("0")
        live = at.broker.sessions.require(session)
        live.once = True

        async def first_event(asked: Any) -> int:
            for caller in list(live.readers):
                live.close_for(caller)
            at.broker.sessions.close_if_done(live)
            return 0

        monkeypatch.setattr(at.broker.recording, "first_event", first_event)
        await watcher.call("_dragoman/attach", {"sessionId": session, "start": 0})
        await watcher.heard("0")
        assert at.broker.sessions.is_open(live)


@aio
async def test_a_session_that_closes_while_a_caller_attaches_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = NearAgent()
    async with standing(tmp_path, agent) as at, at.caller() as owner, at.caller() as watcher:
        session = await owner.new(tmp_path)
        live = at.broker.sessions.require(session)

        async def first_event(asked: Any) -> int:
            await at.broker.sessions.give_up(live)
            return 0

        monkeypatch.setattr(at.broker.recording, "first_event", first_event)
        with pytest.raises(RemoteError, match="no longer open") as refused:
            await watcher.call("_dragoman/attach", {"sessionId": session, "start": 0})
        assert refused.value.code == -32002


@aio
async def test_a_setting_reaches_a_session_that_has_to_be_restored_first(tmp_path: Path) -> None:
    can: dict[str, Any] = {"sessionCapabilities": {"resume": {}}}
    first, second = NearAgent(**can), NearAgent(**can)
    async with standing(tmp_path, first, second) as at, at.caller() as caller:
        session = await caller.new(tmp_path)
        dies(first)
        await at.until(lambda: at.broker.far is None)
        await caller.call("session/set_mode", {"sessionId": session, "modeId": "x"})
        assert [method for method, _ in second.asked][1:] == ["session/resume", "session/set_mode"]


@aio
async def test_requests_that_wait_for_the_peer_are_bounded_and_can_be_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callers, "MAX_FORWARDED", 2)
    first, second = NearAgent(), SilentAgent()
    async with standing(tmp_path, first, second) as at, at.caller() as caller:
        dies(first)
        await at.until(lambda: at.broker.far is None)
        refused: list[DragomanError | None] = []
        calls = [
            caller.connection.begin(
                "_theirs/own", {}, settle=lambda _, error: refused.append(error)
            )
            for _ in range(2)
        ]
        with pytest.raises(RemoteError) as busy:
            await caller.call("_theirs/own")
        assert busy.value.code == -32050
        await second.until(lambda: len(second.asked) == 3)
        with pytest.raises(RemoteError) as still_busy:
            await caller.call("_theirs/own")
        assert still_busy.value.code == -32050, "each counts once, now that the peer has them"
        for call in calls:
            caller.connection.post("$/cancel_request", {"requestId": call.id})
        await at.until(lambda: len(refused) == 2)
        assert [getattr(error, "code", None) for error in refused] == [-32800, -32800]
        await second.until(lambda: len(second.told) == 2)
        assert [method for method, _ in second.told] == ["$/cancel_request"] * 2
        second.answers = True
        assert await caller.call("_theirs/own") == {}


class SilentAgent(NearAgent):
    """Does not answer requests of its own kind until it is allowed to."""

    answers = False

    def request(self, request: Request) -> Any:
        answer = super().request(request)
        return answer if self.answers or not request.method.startswith("_theirs/") else LATER


@pytest.mark.parametrize("reopens", [False, True])
@aio
async def test_the_response_to_a_forwarded_request_follows_the_events_before_it(
    tmp_path: Path, reopens: bool
) -> None:
    capabilities: dict[str, Any] = {"sessionCapabilities": {"resume": {}}}
    agents = [NearAgent(**capabilities), NearAgent(**capabilities)]
    async with standing(tmp_path, *agents) as at, at.caller() as caller:
        session = await caller.new(tmp_path)
        live = at.broker.sessions.require(session)
        caller.connection.stream.pause_reading()
        for _ in range(40):
            agents[0].update(session, "x" * 32 * 1024)
        await at.until(lambda: live.log.next == 40)
        answering = agents[0]
        if reopens:
            answering = agents[1]
            dies(agents[0])
            await at.until(lambda: at.broker.far is not None and at.broker.far.generation == 2)
        seen: list[int] = []
        params = {"sessionId": session, "modeId": "m"}
        caller.connection.begin(
            "session/set_mode", params, settle=lambda *_: seen.append(len(caller.updates))
        )
        await answering.until(lambda: answering.asked[-1][0] == "session/set_mode")
        (known,) = at.broker._callers
        await at.until(lambda: not known._forwarded)
        caller.connection.stream.resume_reading()
        await at.until(lambda: seen)
        assert seen == [40]
