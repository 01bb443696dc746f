"""The life of a turn."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import structs

from dragoman.client.budgets import Budgets
from dragoman.client.codex import CodexOptions, CodexTurn
from dragoman.client.codex import client as client_module
from dragoman.errors import (
    AuthRequired,
    BudgetExceeded,
    ConnectionEnded,
    RemoteError,
    SessionUnusable,
    TurnInProgress,
)
from dragoman.events import model
from dragoman.events.parts import Text
from dragoman.events.words import ErrorKind, Outcome
from tests.aio import aio
from tests.unit.client.codex.server_side import WAIT, Server, talking, watch

OVERLOADED = RemoteError(-32001, "Server overloaded; retry later.")
BEGUN = {"turn": {"id": "u1", "status": "inProgress"}}


@pytest.fixture(autouse=True)
def retries_are_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "OVERLOADED_DELAY", 0.001)


async def end_of(turn: Any) -> Any:
    async with asyncio.timeout(WAIT):
        return await turn.wait()


def usage(total: int) -> dict[str, Any]:
    counts = {
        "totalTokens": total,
        "inputTokens": total,
        "cachedInputTokens": 0,
        "outputTokens": 0,
        "reasoningOutputTokens": 0,
    }
    return {"threadId": "t1", "turnId": "u1", "tokenUsage": {"total": counts, "last": counts}}


@aio
async def test_a_turn_begins_with_its_prompt_and_ends_once() -> None:
    server = Server()
    async with talking(server) as (peer, talk):
        watched = watch(peer)
        async with talk.prompt("hello") as turn:
            server.start_turn()
            server.say("a")
            server.say("b")
            server.end_turn()
            async with asyncio.timeout(WAIT):
                events = [event async for event in turn]
        (started,) = [e for e in events if isinstance(e, model.TurnStarted)]
        assert (started.prompt, started.turn) == ((Text("hello"),), "u1")
        assert isinstance(events[-1], model.TurnEnded)
        assert turn.result.text == "ab"
        assert turn.result.ok
        assert [e for e in watched if not isinstance(e, model.Answered)] == events
        (params,) = server.sent("turn/start")
        assert params == {"threadId": "t1", "input": [{"type": "text", "text": "hello"}]}


@aio
async def test_the_answer_to_a_prompt_may_come_after_the_start() -> None:
    server = Server()

    def late(params: Any) -> Any:
        server.start_turn()
        server.say("x")
        server.end_turn()
        return BEGUN

    server.answers["turn/start"] = late
    async with talking(server) as (_, talk), talk.prompt("x") as turn:
        assert (await end_of(turn)).text == "x"


@aio
async def test_the_end_of_another_turn_ends_nothing() -> None:
    server = Server()
    async with talking(server) as (_, talk), talk.prompt("x") as turn:
        server.start_turn()
        server.end_turn("another")
        server.say("still here")
        server.end_turn()
        assert (await end_of(turn)).text == "still here"


@aio
async def test_a_turn_used_what_its_thread_used_since_it_began() -> None:
    server = Server()
    async with talking(server) as (_, talk):
        for total in (10, 25):
            async with talk.prompt("x") as turn:
                server.start_turn()
                server.tell("thread/tokenUsage/updated", **usage(total - 3))
                server.tell("thread/tokenUsage/updated", **usage(total))
                server.say("x")
                server.end_turn()
                result = await end_of(turn)
        assert result.usage is not None
        assert (result.usage.total_tokens, result.usage.input_tokens) == (15, 15)
        async with talk.prompt("x") as turn:
            server.start_turn()
            server.end_turn()
            ended = [event async for event in turn][-1]
            assert isinstance(ended, model.TurnEnded)
            assert ended.usage is None


@aio
async def test_a_prompt_that_is_refused_fails_its_turn_and_not_the_thread() -> None:
    server = Server({"turn/start": [RemoteError(-32600, "bad input"), BEGUN]})
    async with talking(server) as (peer, talk):
        watched = watch(peer)
        result = await talk.ask("x")
        assert result.outcome is Outcome.PROTOCOL_ERROR
        assert isinstance(result.error, RemoteError)
        assert sum(isinstance(e, model.TurnEnded) for e in watched) == 1
        async with talk.prompt("again") as turn:
            server.start_turn()
            server.say("x")
            server.end_turn()
            assert (await end_of(turn)).ok


@aio
async def test_an_answer_that_is_none_is_an_error_of_the_protocol() -> None:
    server = Server({"turn/start": {"turn": 3}})
    async with talking(server) as (_, talk):
        assert (await talk.ask("x")).outcome is Outcome.PROTOCOL_ERROR


@aio
async def test_a_prompt_that_was_refused_as_overloaded_is_sent_again() -> None:
    server = Server({"turn/start": [OVERLOADED, OVERLOADED, BEGUN]})
    async with talking(server) as (_, talk), talk.prompt("x") as turn:
        await server.wait_for("turn/start", 3)
        server.start_turn()
        server.say("x")
        server.end_turn()
        assert (await end_of(turn)).ok


@aio
async def test_an_overload_without_end_fails_the_turn() -> None:
    server = Server({"turn/start": [OVERLOADED] * client_module.OVERLOADED_TRIES})
    async with talking(server) as (_, talk):
        result = await talk.ask("x")
        assert result.outcome is Outcome.FAILED
        assert result.failure is not None
        assert result.failure.kind is ErrorKind.OVERLOADED


@aio
async def test_a_prompt_that_waits_to_be_sent_again_is_cancelled_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_module, "OVERLOADED_DELAY", 1000.0)
    server = Server({"turn/start": OVERLOADED})
    refused = asyncio.Event()
    async with talking(server) as (peer, talk):
        # An answer is told once whoever waited for it has it.
        peer.on_event = lambda event: refused.set() if event.native == "turn/start" else None
        async with talk.prompt("x") as turn:
            async with asyncio.timeout(WAIT):
                await refused.wait()
            turn.cancel()
            result = await end_of(turn)
        assert (result.outcome, result.stop) == (Outcome.CANCELLED, "cancelled before it began")
        assert not talk.unusable
        assert "turn/interrupt" not in server.methods()


@aio
async def test_a_connection_that_ends_while_a_prompt_waits_fails_the_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_module, "OVERLOADED_DELAY", 0.05)
    server = Server({"turn/start": OVERLOADED})
    async with talking(server) as (_, talk), talk.prompt("x") as turn:
        await server.wait_for("turn/start")
        await server.connection.aclose()
        assert (await end_of(turn)).outcome is Outcome.CRASHED


@aio
async def test_an_interrupt_waits_for_the_start_of_the_turn() -> None:
    server = Server()
    async with talking(server) as (_, talk):
        async with talk.prompt("x") as turn:
            turn.cancel()
            await server.wait_for("turn/start")
            assert "turn/interrupt" not in server.methods()
            server.start_turn()
            assert await server.wait_for("turn/interrupt") == {"threadId": "t1", "turnId": "u1"}
            server.end_turn(status="interrupted")
            assert (await end_of(turn)).outcome is Outcome.CANCELLED
        turn.cancel()
        assert server.methods().count("turn/interrupt") == 1
        assert not talk.unusable


@aio
async def test_an_interrupt_that_is_never_answered_gives_the_thread_up() -> None:
    server = Server()
    async with talking(server) as (peer, talk):
        watched = watch(peer)
        async with talk.prompt("x") as turn:
            server.start_turn()
            await server.wait_for("turn/start")
            turn.cancel()
            result = await end_of(turn)
        assert result.outcome is Outcome.CANCELLED
        assert [e.outcome for e in watched if isinstance(e, model.TurnEnded)] == [Outcome.CANCELLED]
        with pytest.raises(SessionUnusable):
            await talk.ask("more")


@aio
async def test_a_second_prompt_is_refused_here() -> None:
    server = Server()
    async with talking(server) as (_, talk), talk.prompt("x") as turn:
        with pytest.raises(TurnInProgress):
            await talk.ask("y")
        server.start_turn()
        server.end_turn()
        await end_of(turn)
        assert len(server.sent("turn/start")) == 1


@aio
async def test_a_budget_that_ran_out_is_the_only_end_that_is_reported() -> None:
    server = Server()
    server.answers["turn/interrupt"] = lambda params: server.end_turn(status="interrupted")
    budgets = Budgets(silence=0.05, first_event=0.05, cancel_grace=5.0)
    async with talking(server, CodexOptions(budgets=budgets)) as (peer, talk):
        watched = watch(peer)
        async with talk.prompt("x") as turn:
            server.start_turn()
            async with asyncio.timeout(WAIT):
                events = [event async for event in turn]
        assert turn.result.outcome is Outcome.TIMED_OUT
        assert isinstance(turn.result.error, BudgetExceeded)
        for seen in (events, watched):
            ends = [event for event in seen if isinstance(event, model.TurnEnded)]
            assert [end.outcome for end in ends] == [Outcome.TIMED_OUT]
            assert ends[0].raw is not None


@aio
async def test_a_crash_in_the_middle_ends_the_turn_and_keeps_what_was_said() -> None:
    server = Server()
    async with talking(server) as (peer, talk):
        watched = watch(peer)
        async with talk.prompt("x") as turn:
            server.start_turn()
            server.say("half")
            async for event in turn:
                if isinstance(event, model.MessageDelta):
                    await server.connection.aclose()
        assert turn.result.outcome is Outcome.CRASHED
        assert isinstance(turn.result.error, ConnectionEnded)
        assert turn.result.error.may_have_run
        assert turn.result.text == "half"
        kinds = [type(event) for event in watched[-2:]]
        assert kinds == [model.TurnEnded, model.ConnectionOver]


@aio
async def test_a_turn_after_a_crash_ends_as_crashed_and_observers_do_not_see_it() -> None:
    server = Server()
    async with talking(server) as (peer, talk):
        watched = watch(peer)
        await server.connection.aclose()
        async with asyncio.timeout(WAIT):
            await peer.client.connection.wait_ended()
        count = len(watched)
        async with talk.prompt("later") as turn:
            (ended,) = [event async for event in turn]
        assert isinstance(ended, model.TurnEnded) and ended.outcome is Outcome.CRASHED
        assert turn.result.error is not None and not turn.result.error.may_have_run
        # They got no start of the turn either.
        assert len(watched) == count


@aio
async def test_a_crash_ends_a_turn_that_is_not_being_read() -> None:
    server = Server()
    async with talking(server) as (_, talk):
        async with talk.prompt("x") as turn:
            await server.wait_for("turn/start")
            server.start_turn()
            await server.connection.aclose()
            async with asyncio.timeout(WAIT):
                await turn._over.wait()
        turn.cancel()


LOGIN = {"account/read": {"account": None, "requiresOpenaiAuth": True}}


@aio
async def test_a_turn_that_fails_without_a_login_needs_one() -> None:
    server = Server(dict(LOGIN))
    async with talking(server) as (_, talk), talk.prompt("x") as turn:
        server.start_turn()
        server.end_turn(status="failed", error={"message": "m", "codexErrorInfo": "other"})
        assert (await end_of(turn)).outcome is Outcome.AUTH_REQUIRED


@aio
async def test_without_a_login_nothing_is_retried() -> None:
    server = Server(dict(LOGIN))
    async with talking(server) as (_, talk), talk.prompt("x") as turn:
        server.start_turn()
        error = {"message": "Reconnecting... 1/5", "additionalDetails": "401"}
        server.tell("error", threadId="t1", turnId="u1", error=error, willRetry=True)
        await server.wait_for("turn/interrupt")
        server.end_turn(status="interrupted")
        result = await end_of(turn)
        assert result.outcome is Outcome.AUTH_REQUIRED
        assert isinstance(result.error, AuthRequired)
        assert "codex login" in result.error.hint
        assert not result.error.may_have_run


@aio
async def test_a_login_lost_after_the_agent_acted_says_that_the_turn_may_have_run() -> None:
    server = Server(dict(LOGIN))
    async with talking(server) as (_, talk), talk.prompt("x") as turn:
        server.start_turn()
        server.say("I begin")
        error = {"message": "Reconnecting... 1/5", "additionalDetails": "401"}
        server.tell("error", threadId="t1", turnId="u1", error=error, willRetry=True)
        await server.wait_for("turn/interrupt")
        server.end_turn(status="interrupted")
        result = await end_of(turn)
        assert isinstance(result.error, AuthRequired)
        assert result.error.may_have_run


@aio
async def test_with_a_login_a_retry_is_only_told() -> None:
    server = Server()
    async with talking(server) as (_, talk), talk.prompt("x") as turn:
        server.start_turn()
        error = {"message": "Reconnecting... 1/5"}
        server.tell("error", threadId="t1", turnId="u1", error=error, willRetry=True)
        server.say("made it")
        server.end_turn()
        assert (await end_of(turn)).ok
        assert "turn/interrupt" not in server.methods()


@aio
async def test_giving_up_a_turn_that_is_over_changes_nothing() -> None:
    server = Server()
    async with talking(server) as (_, talk):
        async with talk.prompt("x") as turn:
            assert isinstance(turn, CodexTurn)
            server.start_turn()
            server.say("x")
            server.end_turn()
            result = await end_of(turn)
        turn.give_up(AuthRequired())
        assert turn.result == result
        assert structs.replace(result) == result


@aio
async def test_a_prompt_that_is_refused_as_overloaded_after_a_cancel_was_cancelled() -> None:
    refuse = asyncio.Event()

    async def overloaded(params: Any) -> None:
        await refuse.wait()
        raise OVERLOADED

    server = Server({"turn/start": overloaded})
    async with talking(server) as (_, talk), talk.prompt("x") as turn:
        await server.wait_for("turn/start")
        turn.cancel()
        refuse.set()
        assert (await end_of(turn)).outcome is Outcome.CANCELLED
        assert len(server.sent("turn/start")) == 1
