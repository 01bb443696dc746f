"""Whose session it is: the way of events and questions through a bridge."""

from __future__ import annotations

from dragoman.agent import Agent, Turn
from dragoman.bridge import Bridge, serve
from dragoman.client.acp.peer import open_peer
from dragoman.client.conversation import Terms
from dragoman.client.permissions import Answer, Question
from dragoman.errors import ConnectionLost
from dragoman.events import model
from dragoman.rpc.tasks import TaskOwner
from dragoman.transports import memory_pair
from tests.aio import aio
from tests.unit.bridge.between import WORKSPACE, bridged, far
from tests.unit.rpc.other_side import soon


def echo() -> Agent:
    agent = Agent("echo")

    @agent.prompt
    async def answer(turn: Turn) -> None:
        await turn.say(turn.text)

    return agent


@aio
async def test_whoever_watched_the_peer_before_still_does() -> None:
    events: list[model.Event] = []
    async with far(echo()) as peer:
        peer.on_event = events.append
        bridge = Bridge(peer)
        assert peer.on_event != events.append
        assert not bridge.raw
        async with peer.session() as session:
            await soon(session.ask("x"))
    assert model.MessageDelta in [type(event) for event in events]


@aio
async def test_a_question_about_a_session_that_nobody_has_open_is_refused() -> None:
    async with far(echo()) as peer:
        bridge = Bridge(peer)
        question = Question("nobody's", "t", "Dig", "execute", (), None)
        assert await bridge._decide(question) is Answer.REJECT_ONCE


@aio
async def test_a_session_that_is_closed_is_nobodys_any_more() -> None:
    async with bridged(echo()) as (near, bridge):
        async with near.session() as session:
            assert (await soon(session.ask("x"))).text == "x"
            assert list(bridge._links) == [session.id]
        assert bridge._links == {}


@aio
async def test_serving_ends_with_the_client_and_says_why() -> None:
    tasks = TaskOwner("test")
    async with far(echo()) as peer:
        ours, theirs = memory_pair()
        serving = tasks.start(serve(peer, theirs), "serve")
        async with await soon(open_peer(ours, Terms(workspace=WORKSPACE))) as near:
            async with near.session() as session:
                assert (await soon(session.ask("x"))).ok
        assert isinstance(await soon(serving), ConnectionLost)
        assert peer.client.sessions == ()
    await tasks.aclose()
