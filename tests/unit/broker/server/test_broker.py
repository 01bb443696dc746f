"""A broker: the parts together."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from dragoman.broker.error_codec import revive
from dragoman.broker.server import broker as brokers
from dragoman.broker.server.state_machine import BrokerState
from dragoman.errors import CallTimeout, ConnectionClosed, DragomanError, RemoteError
from tests.aio import aio
from tests.unit.broker.near import NearAgent, dies, standing


@aio
async def test_the_process_is_notified_when_the_broker_is_unused(tmp_path: Path) -> None:
    agent = NearAgent()
    async with standing(tmp_path, agent) as at:
        async with at.caller() as caller:
            session = await caller.new(tmp_path)
            params = {"sessionId": session, "prompt": [], "job": "j-1"}
            await caller.call("_dragoman/submit", params)
            await agent.until(lambda: agent.prompts)
        assert at.host.idle[-1] is False, "nobody is there, but a turn runs"
        agent.end()
        await at.until(lambda: at.host.idle[-1])
        assert at.broker._life.state is BrokerState.IDLE


@aio
async def test_the_status_tells_what_goes_on(tmp_path: Path) -> None:
    agent = NearAgent()
    async with standing(tmp_path, agent) as at, at.caller() as caller, at.caller() as other:
        session = await caller.new(tmp_path, name="mine")
        params = {"sessionId": session, "prompt": [], "job": "j-1"}
        await caller.call("_dragoman/submit", params)
        await caller.call("_dragoman/submit", params | {"job": "j-2"})
        status = await other.call("_dragoman/status")
        assert (status["state"], status["callers"], status["waiting"]) == ("serving", 1, 1)
        (told,) = status["sessions"]
        assert (told["name"], told["running"], told["queued"]) == ("mine", "j-1", 1)
        assert told["quarantined"] is False
        assert [job["id"] for job in status["jobs"]] == ["j-1", "j-2"]
        agent.end()
        await agent.until(lambda: agent.prompts)
        agent.end()
        await at.until(lambda: not at.broker.turns.queue.busy)


@aio
async def test_a_broker_that_is_asked_to_stop_if_idle_stops_only_then(tmp_path: Path) -> None:
    async with standing(tmp_path, NearAgent()) as at, at.caller() as caller:
        async with at.caller():
            asked = await caller.call("_dragoman/stop", {"ifIdle": True})
            assert asked == {"stopping": False}
        await at.until(lambda: len(at.broker._callers) == 1)
        assert await caller.call("_dragoman/stop", {"ifIdle": True}) == {"stopping": True}
        async with asyncio.timeout(5):
            await caller.connection.wait_ended()
        assert at.host.released


@pytest.mark.parametrize(
    "told", [None, [], True, {"sessionCapabilities": None}, {"loadSession": 1}]
)
@aio
async def test_a_caller_is_greeted_whatever_the_type_of_the_peers_capabilities(
    tmp_path: Path, told: Any
) -> None:
    agent = NearAgent()
    agent.capabilities = told
    async with standing(tmp_path, agent) as at, at.caller() as caller:
        assert await caller.new(tmp_path)


@aio
async def test_a_greeting_waits_for_a_peer_that_is_being_started_again(tmp_path: Path) -> None:
    first, second = NearAgent(), NearAgent()
    async with standing(tmp_path, first, second) as at:
        async with at.caller():
            dies(first)
        async with at.caller() as caller:
            assert at.broker.far is not None
            assert at.broker.far.generation == 2
            assert (await caller.call("_dragoman/status"))["starts"] == 2


@aio
async def test_a_broker_that_drains_takes_no_new_session(tmp_path: Path) -> None:
    agent = NearAgent()
    async with standing(tmp_path, agent) as at, at.caller() as caller:
        session = await caller.new(tmp_path)
        params = {"sessionId": session, "prompt": [], "job": "j-1"}
        await caller.call("_dragoman/submit", params)
        at.broker.stop(drain=True)
        assert at.host.released
        assert (await caller.call("_dragoman/hello"))["draining"] is True
        with pytest.raises(RemoteError, match="shutting down"):
            await caller.new(tmp_path)
        await agent.until(lambda: agent.prompts)
        agent.end()
        async with asyncio.timeout(5):
            await caller.connection.wait_ended()
        assert at.broker._life.state is BrokerState.STOPPED


@aio
async def test_the_text_so_far_is_reported_for_a_running_job(tmp_path: Path) -> None:
    agent = NearAgent()
    secret = "correct-horse-battery"
    async with standing(tmp_path, agent, secret_values=(secret,)) as at, at.caller() as caller:
        session = await caller.new(tmp_path)
        asked = {"sessionId": session, "prompt": [{"type": "text", "text": "x"}], "job": "j-1"}
        await caller.call("_dragoman/submit", asked)
        await agent.until(lambda: agent.prompts)
        # Less than is held back because it may be the beginning of a secret.
        for text in ("It is ", secret[:9], secret[9:], "."):
            agent.update(session, text)
        live = at.broker.sessions.require(session)
        await at.until(lambda: live.log.next == 4)
        told = await caller.call("_dragoman/result", {"job": "j-1"})
        assert told["state"] == "running"
        assert told["text"].startswith("It is ")
        assert secret not in told["text"] and told["text"].endswith(".")
        agent.end()
        ended = await caller.call("_dragoman/result", {"job": "j-1", "wait": True})
        assert ended["text"] == told["text"]


@aio
async def test_a_time_to_stay_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    async with standing(tmp_path, NearAgent()) as at, at.caller() as caller:
        with pytest.raises(RemoteError) as refused:
            await caller.call("_dragoman/hello", {"ttl": -5})
        assert refused.value.code == -32602
        assert at.host.ttl is None
        await caller.call("_dragoman/hello", {"ttl": 0})
        assert at.host.ttl == 0


@aio
async def test_the_store_is_closed_although_a_step_before_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail() -> None:
        raise OSError("cannot end")

    closed = asyncio.Event()
    async with standing(tmp_path, NearAgent()) as at:
        close = at.broker.recording.close

        async def close_store() -> None:
            monkeypatch.undo()
            await close()
            closed.set()

        monkeypatch.setattr(at.broker.recording, "ends_stored", fail)
        monkeypatch.setattr(at.broker.recording, "close", close_store)
        async with at.caller():
            pass
    assert closed.is_set()


@aio
async def test_what_waits_for_a_peer_that_does_not_start_did_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = NearAgent()
    async with standing(tmp_path, agent) as at, at.caller() as caller:
        dies(agent)
        await at.until(lambda: at.broker.far is None)
        monkeypatch.setattr(at.broker, "peer_up", lambda far: None)
        about = {"cwd": str(tmp_path / "workspace"), "mcpServers": []}
        with pytest.raises(RemoteError) as refused:
            opening = at.broker.tasks.start(caller.call("session/new", about), "open")
            await at.until(lambda: at.broker._waiting)
            at.broker.peer_unstartable(CallTimeout("initialize", 1.0))
            await opening
        assert refused.value.data["dragoman"]["details"]["method"] == "initialize"
        assert refused.value.data["dragoman"]["details"]["may_have_run"] is False

        monkeypatch.setattr(brokers, "MAX_DELAY", -at.broker.budgets.initialize)
        monkeypatch.setattr(brokers, "START_MARGIN", 0.01)
        with pytest.raises(RemoteError) as late:
            await caller.call("session/new", about)
        assert late.value.message == "the agent was not ready within 0.01 s"
        assert late.value.data["dragoman"]["details"]["may_have_run"] is False


@aio
async def test_requests_that_wait_for_the_peer_go_on_in_their_order(tmp_path: Path) -> None:
    first, second = NearAgent(), NearAgent()
    async with standing(tmp_path, first, second) as at:
        async with at.caller():
            dies(first)
            await at.until(lambda: at.broker.far is None)
            ready: list[int] = []

            async def wait(number: int) -> None:
                await at.broker.ready()
                ready.append(number)

            waiting = [at.broker.tasks.start(wait(number), "wait") for number in range(20)]
            await asyncio.wait(waiting)
    assert ready == list(range(20))


@aio
async def test_what_runs_when_a_broker_is_stopped_ends_with_that_reason(tmp_path: Path) -> None:
    agent = NearAgent()
    agent.holds.add("_theirs/own")
    async with standing(tmp_path, agent) as at, at.caller() as caller:
        session = await caller.new(tmp_path)
        asked = [caller.prompting(session, "x"), caller.call("_theirs/own")]
        running = [caller.connection.tasks.start(refused(each), "request") for each in asked]
        await agent.until(lambda: len(agent.asked) == 4)
        at.broker.stop(drain=False)
        for each in running:
            error = await each
            assert isinstance(error, ConnectionClosed)
            assert (str(error), error.may_have_run) == ("the broker was stopped", True)


async def refused(work: Coroutine[Any, Any, Any]) -> DragomanError | None:
    with pytest.raises(RemoteError) as caught:
        await work
    return revive(caught.value.data)
