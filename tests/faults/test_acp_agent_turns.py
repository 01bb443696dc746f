"""How turns of an agent end: by themselves, by a cancel, or because the client is lost."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Callable
from typing import Any

import pytest

from dragoman.agent import BlockingTurn, Turn, server
from dragoman.agent.session import Session
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import RemoteError
from tests.aio import aio
from tests.unit.agent.client_end import (
    CANCELLED,
    OLD,
    ClientEnd,
    Hanging,
    agent_with,
    in_session,
    served,
    simple_agent,
)
from tests.unit.agent.test_settings import MODES
from tests.unit.rpc.other_side import until

# -- turns


@pytest.mark.parametrize(
    "reason", ["end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"]
)
@aio
async def test_a_handler_may_say_why_it_stopped(reason: str) -> None:
    async def handler(turn: Turn) -> str:
        return reason

    async with in_session(agent_with(handler)) as (client, session):
        assert await client.ask(session) == reason


@aio
async def test_a_handler_may_answer_in_full() -> None:
    async def handler(turn: Turn) -> acp.PromptResponse:
        return acp.PromptResponse(stop_reason="end_turn", meta={"k": 1})

    async with in_session(agent_with(handler)) as (client, session):
        answer = await client.call("session/prompt", ClientEnd.prompt_of(session, "x"))
        assert answer == {"stopReason": "end_turn", "_meta": {"k": 1}}


@pytest.mark.parametrize("nonsense", ["Here is your answer", "", 7])
@aio
async def test_a_text_that_is_returned_is_not_sent_as_a_stop_reason(
    nonsense: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def handler(turn: Turn) -> Any:
        return nonsense

    async with in_session(agent_with(handler)) as (client, session):
        error = await client.refused("session/prompt", ClientEnd.prompt_of(session, "x"))
        assert error["code"] == -32603
        assert "must return None or a stop reason" in caplog.text


@aio
async def test_an_error_raised_on_purpose_travels_as_it_is_and_is_not_an_incident(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def handler(turn: Turn, text: str = "") -> None:
        raise RemoteError(-32099, "out of ink", {"colour": "blue"})

    agent = agent_with(handler)
    agent.command("go")(handler)
    async with in_session(agent) as (client, session):
        for text in ("hello", "/go"):
            error = await client.refused("session/prompt", ClientEnd.prompt_of(session, text))
            assert error == {"code": -32099, "message": "out of ink", "data": {"colour": "blue"}}
    assert caplog.records == []


@aio
async def test_the_text_of_an_accident_does_not_travel(caplog: pytest.LogCaptureFixture) -> None:
    async def handler(turn: Turn) -> None:
        raise RuntimeError("the password is swordfish")

    async with in_session(agent_with(handler)) as (client, session):
        error = await client.refused("session/prompt", ClientEnd.prompt_of(session, "x"))
        assert (error["code"], error["message"]) == (-32603, "Internal error")
        assert error["data"]["incident"] in caplog.text
        assert "swordfish" in caplog.text
        assert "swordfish" not in json.dumps(client.heard)
        # The session can still be used.
        await client.refused("session/prompt", ClientEnd.prompt_of(session, "x"))


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("code", [-32000, -32002, -32601, -32800])
@aio
async def test_what_the_client_answered_is_not_an_answer_to_the_client(
    code: int, is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def handler(turn: Turn) -> None:
        await turn.read_file("/x")

    def plain_handler(turn: BlockingTurn) -> None:
        turn.read_file("/x")

    async def again(turn: Turn, text: str) -> None:
        try:
            await turn.client.call_extension("_x/ask", {})
        except RemoteError as error:
            if text:
                raise RemoteError(-32099, "on purpose") from error
            raise

    agent = agent_with(handler if is_async else plain_handler)
    agent.command("again")(again)

    @agent.load_session
    async def load(session: Session, replay: Turn) -> None:
        await replay.client.call_extension("_x/ask", {})

    async with in_session(agent) as (client, session):

        async def prompted(method: str, params: Any, asked: str) -> Any:
            id = client.send(method, params)
            refused = await client.asked(asked)
            error = {"code": code, "message": "not here"}
            client.say({"jsonrpc": "2.0", "id": refused["id"], "error": error})
            return (await client.answer_to(id))["error"]

        prompt = functools.partial(prompted, "session/prompt")
        for error in (
            await prompt(ClientEnd.prompt_of(session, "x"), "fs/read_text_file"),
            await prompt(ClientEnd.prompt_of(session, "/again"), "_x/ask"),
            await prompted("session/load", OLD, "_x/ask"),
        ):
            assert (error["code"], error["message"]) == (-32603, "Internal error")
            assert error["data"]["incident"] in caplog.text
        error = await prompt(ClientEnd.prompt_of(session, "/again and again"), "_x/ask")
        assert error == {"code": -32099, "message": "on purpose"}


@aio
async def test_a_second_prompt_is_refused_while_one_runs() -> None:
    async with in_session(agent_with(Hanging())) as (client, session):
        prompt = client.prompt(session)
        await client.update()
        error = await client.refused("session/prompt", ClientEnd.prompt_of(session, "x"))
        assert error["code"] == -32600
        client.cancel(session)
        assert (await client.answer_to(prompt))["result"] == CANCELLED


@aio
async def test_of_two_prompts_in_one_piece_the_second_is_refused() -> None:
    async with in_session(agent_with(Hanging())) as (client, session):
        first = client.asking("session/prompt", ClientEnd.prompt_of(session, "one"))
        second = client.asking("session/prompt", ClientEnd.prompt_of(session, "two"))
        client.say(first, second)
        assert (await client.answer_to(second["id"]))["error"]["code"] == -32600
        client.cancel(session)
        assert (await client.answer_to(first["id"]))["result"] == CANCELLED


@pytest.mark.parametrize("params", [None, {}, {"prompt": "hello"}, {"prompt": [{"type": "text"}]}])
@aio
async def test_a_malformed_prompt_is_refused_and_does_not_block_the_session(params: Any) -> None:
    async with in_session(simple_agent()) as (client, session):
        damaged = None if params is None else {"sessionId": session, **params}
        assert (await client.refused("session/prompt", damaged))["code"] == -32602
        assert await client.ask(session) == "end_turn"


@aio
async def test_other_sessions_are_served_while_a_prompt_runs() -> None:
    async def handler(turn: Turn) -> None:
        if turn.text == "hang":
            await asyncio.Event().wait()
        await turn.say(turn.text)

    async with in_session(agent_with(handler, modes=MODES)) as (client, one):
        prompt = client.prompt(one, "hang")
        two = await client.new_session()
        assert await client.ask(two, "quick") == "end_turn"
        await client.call("session/set_mode", {"sessionId": one, "modeId": "plan"})
        client.cancel(two)
        await client.call("session/set_mode", {"sessionId": two, "modeId": "plan"})
        client.cancel(one)
        assert (await client.answer_to(prompt))["result"] == CANCELLED


@pytest.mark.parametrize("kind", ["object", "partial", "method"])
@aio
async def test_a_handler_may_be_anything_that_is_called_like_an_async_function(kind: str) -> None:
    class Handler:
        async def __call__(self, turn: Turn) -> None:
            await self.answer(turn)

        async def answer(self, turn: Turn, word: str = "hello") -> None:
            assert isinstance(turn, Turn)
            await turn.say(word)

    handler = Handler()
    handlers: dict[str, Callable[..., Any]] = {
        "object": handler,
        "partial": functools.partial(handler.answer, word="hello"),
        "method": handler.answer,
    }
    async with in_session(agent_with(handlers[kind])) as (client, session):
        assert await client.ask(session) == "end_turn"
        assert client.texts() == ["hello"]


# -- cancelling


async def _swallow(turn: Turn) -> str:
    await turn.say("so what")
    return "end_turn"


async def _raise(turn: Turn) -> None:
    raise RuntimeError("in my clean-up")


async def _refuse(turn: Turn) -> None:
    raise RemoteError(-32000, "log in")


@pytest.mark.parametrize("then", [None, _swallow, _raise, _refuse])
@aio
async def test_a_cancel_becomes_cancelled_whatever_the_handler_does_then(then: Any) -> None:
    hanging = Hanging(then)
    async with in_session(agent_with(hanging)) as (client, session):
        prompt = client.prompt(session)
        await client.update()
        client.cancel(session)
        answer = await client.answer_to(prompt)
        assert answer["result"] == CANCELLED
        assert hanging.states == ["cancelled", "ended"]
        assert client.heard[-1] is answer
        assert ("so what" in client.texts()) is (then is _swallow)


@aio
async def test_a_handler_that_does_not_end_is_answered_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server, "CANCEL_GRACE", 0.02)

    async def hang_on(turn: Turn) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await turn.say("nobody hears this")

    hanging = Hanging(hang_on)
    async with in_session(agent_with(hanging)) as (client, session):
        prompt = client.prompt(session)
        await client.update()
        client.cancel(session)
        assert (await client.answer_to(prompt))["result"] == CANCELLED
        # It was cancelled a second time, and then it ended.
        await until(lambda: hanging.states == ["cancelled", "ended"])
        assert client.texts() == ["begun"]
        prompt = client.prompt(session)
        await client.update(lambda update: len(client.texts()) == 2)
        client.cancel(session)
        await client.answer_to(prompt)
    assert "is still running" in caplog.text


@aio
async def test_a_cancel_in_one_piece_with_its_prompt_is_not_lost() -> None:
    begun: list[str] = []

    async def handler(turn: Turn) -> None:
        begun.append(turn.text)
        await asyncio.Event().wait()

    async with in_session(agent_with(handler)) as (client, session):
        prompt = client.asking("session/prompt", ClientEnd.prompt_of(session, "x"))
        client.say(prompt, client.noting("session/cancel", {"sessionId": session}))
        assert (await client.answer_to(prompt["id"]))["result"] == CANCELLED
        assert begun == []


@aio
async def test_a_cancel_of_an_idle_or_unknown_session_does_nothing() -> None:
    async with in_session(simple_agent()) as (client, session):
        client.cancel(session)
        client.cancel("nobody")
        assert await client.ask(session) == "end_turn"
        client.cancel(session)
        prompt = client.asking("session/prompt", ClientEnd.prompt_of(session, "x"))
        client.say(client.noting("session/cancel", {"sessionId": session}), prompt)
        assert (await client.answer_to(prompt["id"]))["result"] == {"stopReason": "end_turn"}


@aio
async def test_two_cancels_cancel_once() -> None:
    cancels = 0

    async def handler(turn: Turn) -> None:
        nonlocal cancels
        await turn.say("begun")
        for _ in range(2):
            try:
                await asyncio.sleep(0.02 if cancels else 60.0)
            except asyncio.CancelledError:
                cancels += 1

    async with in_session(agent_with(handler)) as (client, session):
        prompt = client.prompt(session)
        await client.update()
        client.cancel(session)
        client.cancel(session)
        assert (await client.answer_to(prompt))["result"] == CANCELLED
    assert cancels == 1


@aio
async def test_a_prompt_that_is_called_off_as_a_request_is_answered_as_cancelled() -> None:
    hanging = Hanging()
    async with in_session(agent_with(hanging)) as (client, session):
        prompt = client.prompt(session)
        await client.update()
        client.tell("$/cancel_request", {"requestId": prompt})
        assert (await client.answer_to(prompt))["error"]["code"] == -32800
        await until(lambda: hanging.states == ["cancelled", "ended"])
        next_prompt = client.prompt(session)
        client.cancel(session)
        assert (await client.answer_to(next_prompt))["result"] == CANCELLED


@pytest.mark.parametrize("method", ["session/close", "session/delete"])
@aio
async def test_closing_and_deleting_cancel_the_turn_first(method: str) -> None:
    hanging = Hanging()
    agent = agent_with(hanging)

    @agent.close_session
    async def close(session: Session) -> None:
        hanging.states.append("closed")

    @agent.delete_session
    async def delete(session_id: str) -> None:
        hanging.states.append("deleted")

    async with in_session(agent) as (client, session):
        prompt = client.prompt(session)
        await client.update()
        assert await client.call(method, {"sessionId": session}) == {}
        assert (await client.answer_to(prompt))["result"] == CANCELLED
        answers = [m["id"] for m in client.heard if "method" not in m]
        assert answers[-2] == prompt, "the turn ends before the session does"
        assert hanging.states[:2] == ["cancelled", "ended"]
        assert hanging.states[2:] == (["closed"] if method == "session/close" else ["deleted"])
        error = await client.refused("session/prompt", ClientEnd.prompt_of(session, "x"))
        assert error["code"] == -32002


@aio
async def test_deleting_a_session_that_is_not_open_is_the_authors_business() -> None:
    agent = simple_agent()
    deleted: list[str] = []

    @agent.delete_session
    async def delete(session_id: str) -> None:
        deleted.append(session_id)

    async with served(agent) as client:
        await client.shake_hands()
        assert await client.call("session/delete", {"sessionId": "x"}) == {}
        assert await client.call("session/delete", {"sessionId": "x"}) == {}
    assert deleted == ["x", "x"]


@aio
async def test_closing_needs_no_handler() -> None:
    async with in_session(simple_agent()) as (client, session):
        assert await client.call("session/close", {"sessionId": session}) == {}
        assert (await client.refused("session/close", {"sessionId": session}))["code"] == -32002


@aio
async def test_a_client_that_goes_away_cancels_every_handler() -> None:
    hangings = [Hanging() for _ in range(3)]
    waiting = iter(hangings)

    async def handler(turn: Turn) -> None:
        await next(waiting)(turn)

    async with in_session(agent_with(handler)) as (client, first):
        for session in (first, await client.new_session(), await client.new_session()):
            client.prompt(session)
        await until(lambda: len(client.texts()) == 3)
    for hanging in hangings:
        assert hanging.states == ["cancelled", "ended"]
