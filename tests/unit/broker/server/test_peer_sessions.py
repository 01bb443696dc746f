"""What the peer is asked for sessions, and what it opens for nobody."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import Raw

from dragoman.broker.server.liveness import Liveness
from dragoman.broker.server.peer_sessions import NEW, RESUME, PeerSide, loads, takes_up, wanted
from dragoman.client.budgets import Budgets
from dragoman.errors import CallTimeout, ConnectionLost, InvalidAnswer
from dragoman.rpc import LATER
from dragoman.rpc.tasks import TaskOwner
from dragoman.wire.messages import Request
from tests.aio import aio
from tests.integration.broker_stage import stored
from tests.unit.broker.near import NearAgent, near, standing

CLOSES: dict[str, Any] = {"sessionCapabilities": {"close": {}, "resume": {}}}


def methods(agent: NearAgent) -> list[str]:
    return [method for method, _ in agent.asked]


class SlowAgent(NearAgent):
    """An agent that opens sessions only when the test says so."""

    def __init__(self, **capabilities: Any) -> None:
        super().__init__(**capabilities)
        self.opening: list[Request] = []

    def request(self, request: Request) -> Any:
        if request.method != "session/new":
            return super().request(request)
        self.opening.append(request)
        self.changed.set()
        return LATER


@pytest.mark.parametrize("closes", [True, False])
@aio
async def test_a_session_that_is_opened_for_a_caller_who_died_is_closed_again(
    tmp_path: Path, closes: bool
) -> None:
    agent = SlowAgent(**CLOSES if closes else {})
    async with standing(tmp_path, agent) as at, at.caller() as other:
        async with at.caller() as leaving:
            opening = at.broker.tasks.start(leaving.new(tmp_path), "open a session")
            await agent.until(lambda: agent.opening)
        await asyncio.wait([opening])
        assert isinstance(opening.exception(), ConnectionLost)
        await agent.until(lambda: "$/cancel_request" in [method for method, _ in agent.told])
        assert agent.connection is not None
        agent.connection.answer(agent.opening[0], {"sessionId": "late"})
        if closes:
            await agent.until(lambda: ("session/close", {"sessionId": "late"}) in agent.asked)
        await other.call("_dragoman/ping")
        assert ("session/close" in methods(agent)) is closes
        assert at.broker.sessions.get("late") is None
        assert not list(stored(tmp_path)), "nobody ever had it"


def peer_side(tasks: TaskOwner, **budgets: float) -> PeerSide:
    hall: Any = SimpleNamespace(tasks=tasks, budgets=Budgets(**budgets), liveness=Liveness(tasks))
    return PeerSide(hall, has_session=lambda far, id: id == "known")


@pytest.mark.parametrize("late", ["late", "known"])
@aio
async def test_a_peer_that_takes_too_long_is_reported_and_a_late_session_is_closed(
    late: str,
) -> None:
    agent = SlowAgent(**CLOSES)
    tasks = TaskOwner("test")
    try:
        async with near(agent) as far:
            with pytest.raises(CallTimeout):
                await peer_side(tasks, session=0.01).open(far, NEW, Raw(b"{}"), lambda result: None)
            await agent.until(lambda: agent.told)
            assert agent.told[0][0] == "$/cancel_request"
            assert agent.connection is not None
            agent.connection.answer(agent.opening[0], {"sessionId": late})
            if late == "late":
                await agent.until(lambda: ("session/close", {"sessionId": "late"}) in agent.asked)
            await far.connection.call("session/list", {})
            assert ("session/close" in methods(agent)) is (late == "late")
    finally:
        await tasks.aclose()


@aio
async def test_a_session_whose_caller_is_cancelled_just_after_the_response_is_closed() -> None:
    agent = NearAgent(**CLOSES)
    tasks = TaskOwner("test")

    def opened(result: Raw) -> None:
        asyncio.get_running_loop().call_soon(opening.cancel)

    try:
        async with near(agent) as far:
            work = peer_side(tasks).open(far, RESUME, Raw(b"{}"), opened, id="old")
            opening = tasks.start(work, "open")
            await asyncio.wait([opening])
            assert opening.cancelled()
            await agent.until(lambda: agent.asked[-1] == ("session/close", {"sessionId": "old"}))
            assert agent.told == []
    finally:
        await tasks.aclose()


@aio
async def test_an_answer_that_makes_no_sense_is_the_peers_mistake() -> None:
    tasks = TaskOwner("test")

    def refuse(result: Raw) -> None:
        raise InvalidAnswer("a second time")

    try:
        async with near(NearAgent()) as far:
            with pytest.raises(InvalidAnswer, match="a second time"):
                await peer_side(tasks).open(far, NEW, Raw(b"{}"), refuse)
    finally:
        await tasks.aclose()


@pytest.mark.parametrize(
    ("told", "expected"),
    [({}, (False, False)), ({"loadSession": True}, (True, True)), (CLOSES, (False, True))],
)
@aio
async def test_a_peer_takes_up_what_it_says_that_it_can(
    told: dict[str, Any], expected: tuple[bool, bool]
) -> None:
    async with near(NearAgent(**told)) as far:
        assert (loads(far), takes_up(far)) == expected


def test_further_folders_are_asked_for_only_where_there_are_some() -> None:
    session: Any = SimpleNamespace(cwd=Path("/w"), mcp_servers=Raw(b"[]"), additional=())
    assert wanted(session) == {"cwd": "/w", "mcpServers": Raw(b"[]")}
    session.additional = (Path("/x"),)
    assert wanted(session)["additionalDirectories"] == ["/x"]
