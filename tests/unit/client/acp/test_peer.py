"""Conversations over ACP: events in place of updates."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from dragoman.client.acp.options import ClientOptions
from dragoman.client.acp.peer import AcpPeer, open_peer
from dragoman.client.acp.session import Session
from dragoman.client.conversation import Opening
from dragoman.client.permissions import Answer, Permit, Question, approve_all, deny_all
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import ProtocolMismatch, SessionUnusable, Unsupported
from dragoman.events import model
from dragoman.events.fold import fold
from dragoman.events.parts import Image, Text
from dragoman.events.words import Outcome
from dragoman.transports.memory import memory_pair
from tests.aio import aio
from tests.unit.client.acp.agent_side import EVERYTHING, AgentSide, Refusal, chunk
from tests.unit.rpc.other_side import soon, turns, until

MODES = {
    "currentModeId": "ask",
    "availableModes": [{"id": "ask", "name": "Ask"}, {"id": "code", "name": "Code"}],
}
MODELS = {
    "currentModelId": "m1",
    "availableModels": [{"modelId": "m1", "name": "M1"}, {"modelId": "m2", "name": "M2"}],
}


@asynccontextmanager
async def talking(
    permit: Permit = deny_all, *, unstable: bool = False, **replies: Any
) -> AsyncIterator[tuple[AcpPeer, AgentSide, list[Any]]]:
    ours, theirs = memory_pair()
    agent = AgentSide(theirs)
    agent.replies["initialize"] = {"protocolVersion": 1, "agentCapabilities": EVERYTHING}
    agent.replies["session/close"] = {}
    agent.replies.update({name.replace("__", "/"): reply for name, reply in replies.items()})
    theirs.start(agent)
    events: list[Any] = []
    options = ClientOptions(permit=permit, on_event=events.append, unstable=unstable)
    try:
        async with await soon(open_peer(ours, Path("/w"), options)) as peer:
            yield peer, agent, events
    finally:
        await theirs.aclose()


def kinds(events: list[Any]) -> list[str]:
    return [type(event).__name__ for event in events]


@aio
async def test_a_session_is_announced_with_its_settings_and_the_line_that_opened_it() -> None:
    new = {"sessionId": "s1", "modes": MODES, "models": MODELS}
    async with talking(session__new=new) as (peer, _, events):
        async with peer.session() as session:
            opened, settings = events[1:]
            assert kinds(events) == ["ConnectionReady", "SessionOpened", "SettingsChanged"]
            assert (opened.session, opened.how, opened.cwd) == (session.id, "new", "/w")
            assert opened.raw is settings.raw
            assert (settings.mode, settings.model) == ("ask", "m1")
        assert kinds(events)[3:] == ["Answered"]


@aio
async def test_a_turn_is_its_start_its_events_and_its_end() -> None:
    async with talking() as (peer, agent, events):
        async with peer.session() as session, session.prompt("hi") as turn:
            request = await agent.expect("session/prompt")
            agent.update(chunk("a"), {"sessionUpdate": "odd"}, chunk("b"))
            agent.answer(request, {"stopReason": "end_turn"})
            seen = [event async for event in turn]
    assert kinds(seen) == ["TurnStarted", "MessageDelta", "Unknown", "MessageDelta", "TurnEnded"]
    assert {event.turn for event in seen} == {"t1"}
    assert (turn.result.text, turn.result.outcome) == ("ab", Outcome.OK)
    assert seen[-1].raw is not None
    assert b'"result"' in seen[-1].raw
    assert [event for event in events if event.turn == "t1"] == seen


@aio
async def test_an_update_between_turns_belongs_to_none() -> None:
    async with talking() as (peer, agent, events), peer.session() as session:
        async with session.prompt("hi") as turn:
            agent.answer(await agent.expect("session/prompt"), {"stopReason": "end_turn"})
            await turn.wait()
        agent.update(chunk("late"))
        await turns(10)
        assert (events[-1].text, events[-1].turn, events[-1].replay) == ("late", None, False)
        assert session.turn is None


@aio
async def test_an_error_that_answers_a_prompt_is_the_raw_of_its_end() -> None:
    async with talking() as (peer, agent, _), peer.session() as session:
        async with session.prompt("hi") as turn:
            agent.reply(await agent.expect("session/prompt"), Refusal(-32603, "broken"))
            *_, ended = [event async for event in turn]
    assert isinstance(ended, model.TurnEnded)
    assert b"broken" in (ended.raw or b"")
    assert (turn.result.outcome, turn.result.failure is not None) == (Outcome.FAILED, True)


@aio
async def test_questions_have_names_of_their_own_and_their_answers_name_them() -> None:
    asked: list[str] = []

    def permit(question: Question) -> Answer:
        asked.append(question.request_id)
        return Answer.ALLOW_ONCE if len(asked) == 1 else Answer.REJECT_ONCE

    async with talking(permit) as (peer, agent, events), peer.session() as session:
        async with session.prompt("hi") as turn:
            request = await agent.expect("session/prompt")
            # The same tool call and, once it is free again, the same id on the wire.
            for _ in range(2):
                agent.ask(5, "session/request_permission", agent.permission({"toolCallId": "t"}))
                await agent.next()
            agent.answer(request, {"stopReason": "end_turn"})
            result = await turn.wait()
    questions = [event for event in events if isinstance(event, model.PermissionAsked)]
    answers = [event for event in events if isinstance(event, model.PermissionAnswered)]
    assert [question.request_id for question in questions] == asked
    assert len(set(asked)) == 2
    assert [(a.request_id, a.allowed) for a in answers] == [(asked[0], True), (asked[1], False)]
    assert result.outcome is Outcome.DENIED
    assert [denial.tool_call_id for denial in result.denials] == ["t"]


@aio
async def test_a_question_that_the_agent_calls_off_is_settled() -> None:
    async def never(question: Question) -> Answer:
        await turns(1_000_000)
        raise AssertionError

    async with talking(never) as (peer, agent, events), peer.session() as session:
        async with session.prompt("hi") as turn:
            request = await agent.expect("session/prompt")
            agent.ask(5, "session/request_permission", agent.permission({"toolCallId": "t"}))
            await turns(10)
            agent.say({"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": 5}})
            await agent.next()
            agent.answer(request, {"stopReason": "end_turn"})
            await turn.wait()
    (answered,) = [event for event in events if isinstance(event, model.PermissionAnswered)]
    assert (answered.allowed, answered.by) == (False, "cancel")


@aio
async def test_the_callback_can_be_replaced_later() -> None:
    async with talking(deny_all) as (peer, agent, _), peer.session() as session:
        peer.answer_with(approve_all)
        async with session.prompt("hi") as turn:
            request = await agent.expect("session/prompt")
            agent.ask(5, "session/request_permission", agent.permission({"toolCallId": "t"}))
            answer = await agent.next()
            agent.answer(request, {"stopReason": "end_turn"})
            await turn.wait()
    assert answer["result"]["outcome"]["optionId"] == "proceed_once"


@aio
async def test_history_is_replayed_as_events_and_folds_like_a_live_session() -> None:
    def load(params: Any) -> dict[str, Any]:
        user = {"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": "q"}}
        agent.update(user, chunk("a"), session_id="old")
        return {}

    async with talking(session__load=load) as (peer, agent, events):
        async with peer.session(load="old") as session:
            await soon(session.wait_replayed())
            assert [event.replay for event in session.replayed] == [True, True]
            view = fold(session.replayed)
            assert [message.text for message in view.messages] == ["q", "a"]
            assert kinds(events)[1:4] == ["MessageDelta", "MessageDelta", "SessionOpened"]


@aio
async def test_settings_that_we_change_are_reported() -> None:
    replies: dict[str, Any] = {
        "session__new": {"sessionId": "s1", "modes": MODES, "models": MODELS},
        "session__set_mode": {},
        "session__set_model": {},
    }
    async with talking(**replies) as (peer, _, events):
        async with peer.session(mode="code") as session:
            assert fold(events).mode == "code"
            await session.set_model("m2")
            assert fold(events).model == "m2"
            with pytest.raises(Unsupported):
                await session.set_option("x", "y")


@aio
async def test_content_that_the_agent_does_not_take_is_refused_before_it_is_sent() -> None:
    hello = {"protocolVersion": 1, "agentCapabilities": {}}
    async with talking(initialize=hello) as (peer, agent, _), peer.session() as session:
        with pytest.raises(Unsupported, match="images"):
            session.prompt([Text("look"), Image("d", "image/png")])
        assert [message["method"] for message in agent.heard] == ["initialize", "session/new"]


@aio
async def test_forking_needs_a_word_because_it_is_not_stable() -> None:
    async with talking() as (peer, _, _events):
        assert peer.capabilities.fork is False
    async with talking(unstable=True, session__fork={"sessionId": "s2"}) as (peer, _, events):
        assert peer.capabilities.fork is True
        async with peer.session(fork="s1") as session:
            assert session.id == "s2"
        assert events[1].how == "fork"


@aio
async def test_a_fork_takes_everything_that_a_new_session_takes() -> None:
    replies: dict[str, Any] = {
        "session__fork": {"sessionId": "s2", "modes": MODES, "models": MODELS},
        "session__set_mode": {},
        "session__set_model": {},
    }
    server = acp.McpServerStdio(name="files", command="c", args=[], env=[])
    async with talking(unstable=True, **replies) as (peer, agent, _):
        async with peer.session(
            fork="s1",
            mode="code",
            model="m2",
            mcp_servers=[server],
            additional_directories=["/more"],
        ):
            pass
        (sent,) = agent.told("session/fork")
        assert sent["additionalDirectories"] == ["/more"]
        assert [each["name"] for each in sent["mcpServers"]] == ["files"]
        assert agent.told("session/set_mode") == [{"sessionId": "s2", "modeId": "code"}]
        assert agent.told("session/set_model") == [{"sessionId": "s2", "modelId": "m2"}]


@aio
async def test_an_agent_that_goes_away_while_a_session_is_closed_is_not_an_error() -> None:
    async with talking() as (peer, agent, _):
        del agent.replies["session/close"]

        async def go_away() -> None:
            await agent.expect("session/close")
            await agent.stream.aclose()

        session = await soon(peer.open(Opening(cwd=Path("/w"))))
        await soon(asyncio.gather(session.close(), go_away()))
        with pytest.raises(SessionUnusable):
            await session.ask("still there?")


@aio
async def test_a_handshake_that_fails_closes_the_stream() -> None:
    ours, theirs = memory_pair()
    agent = AgentSide(theirs)
    agent.replies["initialize"] = {"userAgent": "codex/1"}
    theirs.start(agent)
    with pytest.raises(ProtocolMismatch) as caught:
        await soon(open_peer(ours, Path("/w")))
    assert caught.value.dialect == "codex"
    await turns(5)
    assert agent.ended is not None
    await theirs.aclose()


@aio
async def test_what_is_reported_beside_a_session_and_a_prompt_travels_as_their_meta() -> None:
    told: list[Any] = []

    def new(params: Any) -> Any:
        told.append(params)
        return {"sessionId": "s1"}

    async with talking(session__new=new) as (peer, agent, _):
        opening = Opening(cwd=Path("/w"), metadata={"dragoman": {"name": "mine"}})
        conversation = await soon(peer.open(opening))
        assert told[0]["_meta"] == {"dragoman": {"name": "mine"}}
        async with conversation.prompt("hi", meta={"dragoman": {"job": "j-1"}}) as turn:
            request = await agent.expect("session/prompt")
            assert request["params"]["_meta"] == {"dragoman": {"job": "j-1"}}
            agent.answer(request, {"stopReason": "end_turn"})
            await turn.wait()
        await conversation.close()


@aio
async def test_a_question_that_is_open_at_the_end_of_its_turn_is_cancelled_outside_of_it() -> None:
    async def never(question: Question) -> Answer:
        await asyncio.Event().wait()
        raise AssertionError

    async with talking(never) as (peer, agent, events), peer.session() as session:
        async with session.prompt("hi") as turn:
            request = await agent.expect("session/prompt")
            agent.ask(5, "session/request_permission", agent.permission({"toolCallId": "t"}))
            await until(lambda: len(cast("Session", session).questions) == 1)
            agent.answer(request, {"stopReason": "end_turn"})
            result = await turn.wait()
        cancelled = {"outcome": {"outcome": "cancelled"}}
        assert (await agent.heard_answer(5))["result"] == cancelled
    (answer,) = [event for event in events if isinstance(event, model.PermissionAnswered)]
    assert (answer.by, answer.turn, result.denials) == ("cancel", None, ())
