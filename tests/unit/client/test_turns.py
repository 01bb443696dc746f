"""The life of a turn, with a dialect of one word and no connection."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest

from dragoman.client.budgets import Budgets
from dragoman.client.turns import BaseTurn, TurnEndMark, TurnStage
from dragoman.errors import (
    BudgetExceeded,
    ConnectionClosed,
    ConnectionEnded,
    ConnectionLost,
    Overflow,
    PeerBusy,
    SessionUnusable,
    TurnInProgress,
    UsageError,
)
from dragoman.rpc import Call, Limits
from dragoman.rpc.lanes import Flow
from dragoman.rpc.tasks import TaskOwner
from tests.aio import aio
from tests.unit.client.clock import LoopClock
from tests.unit.rpc.other_side import soon, turns, until

TINY = 0.02
"""A budget that is meant to run out."""

PATIENT = Budgets(first_event=None, silence=None, cancel_grace=60.0)


def new_flow(limits: Limits | None = None) -> Flow:
    return Flow(lambda: None, lambda: None, limits or Limits())


class Conversation:
    """What a turn needs of a session."""

    def __init__(self) -> None:
        self.id = "s"
        self.turn: Any = None
        self.unusable = False
        self.questions_cancelled = 0
        self.replayed = asyncio.Event()
        self.replayed.set()

    def cancel_questions(self) -> None:
        self.questions_cancelled += 1

    async def wait_replayed(self) -> None:
        await self.replayed.wait()


class Turn(BaseTurn[str, str]):
    """Items and results are words."""

    def __init__(
        self,
        session: Conversation,
        budgets: Budgets = PATIENT,
        flow: Flow | None = None,
        fails: Exception | None = None,
    ) -> None:
        self.log: list[str] = []
        self.fails = fails
        self.room = asyncio.Event()
        self.room.set()
        super().__init__(session, flow or new_flow(), budgets)

    async def _wait_for_room(self) -> None:
        await self.room.wait()

    def _send(self) -> Call:
        if self.fails is not None:
            raise self.fails
        self.log.append("prompt")
        return Call("prompt", lambda _: self.log.append("forgotten"), lambda *_: None)

    def _send_cancel(self) -> None:
        self.log.append("cancel")

    def _cancelled(self) -> str:
        return "given up"

    def answer(self, result: str) -> None:
        self._finish(TurnEndMark(result))

    def fail(self, error: Any) -> None:
        self._finish(TurnEndMark(error=error))


@aio
async def test_items_come_in_order_and_then_the_result() -> None:
    session = Conversation()
    async with Turn(session) as turn:
        assert session.turn is turn
        for word in ("a", "b", "c"):
            turn.put(word, 1)
        turn.answer("done")
        assert [word async for word in turn] == ["a", "b", "c"]
        assert turn.result == "done"
        assert [word async for word in turn] == []
    assert session.turn is None
    assert turn.log == ["prompt"]


@aio
async def test_a_prompt_waits_while_the_agent_does_not_read() -> None:
    session = Conversation()
    turn = Turn(session)
    turn.room.clear()
    tasks = TaskOwner("test")
    began = tasks.start(turn.begin(), "begin")
    await turns()
    assert (turn.log, session.turn) == ([], None)
    turn.room.set()
    await soon(began)
    assert turn.log == ["prompt"]
    turn.answer("done")
    assert await turn.wait() == "done"


@aio
async def test_there_is_no_result_before_the_items_were_read_to_the_end() -> None:
    async with Turn(Conversation()) as turn:
        with pytest.raises(UsageError):
            _ = turn.result
        turn.put("a", 1)
        turn.answer("done")
        with pytest.raises(UsageError):
            _ = turn.result
        assert await turn.wait() == "done"
        assert turn.result == "done"


@aio
async def test_a_failure_is_raised_after_the_items_and_again_for_the_result() -> None:
    async with Turn(Conversation()) as turn:
        turn.put("a", 1)
        turn.fail(ConnectionEnded())
        assert await anext(turn) == "a"
        with pytest.raises(ConnectionEnded):
            await anext(turn)
        with pytest.raises(ConnectionEnded):
            _ = turn.result


@aio
async def test_a_second_turn_is_refused_while_one_runs_and_nothing_is_sent() -> None:
    session = Conversation()
    async with Turn(session) as first:
        second = Turn(session)
        with pytest.raises(TurnInProgress):
            async with second:
                pass
        assert second.log == []
        assert session.turn is first
        first.answer("done")
    async with Turn(session) as third:
        third.answer("done")


@aio
async def test_of_two_turns_that_wait_for_the_same_replay_one_is_sent() -> None:
    session = Conversation()
    session.replayed.clear()
    first, second = Turn(session), Turn(session)

    async def too_late() -> None:
        with pytest.raises(TurnInProgress):
            await second.begin()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(first.begin())
        tasks.create_task(too_late())
        await turns()
        assert first.log == second.log == []
        session.replayed.set()
    assert first.log == ["prompt"]
    assert second.log == []
    first.answer("done")


@aio
async def test_a_session_that_was_given_up_is_not_prompted() -> None:
    session = Conversation()
    session.unusable = True
    turn = Turn(session)
    with pytest.raises(SessionUnusable):
        await turn.begin()
    assert turn.log == []
    assert session.turn is None


@aio
async def test_a_prompt_that_cannot_be_sent_leaves_the_session_free() -> None:
    session, flow = Conversation(), new_flow()
    turn = Turn(session, flow=flow, fails=ConnectionClosed())
    with pytest.raises(ConnectionClosed):
        async with turn:
            pass
    assert session.turn is None
    assert turn.state is TurnStage.ENDED
    async with Turn(session, flow=flow) as next_turn:
        next_turn.answer("done")


@pytest.mark.parametrize("error", [ConnectionEnded(), PeerBusy("prompt", "earlier")])
@aio
async def test_a_turn_begins_and_fails_if_the_agent_could_not_take_the_prompt(
    error: ConnectionLost | PeerBusy,
) -> None:
    session, flow = Conversation(), new_flow()
    if isinstance(error, ConnectionLost):
        flow.close(error)
    async with Turn(session, flow=flow, fails=error) as turn:
        assert session.turn is None
        assert turn.unsent is error
        with pytest.raises(type(error)):
            await soon(turn.wait())
    with pytest.raises(type(error)):
        _ = turn.result
    assert not error.may_have_run


@aio
async def test_a_turn_is_begun_once_and_not_read_before() -> None:
    turn = Turn(Conversation())
    with pytest.raises(UsageError, match="async with"):
        await anext(turn)
    async with turn:
        turn.answer("done")
        with pytest.raises(UsageError, match="once"):
            await turn.begin()


@aio
async def test_a_turn_that_is_never_begun_leaves_nothing_with_the_connection() -> None:
    flow = new_flow()
    turn = Turn(Conversation(), flow=flow)
    trace = weakref.ref(turn)
    del turn
    gc.collect()
    assert trace() is None
    assert not flow._lanes


@aio
async def test_a_turn_that_was_read_to_its_end_leaves_nothing_with_the_connection() -> None:
    flow = new_flow()
    turn = Turn(Conversation(), flow=flow)
    await turn.begin()
    turn.put("a", 1)
    turn.answer("done")
    assert await turn.wait() == "done"
    assert not flow._lanes
    assert flow.queued == 0


# -- cancelling


@aio
async def test_cancelling_tells_the_other_side_and_answers_open_questions() -> None:
    session = Conversation()
    async with Turn(session) as turn:
        turn.cancel()
        assert turn.cancelling
        assert turn.log == ["prompt", "cancel"]
        assert session.questions_cancelled == 1
        turn.put("late", 1)
        turn.answer("cancelled")
        assert [word async for word in turn] == ["late"]
        assert turn.result == "cancelled"
    assert not session.unusable


@aio
async def test_cancelling_twice_is_cancelling_once() -> None:
    async with Turn(Conversation()) as turn:
        turn.cancel()
        turn.cancel()
        turn.answer("cancelled")
    assert turn.log == ["prompt", "cancel"]


@aio
async def test_cancelling_an_ended_turn_does_nothing() -> None:
    session = Conversation()
    async with Turn(session) as turn:
        turn.answer("done")
    async with Turn(session) as following:
        turn.cancel()
        assert turn.log == ["prompt"]
        assert session.questions_cancelled == 0
        assert following.state is TurnStage.RUNNING
        following.answer("done")


@aio
async def test_a_natural_end_may_win_against_a_cancel() -> None:
    async with Turn(Conversation()) as turn:
        turn.cancel()
        turn.answer("done")
        assert await turn.wait() == "done"


@aio
async def test_leaving_the_block_early_cancels_and_waits_for_the_end() -> None:
    session = Conversation()
    left = asyncio.Event()

    async def leave() -> None:
        async with Turn(session) as turn:
            turn.put("a", 1)
            await anext(turn)
        left.set()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(leave())
        await until(lambda: session.questions_cancelled == 1)
        assert not left.is_set()
        session.turn.answer("cancelled")
        await soon(left.wait())


@aio
async def test_an_exception_in_the_block_cancels_and_is_raised() -> None:
    session = Conversation()

    async def fall() -> None:
        with pytest.raises(ZeroDivisionError):
            async with Turn(session):
                raise ZeroDivisionError

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(fall())
        await until(lambda: session.questions_cancelled == 1)
        session.turn.answer("cancelled")


@aio
async def test_a_cancel_that_is_never_answered_is_settled_here_and_the_session_given_up() -> None:
    session = Conversation()
    async with Turn(session, Budgets(cancel_grace=TINY)) as turn:
        turn.cancel()
        assert await soon(turn.wait()) == "given up"
        assert turn.log == ["prompt", "cancel", "forgotten"]
    assert session.unusable
    assert session.turn is None


@aio
async def test_a_task_cancelled_while_it_leaves_the_block_still_gives_the_turn_up() -> None:
    session = Conversation()

    async def stay() -> None:
        async with Turn(session, Budgets(cancel_grace=TINY)):
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(stay())
        await until(lambda: session.turn is not None)
        task.cancel()
        await until(lambda: session.questions_cancelled == 1)
        task.cancel()
        await soon(asyncio.wait([task]))
        assert task.cancelled()
        # Nobody waits any more; the grace period ends anyway.
        await until(lambda: session.unusable)
    assert session.turn is None


@aio
async def test_the_first_end_counts() -> None:
    async with Turn(Conversation()) as turn:
        turn.answer("first")
        turn.answer("second")
        turn.fail(ConnectionEnded())
        assert await turn.wait() == "first"


# -- budgets


@pytest.mark.parametrize(
    ("name", "budgets"),
    [
        ("first_event", Budgets(first_event=TINY, silence=None)),
        ("total", Budgets(first_event=None, silence=None, total=TINY)),
    ],
)
@aio
async def test_a_budget_that_runs_out_cancels_and_is_the_reason_however_the_turn_ends(
    name: str, budgets: Budgets
) -> None:
    async with Turn(Conversation(), budgets) as turn:
        await until(lambda: turn.cancelling)
        assert turn.log == ["prompt", "cancel"]
        turn.answer("done")
        with pytest.raises(BudgetExceeded) as caught:
            await turn.wait()
    assert caught.value.budget == name
    assert caught.value.timeout == TINY


@aio
async def test_silence_after_life_runs_out() -> None:
    async with Turn(Conversation(), Budgets(first_event=None, silence=TINY)) as turn:
        turn.put("a", 1)
        await until(lambda: turn.cancelling)
        turn.answer("cancelled")
        assert await anext(turn) == "a"
        with pytest.raises(BudgetExceeded) as caught:
            await anext(turn)
    assert caught.value.budget == "silence"


@aio
async def test_an_item_of_our_own_making_is_not_a_sign_of_life() -> None:
    async with Turn(Conversation(), Budgets(first_event=TINY, silence=None)) as turn:
        turn.put("the turn began", 0)
        await until(lambda: turn.cancelling)
        turn.answer("cancelled")
        with pytest.raises(BudgetExceeded) as caught:
            await turn.wait()
    assert caught.value.budget == "first_event"


@aio
async def test_a_budget_whose_cancel_is_never_answered_gives_the_session_up() -> None:
    session = Conversation()
    budgets = Budgets(first_event=TINY, cancel_grace=TINY)
    async with Turn(session, budgets) as turn:
        with pytest.raises(BudgetExceeded):
            await soon(turn.wait())
    assert session.unusable


@aio
async def test_no_budget_runs_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = LoopClock(monkeypatch)
    budgets = Budgets(first_event=TINY, silence=TINY, total=TINY, cancel_grace=TINY)
    session = Conversation()
    async with Turn(session, budgets) as turn:
        turn.answer("done")
        await clock.advance(10 * TINY)
        assert await turn.wait() == "done"
    assert turn.log == ["prompt"]
    assert not session.unusable


@aio
async def test_an_open_question_stops_the_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = LoopClock(monkeypatch)
    async with Turn(Conversation(), Budgets(first_event=TINY, silence=TINY)) as turn:
        turn.question_opened()
        await clock.advance(10 * TINY)
        assert turn.state is TurnStage.RUNNING
        turn.question_closed()
        await until(lambda: turn.cancelling)
        turn.answer("cancelled")
        with pytest.raises(BudgetExceeded):
            await turn.wait()


@aio
async def test_silence_is_not_counted_while_the_consumer_holds_the_other_side_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = LoopClock(monkeypatch)
    flow = new_flow(Limits(soft_size=1000, hard_size=100_000))
    budgets = Budgets(first_event=TINY, silence=TINY)
    async with Turn(Conversation(), budgets, flow=flow) as turn:
        for _ in range(3):
            turn.put("a", 1000)
        assert flow.paused
        await clock.advance(10 * TINY)
        assert turn.state is TurnStage.RUNNING
        for _ in range(3):
            await anext(turn)
        await until(lambda: turn.cancelling)
        turn.answer("cancelled")
        with pytest.raises(BudgetExceeded):
            await turn.wait()
    flow.close(ConnectionClosed())


@aio
async def test_a_consumer_that_never_reads_is_cut_off_and_told_so() -> None:
    limits = Limits(soft_size=10, hard_size=20, overflow_timeout=TINY)
    flow = new_flow(limits)
    async with Turn(Conversation(), flow=flow) as turn:
        turn.put("a", 100)
        await until(lambda: not flow._lanes)
        turn.put("dropped", 100)
        turn.answer("done")
        assert await anext(turn) == "a"
        with pytest.raises(Overflow):
            await anext(turn)
        with pytest.raises(UsageError):
            _ = turn.result
    flow.close(ConnectionClosed())


@aio
async def test_the_end_of_a_turn_withdraws_its_open_questions() -> None:
    session = Conversation()
    async with Turn(session) as turn:
        turn.question_opened()
        turn.question_closed()
        turn.answer("done")
    assert session.questions_cancelled == 0
    async with Turn(session) as turn:
        turn.question_opened()
        turn.answer("done")
    assert session.questions_cancelled == 1
