"""Questions of an agent that wait for an answer."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from dragoman.client.open_questions import MAX_NAMES, OpenQuestions, RequestNames
from dragoman.rpc.tasks import TaskOwner
from tests.aio import aio
from tests.unit.rpc.other_side import until


class Turn:
    """What a question needs of the running turn."""

    cancelling = False

    def __init__(self) -> None:
        self.open = 0

    def question_opened(self) -> None:
        self.open += 1

    def question_closed(self) -> None:
        self.open -= 1


def ask(questions: OpenQuestions, turn: Turn | None, asking: Any, **name: Any) -> asyncio.Task[str]:
    asked = questions.ask(cast("Any", turn), asking, "cancelled", **name)
    # Every task of these tests ends in its test.
    return TaskOwner("test").start(asked, "ask")


async def forever() -> str:
    await asyncio.Event().wait()
    raise AssertionError


async def at_once(answer: str) -> str:
    return answer


@aio
async def test_a_turn_knows_of_a_question_until_it_is_answered() -> None:
    questions, turn = OpenQuestions(), Turn()
    answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    asked = ask(questions, turn, answer)
    await until(lambda: turn.open == 1)
    assert len(questions) == 1
    answer.set_result("yes")
    assert await asked == "yes"
    assert (turn.open, len(questions)) == (0, 0)


@aio
async def test_a_cancellation_of_something_else_is_an_error_and_not_an_answer() -> None:
    questions, turn = OpenQuestions(), Turn()
    awaited: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    asked = ask(questions, turn, awaited)
    await until(lambda: turn.open == 1)
    awaited.cancel()
    with pytest.raises(RuntimeError, match="something that it awaited was cancelled"):
        await asked
    assert (turn.open, len(questions)) == (0, 0)


@aio
async def test_questions_that_are_called_off_are_answered_as_cancelled() -> None:
    questions, turn = OpenQuestions(), Turn()
    asked = [ask(questions, turn, forever()) for _ in range(3)]
    await until(lambda: turn.open == 3)
    questions.call_off()
    questions.call_off()
    assert await asyncio.gather(*asked) == ["cancelled"] * 3
    assert (turn.open, len(questions)) == (0, 0)


@aio
async def test_a_question_that_comes_while_the_turn_is_being_cancelled_is_not_asked() -> None:
    turn = Turn()
    turn.cancelling = True
    # A coroutine that is never awaited would warn, so it has to be closed.
    assert await ask(OpenQuestions(), turn, forever()) == "cancelled"


@aio
async def test_the_end_of_its_task_is_not_taken_for_an_answer() -> None:
    questions = OpenQuestions()
    asked = ask(questions, None, forever())
    await until(lambda: len(questions) == 1)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert len(questions) == 0


@aio
async def test_a_named_question_may_be_withdrawn_before_and_while_it_is_asked() -> None:
    questions = OpenQuestions()
    questions.announce("q1")
    questions.withdraw("q1")
    assert await ask(questions, None, at_once("yes"), name="q1") == "cancelled"
    questions.announce("q2")
    asked = ask(questions, None, forever(), name="q2")
    questions.announce("q3")
    await until(lambda: questions._open.get("q2") is not None)
    questions.withdraw("q2")
    assert await asked == "cancelled"
    assert await ask(questions, None, at_once("yes"), name="q3") == "yes"
    questions.withdraw("unknown")


def test_a_request_whose_id_comes_again_has_a_name_of_its_own() -> None:
    names = RequestNames()
    assert [names.new("7"), names.newest("7")] == ["7", "7"]
    assert [names.new("7"), names.newest("7")] == ["7#2", "7#2"]
    assert [names.new("8"), names.newest("never asked")] == ["8", "never asked"]


def test_only_the_latest_ids_are_remembered() -> None:
    names = RequestNames()
    for id in range(MAX_NAMES):
        names.new(str(id))
    assert names.new("0") == "0#2"
    for id in range(MAX_NAMES, 2 * MAX_NAMES - 1):
        names.new(str(id))
    assert len(names) == MAX_NAMES
    assert names.new("0") == "0#3"
    assert names.new("1") == "1"
