"""One prompt over ACP: how it is sent, how it ends, and how it is called off.

What every turn does, whatever the dialect, is in tests/unit/client/test_turns.py.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dragoman.client.acp import ClientOptions
from dragoman.client.acp import turn as turn_module
from dragoman.client.budgets import Budgets
from dragoman.client.permissions import Answer, approve_all, deny_all
from dragoman.client.results import Result
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import (
    AuthRequired,
    BudgetExceeded,
    CallCancelled,
    ConnectionEnded,
    InvalidAnswer,
    RemoteError,
    SessionUnusable,
    TurnInProgress,
)
from dragoman.events.words import Outcome
from tests.aio import aio
from tests.unit.client.acp.agent_side import CWD, Noises, Refusal, chunk, driven, opened
from tests.unit.client.clock import LoopClock
from tests.unit.rpc.other_side import soon, until

TINY = 0.02
"""A budget that is meant to run out."""

QUICK = ClientOptions(budgets=Budgets(cancel_grace=TINY))


def texts(updates: list[acp.SessionUpdate]) -> list[str]:
    return [
        update.content.text
        for update in updates
        if isinstance(update, acp.AgentMessageChunk) and isinstance(update.content, acp.TextContent)
    ]


@aio
async def test_a_prompt_streams_its_updates_and_ends_with_a_result() -> None:
    async with opened() as (session, agent):
        async with session.prompt("hello", meta={"k": 1}) as turn:
            prompt = await agent.expect("session/prompt")
            assert prompt["params"] == {
                "sessionId": "s1",
                "prompt": [{"type": "text", "text": "hello"}],
                "_meta": {"k": 1},
            }
            agent.update(chunk("a"), chunk("b"))
            usage = {"inputTokens": 3, "outputTokens": 4}
            agent.answer(prompt, {"stopReason": "max_tokens", "usage": usage})
            assert texts([update async for update in turn]) == ["a", "b"]
            assert turn.result.stop == "max_tokens"
            used = turn.result.usage
            assert used is not None and (used.input_tokens, used.output_tokens) == (3, 4)
            assert turn.response is not None and turn.response.extra == {"usage": usage}
            assert turn.result.text == "ab"
            assert turn.result.denials == ()
        assert session.turn is None


@aio
async def test_the_end_does_not_overtake_updates_that_were_not_read_yet() -> None:
    async with opened() as (session, agent):
        async with session.prompt("hello") as turn:
            prompt = await agent.expect("session/prompt")
            agent.update(*(chunk(str(number)) for number in range(1000)))
            agent.answer(prompt, {"stopReason": "end_turn"})
            await until(lambda: session.turn is None)
            assert texts([update async for update in turn]) == [str(n) for n in range(1000)]


@aio
async def test_a_slow_consumer_sees_everything_in_order() -> None:
    async with opened() as (session, agent):
        async with session.prompt("hello") as turn:
            prompt = await agent.expect("session/prompt")
            seen: list[str] = []
            for number in range(50):
                agent.update(chunk(f"{number}"))
                if number % 7 == 0:
                    seen += texts([await anext(turn)])
            agent.answer(prompt, {"stopReason": "end_turn"})
            async for update in turn:
                seen += texts([update])
                await asyncio.sleep(0)
            assert seen == [str(number) for number in range(50)]


@aio
async def test_an_unknown_stop_reason_is_given_as_it_is() -> None:
    async with opened() as (session, agent):
        async with session.prompt("hello") as turn:
            await agent.end("tired")
            assert (await turn.wait()).stop == "tired"
            assert turn.result.usage is None


@pytest.mark.parametrize("answer", [None, {}, {"stopReason": 7}, [], "end_turn"])
@aio
async def test_an_answer_without_a_stop_reason_is_invalid_and_ends_the_turn(answer: Any) -> None:
    async with opened() as (session, agent):
        async with session.prompt("hello") as turn:
            agent.answer(await agent.expect("session/prompt"), answer)
            assert isinstance((await turn.wait()).error, InvalidAnswer)
        async with session.prompt("again") as turn:
            await agent.end()
            await turn.wait()


@aio
async def test_an_error_of_the_agent_comes_after_its_updates() -> None:
    async with opened() as (session, agent):
        async with session.prompt("hello") as turn:
            prompt = await agent.expect("session/prompt")
            agent.update(chunk("a"))
            agent.reply(prompt, Refusal(400, '{"error":"model"}', {"x": 1}))
            assert texts([update async for update in turn]) == ["a"]
            error = turn.result.error
            assert isinstance(error, RemoteError)
            assert (error.code, error.data) == (400, {"x": 1})
            with pytest.raises(RemoteError):
                turn.result.require_ok()


@aio
async def test_a_login_that_a_prompt_wants_is_said_to_be_wanted() -> None:
    replies = {"session/prompt": Refusal(-32000, "Authentication required")}
    async with opened(replies=replies) as (session, _):
        async with session.prompt("hello") as turn:
            result = await turn.wait()
            assert result.outcome is Outcome.AUTH_REQUIRED
            with pytest.raises(AuthRequired, match="log in"):
                result.require_ok()


@aio
async def test_asking_returns_a_result_with_the_text_of_the_answer() -> None:
    async with opened() as (session, agent):
        async with asyncio.TaskGroup() as tasks:
            asking = tasks.create_task(session.ask("hello"))
            prompt = await agent.expect("session/prompt")
            thought = {**chunk("hm"), "sessionUpdate": "agent_thought_chunk"}
            image = {"type": "image", "data": "AA==", "mimeType": "image/png"}
            agent.update(chunk("to"), thought, {**chunk(""), "content": image}, chunk("gether"))
            agent.answer(prompt, {"stopReason": "end_turn"})
        assert (asking.result().outcome, asking.result().text) == (Outcome.OK, "together")


@aio
async def test_what_is_not_text_tells_how_the_turn_went_too() -> None:
    tool = {"sessionUpdate": "tool_call_update", "toolCallId": "c1", "status": "completed"}
    async with opened() as (session, agent):

        async def result_of(*updates: dict[str, Any]) -> Result:
            async with session.prompt("hello") as turn:
                prompt = await agent.expect("session/prompt")
                agent.update(*updates)
                agent.answer(prompt, {"stopReason": "end_turn"})
                return await turn.wait()

        assert (await result_of()).outcome is Outcome.EMPTY
        thought = {**chunk("hm"), "sessionUpdate": "agent_thought_chunk"}
        assert (await result_of(thought)).outcome is Outcome.EMPTY
        assert (await result_of(tool)).outcome is Outcome.OK
        spent = {"sessionUpdate": "usage_update", "used": 7, "size": 9}
        cost = {"cost": {"amount": 1.5, "currency": "USD"}}
        usage = (await result_of(chunk("a"), {**spent, **cost}, chunk("b"))).usage
        assert usage is not None and (usage.context_used, usage.context_size) == (7, 9)
        assert usage.cost is not None and usage.cost.amount == 1.5
        cost["cost"]["amount"] = 2.0
        usage = (await result_of({**spent, **cost})).usage
        assert usage is not None and usage.cost is not None and usage.cost.amount == 0.5


@aio
async def test_a_consumer_of_updates_has_the_beginning_of_a_long_text_and_who_asks_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turn_module, "MAX_TEXT_SIZE", 5)
    monkeypatch.setattr(turn_module, "MAX_PIECES", 3)
    async with opened() as (session, agent):
        async with session.prompt("hello") as turn:
            prompt = await agent.expect("session/prompt")
            agent.update(*(chunk(letter) for letter in "abcdefghij"))
            agent.answer(prompt, {"stopReason": "end_turn"})
            assert len([update async for update in turn]) == 10
            assert (turn.result.text, turn.result.truncated) == ("abcde", True)
        async with asyncio.TaskGroup() as tasks:
            asking = tasks.create_task(session.ask("hello"))
            prompt = await agent.expect("session/prompt")
            agent.update(*(chunk(letter) for letter in "abcdefghij"))
            agent.answer(prompt, {"stopReason": "end_turn"})
        assert (asking.result().text, asking.result().truncated) == ("abcdefghij", False)


# -- several at once


@aio
async def test_a_second_prompt_is_refused_here_while_one_runs() -> None:
    async with opened() as (session, agent):
        async with session.prompt("first") as turn:
            await agent.expect("session/prompt")
            with pytest.raises(TurnInProgress):
                async with session.prompt("second"):
                    pytest.fail("the turn must not begin")
            assert len(agent.told("session/prompt")) == 1
            agent.answer(agent.heard[-1], {"stopReason": "end_turn"})
            await turn.wait()


@aio
async def test_sessions_of_one_connection_run_at_once_and_do_not_mix() -> None:
    numbers = iter(range(3))
    replies = {"session/new": lambda params: {"sessionId": f"s{next(numbers)}"}}
    async with driven(replies=replies) as (client, agent):
        sessions = [await client.new_session(CWD) for _ in range(3)]

        async def ask(index: int) -> str:
            return (await sessions[index].ask(f"prompt {index}")).text

        async with asyncio.TaskGroup() as tasks:
            asking = [tasks.create_task(ask(index)) for index in range(3)]
            prompts = [await agent.expect("session/prompt") for _ in range(3)]
            for part in range(4):
                for index in (2, 0, 1):
                    agent.update(chunk(f"{index}{part} "), session_id=f"s{index}")
            for prompt in reversed(prompts):
                agent.answer(prompt, {"stopReason": "end_turn"})
        assert [task.result() for task in asking] == [
            f"{index}0 {index}1 {index}2 {index}3 " for index in range(3)
        ]


# -- cancelling


@aio
async def test_a_cancel_is_sent_and_late_updates_are_taken_before_its_end() -> None:
    async with opened() as (session, agent):
        async with session.prompt("hello") as turn:
            prompt = await agent.expect("session/prompt")
            turn.cancel()
            cancel = await agent.expect("session/cancel")
            assert cancel == {
                "jsonrpc": "2.0",
                "method": "session/cancel",
                "params": {"sessionId": "s1"},
            }
            agent.update(chunk("late"))
            agent.answer(prompt, {"stopReason": "cancelled"})
            assert texts([update async for update in turn]) == ["late"]
            assert turn.result.stop == "cancelled"
            assert turn.response is not None
        assert not session.unusable


@pytest.mark.parametrize("stop_reason", ["end_turn", "refusal", "max_tokens"])
@aio
async def test_any_stop_reason_may_follow_a_cancel(stop_reason: str) -> None:
    async with opened() as (session, agent):
        async with session.prompt("hello") as turn:
            turn.cancel()
            await agent.end(stop_reason)
            assert (await turn.wait()).stop == stop_reason


@aio
async def test_the_error_for_cancelled_requests_counts_as_cancelled_after_a_cancel() -> None:
    refusal = Refusal(-32800, "Request cancelled")
    async with opened() as (session, agent):
        async with session.prompt("hello") as turn:
            prompt = await agent.expect("session/prompt")
            turn.cancel()
            agent.reply(prompt, refusal)
            result = await turn.wait()
            assert (result.outcome, result.stop) == (Outcome.CANCELLED, "cancelled")
        async with session.prompt("hello") as turn:
            # Nobody asked for this one.
            await agent.expect("session/cancel")
            agent.reply(await agent.expect("session/prompt"), refusal)
            assert isinstance((await turn.wait()).error, CallCancelled)


@aio
async def test_another_error_after_a_cancel_is_still_an_error() -> None:
    async with opened() as (session, agent):
        async with session.prompt("hello") as turn:
            turn.cancel()
            prompt = await agent.expect("session/prompt")
            agent.reply(prompt, Refusal(-32603, "AbortError"))
            assert isinstance((await turn.wait()).error, RemoteError)


@aio
async def test_a_cancel_without_an_answer_is_settled_here_and_the_session_given_up() -> None:
    noises = Noises()
    budgets = Budgets(cancel_grace=TINY)
    options = ClientOptions(budgets=budgets, on_noise=noises, permit=approve_all)
    async with opened(options) as (session, agent):
        async with session.prompt("hello") as turn:
            prompt = await agent.expect("session/prompt")
            turn.cancel()
            result = await soon(turn.wait())
        assert result == Result(Outcome.CANCELLED, "", "cancelled without an answer")
        assert turn.response is None
        assert session.unusable
        await agent.expect("session/cancel")
        assert (await agent.expect("$/cancel_request"))["params"] == {"requestId": prompt["id"]}
        agent.ask(9, "session/request_permission", agent.permission())
        answer = await agent.heard_answer(9)
        assert answer["result"] == {"outcome": {"outcome": "cancelled"}}
        with pytest.raises(SessionUnusable):
            async with session.prompt("again"):
                pytest.fail("the turn must not begin")
        # The answer comes after all, and hits nobody.
        agent.answer(prompt, {"stopReason": "cancelled"})
        assert b"stopReason" in (await noises.first()).line
        assert session.turn is None


@aio
async def test_leaving_the_block_early_cancels_at_the_agent() -> None:
    async with opened() as (session, agent):

        async def leave() -> None:
            async with session.prompt("hello") as turn:
                await anext(turn)

        async with asyncio.TaskGroup() as tasks:
            leaving = tasks.create_task(leave())
            prompt = await agent.expect("session/prompt")
            agent.update(chunk("enough"))
            await agent.expect("session/cancel")
            assert not leaving.done()
            agent.answer(prompt, {"stopReason": "cancelled"})
        async with session.prompt("next") as turn:
            await agent.end()
            await turn.wait()


@aio
async def test_a_late_cancel_cannot_hit_the_next_turn() -> None:
    async with opened() as (session, agent):
        async with session.prompt("first") as first:
            await agent.end()
            await first.wait()
        async with session.prompt("second") as second:
            first.cancel()
            await agent.end()
            assert (await second.wait()).stop == "end_turn"
        assert agent.told("session/cancel") == []


# -- budgets and the end of the agent


@pytest.mark.parametrize("name", ["first_event", "silence", "total"])
@aio
async def test_a_budget_that_runs_out_cancels_at_the_agent_and_is_the_error(name: str) -> None:
    budgets = Budgets(
        first_event=TINY if name == "first_event" else None,
        silence=TINY if name == "silence" else None,
        total=TINY if name == "total" else None,
    )
    async with opened(ClientOptions(budgets=budgets)) as (session, agent):
        async with session.prompt("hello") as turn:
            prompt = await agent.expect("session/prompt")
            if name == "silence":
                agent.update(chunk("a"))
            await agent.expect("session/cancel")
            agent.answer(prompt, {"stopReason": "cancelled"})
            error = (await turn.wait()).error
        assert isinstance(error, BudgetExceeded) and error.budget == name
        assert not session.unusable


@aio
async def test_a_response_with_the_id_of_no_request_is_named_when_the_time_is_up() -> None:
    options = ClientOptions(budgets=Budgets(cancel_grace=TINY))
    async with opened(options) as (session, agent):
        async with session.prompt("hello") as turn:
            prompt = await agent.expect("session/prompt")
            agent.answer({**prompt, "id": str(prompt["id"])}, {"stopReason": "end_turn"})
            await until(lambda: session.client.stray is not None)
            turn.expire(BudgetExceeded("total", 8))
            await agent.expect("session/cancel")
            agent.answer(prompt, {"stopReason": "cancelled"})
            error = (await turn.wait()).error
        assert str(error) == (
            f'timed out after 8 s; the agent sent a response with the id "{prompt["id"]}", '
            "which no request has"
        )
        async with session.prompt("again") as turn:
            assert session.client.stray is None
            agent.answer(await agent.expect("session/prompt"), {"stopReason": "end_turn"})
            await turn.wait()


@pytest.mark.parametrize("announced", ["by an update", "by a question"])
@aio
async def test_silence_during_a_tool_call_has_a_budget_of_its_own(announced: str) -> None:
    budgets = Budgets(first_event=None, silence=TINY, tool_silence=3 * TINY)
    options = ClientOptions(budgets=budgets, permit=approve_all)
    async with opened(options) as (session, agent):
        async with session.prompt("hello") as turn:
            prompt = await agent.expect("session/prompt")
            if announced == "by an update":
                call = {"sessionUpdate": "tool_call", "toolCallId": "t", "title": "npm test"}
                agent.update(call)
            else:
                agent.ask(1, "session/request_permission", agent.permission())
                assert "result" in await agent.next()
            await agent.expect("session/cancel")
            agent.answer(prompt, {"stopReason": "cancelled"})
            error = (await turn.wait()).error
        assert isinstance(error, BudgetExceeded) and error.budget == "tool_silence"


@pytest.mark.parametrize("over", ["completed", "refused"])
@aio
async def test_a_tool_call_that_is_over_no_longer_excuses_silence(over: str) -> None:
    budgets = Budgets(first_event=None, silence=TINY, tool_silence=60.0)
    options = ClientOptions(budgets=budgets, permit=deny_all)
    async with opened(options) as (session, agent):
        async with session.prompt("hello") as turn:
            prompt = await agent.expect("session/prompt")
            if over == "completed":
                call = {"sessionUpdate": "tool_call", "toolCallId": "t", "title": "npm test"}
                agent.update(call)
                agent.update(
                    {"sessionUpdate": "tool_call_update", "toolCallId": "t", "status": over}
                )
            else:
                agent.ask(1, "session/request_permission", agent.permission())
                assert "result" in await agent.next()
            await agent.expect("session/cancel")
            agent.answer(prompt, {"stopReason": "cancelled"})
            error = (await turn.wait()).error
        assert isinstance(error, BudgetExceeded) and error.budget == "silence"


@aio
async def test_the_silence_of_an_agent_that_waits_for_us_is_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = LoopClock(monkeypatch)
    asked, decide = asyncio.Event(), asyncio.Event()

    async def permit(question: Any) -> Answer:
        asked.set()
        await decide.wait()
        return Answer.ALLOW_ONCE

    budgets = Budgets(first_event=TINY, silence=TINY, tool_silence=TINY)
    async with opened(ClientOptions(permit=permit, budgets=budgets)) as (session, agent):
        async with session.prompt("hello") as turn:
            prompt = await agent.expect("session/prompt")
            agent.ask(1, "session/request_permission", agent.permission())
            await soon(asked.wait())
            await clock.advance(10 * TINY)
            assert not turn.cancelling
            decide.set()
            await agent.heard_answer(1)
            agent.answer(prompt, {"stopReason": "end_turn"})
            await turn.wait()


@aio
async def test_an_agent_that_goes_away_ends_the_turn_after_what_it_said() -> None:
    async with opened() as (session, agent):
        async with session.prompt("hello") as turn:
            await agent.expect("session/prompt")
            agent.update(chunk("a"), chunk("b"))
            await agent.stream.aclose()
            seen: list[acp.SessionUpdate] = []
            async for update in turn:
                seen.append(update)
            assert texts(seen) == ["a", "b"]
            error = turn.result.error
            assert isinstance(error, ConnectionEnded) and error.may_have_run
        async with session.prompt("again") as turn:
            assert session.turn is None
            result = await soon(turn.wait())
        assert result.outcome is Outcome.CRASHED
        assert isinstance(result.error, ConnectionEnded) and not result.error.may_have_run
