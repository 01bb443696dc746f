"""Whose session it is: the way of events and questions through a bridge."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from dragoman.agent import Agent, Turn
from dragoman.client import early_messages
from dragoman.client.acp.peer import open_peer
from dragoman.client.permissions import Answer, Question
from dragoman.errors import ConnectionEnded, ConnectionLost, UsageError
from dragoman.events import model
from dragoman.gateway import Gateway, serve
from dragoman.rpc.tasks import TaskOwner
from dragoman.transports import memory_pair
from tests.aio import aio
from tests.unit.client.acp.agent_side import chunk
from tests.unit.gateway.between import WORKSPACE, bridged, far
from tests.unit.gateway.both_sides import ClientEnd, scene
from tests.unit.rpc.other_side import soon, turns


def echo() -> Agent:
    agent = Agent("echo")

    @agent.prompt
    async def answer(turn: Turn) -> None:
        await turn.say(turn.text)

    return agent


@aio
async def test_earlier_observers_of_the_peer_stay() -> None:
    events: list[model.Event] = []
    async with far(echo()) as peer:
        peer.on_event = events.append
        bridge = Gateway(peer)
        assert peer.on_event != events.append
        assert not bridge.raw
        async with peer.session() as session:
            await soon(session.ask("x"))
    assert model.MessageDelta in [type(event) for event in events]


@aio
async def test_a_question_about_a_session_that_is_not_open_is_refused() -> None:
    async with far(echo()) as peer:
        bridge = Gateway(peer)
        question = Question("nobody's", "t", "Dig", "execute", (), None)
        assert await bridge._decide(question) is Answer.REJECT_ONCE


@aio
async def test_a_closed_session_has_no_owner() -> None:
    async with bridged(echo()) as (near, bridge):
        async with near.session() as session:
            assert (await soon(session.ask("x"))).text == "x"
            assert bridge._upstream is not None and session.id in bridge._upstream
        assert session.id not in bridge._upstream


@aio
async def test_a_line_limit_that_cannot_work_is_an_error_at_once() -> None:
    async with far(echo()) as peer:
        with pytest.raises(UsageError, match="max_line_size="):
            Gateway(peer, max_line_size=10)


@aio
async def test_serving_ends_with_the_client_and_says_why() -> None:
    tasks = TaskOwner("test")
    async with far(echo()) as peer:
        ours, theirs = memory_pair()
        serving = tasks.start(serve(peer, theirs), "serve")
        async with await soon(open_peer(ours, WORKSPACE)) as near:
            async with near.session() as session:
                assert (await soon(session.ask("x"))).ok
        assert isinstance(await soon(serving), ConnectionLost)
        assert peer.client.sessions == ()
    await tasks.aclose()


# -- several clients, played message by message


def numbered() -> Any:
    """New sessions as s1, s2 and so on."""
    numbers = count(1)
    return lambda params: {"sessionId": f"s{next(numbers)}"}


def texts(client: ClientEnd) -> list[str]:
    return [
        message["params"]["update"]["content"]["text"]
        for message in client.heard
        if message.get("method") == "session/update"
    ]


@aio
async def test_each_client_hears_only_of_its_own_session() -> None:
    async with scene(replies={"session/new": numbered()}) as here:
        one, two = await here.client(), await here.client()
        assert [await one.open(), await two.open()] == ["s1", "s2"]
        here.agent.update(chunk("for two"), session_id="s2")
        here.agent.update(chunk("for one"), session_id="s1")
        assert (await one.told("session/update"))["sessionId"] == "s1"
        assert (await two.told("session/update"))["sessionId"] == "s2"
        assert (texts(one), texts(two)) == (["for one"], ["for two"])


@aio
async def test_a_question_goes_to_the_client_whose_session_it_is_about() -> None:
    async with scene(replies={"session/new": numbered()}) as here:
        one, two = await here.client(), await here.client()
        await one.open()
        await two.open()
        prompting = two.prompt("go", "s2")
        prompt = await here.agent.expect("session/prompt")
        here.agent.ask("q", "session/request_permission", here.agent.permission(session_id="s2"))
        asked = await two.next()
        assert asked["method"] == "session/request_permission"
        two.answer(asked, {"outcome": {"outcome": "selected", "optionId": "proceed_always"}})
        answer = await here.agent.heard_answer("q")
        assert answer["result"]["outcome"]["optionId"] == "proceed_always"
        here.agent.answer(prompt, {"stopReason": "end_turn"})
        await two.answered(prompting)
        assert all(message.get("method") is None for message in one.heard)


@aio
async def test_a_session_whose_client_has_gone_is_closed_and_forgotten() -> None:
    async with scene() as here:
        client = await here.client()
        await client.open()
        await client.stream.aclose()
        assert isinstance(await soon(client.served), ConnectionEnded)
        assert here.agent.told("session/close") == [{"sessionId": "s1"}]
        here.agent.update(chunk("to nobody"))
        await turns()
        again = await here.client()
        assert await again.open() == "s1"
        assert texts(again) == []


@aio
async def test_only_so_much_is_kept_for_a_session_that_is_being_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(early_messages, "MAX_EARLY", 3)
    async with scene() as here:
        client = await here.client()
        del here.agent.replies["session/new"]
        opening = client.begin("session/new", {"cwd": "/workspace", "mcpServers": []})
        asked = await here.agent.expect("session/new")
        here.agent.update(*(chunk(str(number)) for number in range(9)))
        here.agent.answer(asked, {"sessionId": "s1"})
        await client.answered(opening)
        for _ in range(3):
            await client.told("session/update")
        await turns()
        assert texts(client) == ["0", "1", "2"]
