"""One peer served to several clients: whose event and whose question it is."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from dragoman.bridge import bridge as bridging
from dragoman.bridge import serve
from dragoman.client.permissions import Answer, Question
from dragoman.errors import ConnectionEnded
from dragoman.events import model
from dragoman.transports.memory import memory_pair
from tests.aio import aio
from tests.unit.bridge.both_sides import ClientEnd, scene
from tests.unit.client.acp.agent_side import OPTIONS, chunk
from tests.unit.rpc.other_side import soon, turns


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
async def test_what_happens_while_a_session_is_opened_waits_for_its_client() -> None:
    async with scene() as here:
        client = await here.client()
        del here.agent.replies["session/new"]
        opening = client.begin("session/new", {"cwd": "/workspace", "mcpServers": []})
        asked = await here.agent.expect("session/new")
        here.agent.update(chunk("early"))
        here.agent.answer(asked, {"sessionId": "s1"})
        answer = await client.answered(opening)
        assert answer["result"]["sessionId"] == "s1"
        assert (await client.told("session/update"))["update"]["content"]["text"] == "early"


@aio
async def test_whoever_watched_the_peer_before_goes_on_watching_it() -> None:
    seen: list[model.Event] = []
    async with scene(on_event=seen.append) as here:
        client = await here.client()
        await client.open()
        here.agent.update(chunk("hello"))
        await client.told("session/update")
    assert "hello" in [event.text for event in seen if isinstance(event, model.MessageDelta)]


@aio
async def test_a_question_about_a_session_that_nobody_has_open_is_refused() -> None:
    async with scene() as here:
        question = Question("nobody's", "c1", "rm", "delete", [], None)
        permit = here.peer.client.options.permit
        decision: Any = permit(question)
        assert await decision is Answer.REJECT_ONCE


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
        assert [option["optionId"] for option in asked["params"]["options"]] == [
            option["optionId"] for option in OPTIONS
        ]
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
    monkeypatch.setattr(bridging, "MAX_EARLY", 3)
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


@aio
async def test_one_client_is_served_until_it_goes() -> None:
    async with scene() as here:
        ours, theirs = memory_pair()
        client = ClientEnd(theirs)
        theirs.start(client)
        await theirs.aclose()
        assert isinstance(await soon(serve(here.peer, ours)), ConnectionEnded)
