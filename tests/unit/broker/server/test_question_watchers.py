"""Callers that watch the questions of a broker: what they see, and which answer counts."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from dragoman.broker.server import question_watchers
from dragoman.client.budgets import Budgets
from dragoman.errors import RemoteError
from tests.aio import aio
from tests.integration.broker_stage import TestCaller, stage
from tests.unit.broker.near import NearAgent, standing

YES = {"outcome": {"outcome": "selected", "optionId": "yes"}}
NO = {"outcome": {"outcome": "selected", "optionId": "no"}}


async def watch(caller: TestCaller, *, answers: bool = True) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await caller.call("_dragoman/watch", {"answers": answers}))[
        "questions"
    ]
    return found


async def told(caller: TestCaller, method: str) -> Any:
    """The next notification of this name."""
    await caller.until(lambda: any(name == method for name, _ in caller.told))
    found = next(each for each in caller.told if each[0] == method)
    caller.told.remove(found)
    return found[1]


async def answer(caller: TestCaller, question: dict[str, Any], result: Any) -> bool:
    params = {"id": question["id"], "digest": question["digest"], "result": result}
    found: bool = (await caller.call("_dragoman/answer", params))["answered"]
    return found


async def submit(
    caller: TestCaller, session: str, text: str, job: str = "j-1", **terms: Any
) -> None:
    prompt = [{"type": "text", "text": text}]
    params = {"sessionId": session, "prompt": prompt, "job": job, "policy": "approve-reads"}
    await caller.call("_dragoman/submit", params | terms)


async def result(caller: TestCaller, job: str = "j-1") -> Any:
    ended = await caller.call("_dragoman/result", {"job": job, "wait": True})
    return json.loads(ended["text"])


@aio
async def test_a_question_of_a_job_without_a_caller_waits_for_those_who_watch(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path) as at, at.caller() as mine, at.caller(greet=False) as watcher:
        assert await watch(watcher) == []
        session = await mine.new(tmp_path)
        await submit(mine, session, "ask edit", asks=True)
        question = await told(watcher, "_dragoman/question")
        assert question["method"] == "session/request_permission"
        assert question["params"]["toolCall"]["title"] == "edit"
        assert question["job"] == "j-1" and question["sessionId"] == session
        assert await answer(watcher, question, YES)
        assert (await told(watcher, "_dragoman/settled")) == {"id": question["id"], "by": "watcher"}
        assert (await result(mine))["outcome"]["optionId"] == "yes"


@aio
async def test_an_agent_that_waits_for_an_answer_is_not_silent(tmp_path: Path) -> None:
    """A person may take longer to answer than an agent may be silent."""
    budgets = Budgets(first_event=1.0, silence=1.0)
    async with stage(tmp_path, budgets=budgets) as at, at.caller() as mine:
        async with at.caller(greet=False) as watcher:
            await watch(watcher)
            session = await mine.new(tmp_path)
            await submit(mine, session, "ask edit", asks=True)
            question = await told(watcher, "_dragoman/question")
            loop = asyncio.get_running_loop()
            answered_at = loop.time() + 2.5
            await at.until(lambda: loop.time() > answered_at)
            assert await answer(watcher, question, YES)
            assert (await result(mine))["outcome"]["optionId"] == "yes"


@aio
async def test_the_first_question_of_a_broker_waits_for_those_who_have_yet_to_find_it(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path) as at, at.caller() as mine, at.caller(greet=False) as watcher:
        session = await mine.new(tmp_path)
        await submit(mine, session, "ask edit", asks=True)
        await at.until(lambda: at.broker.watchers._waiting)
        (question,) = await watch(watcher)
        assert await answer(watcher, question, YES)
        assert (await result(mine))["outcome"]["optionId"] == "yes"


@aio
async def test_what_the_policy_decides_is_not_shown(tmp_path: Path) -> None:
    async with stage(tmp_path) as at, at.caller() as mine, at.caller(greet=False) as watcher:
        await watch(watcher)
        session = await mine.new(tmp_path)
        cases: list[tuple[str, dict[str, Any]]] = [
            ("ask read", {"asks": True}),
            ("ask edit", {"asks": False}),
            ("ask edit", {"asks": True, "policy": "deny-all"}),
            ("ask edit", {"asks": True, "policy": "approve-all"}),
        ]
        for number, (text, terms) in enumerate(cases):
            await submit(mine, session, text, f"j-{number}", **terms)
            await result(mine, f"j-{number}")
        assert watcher.told == []


@aio
async def test_if_there_is_no_watcher_the_policy_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(question_watchers, "ARRIVAL", 0.2)
    async with stage(tmp_path) as at, at.caller() as mine, at.caller(greet=False) as watcher:
        await watch(watcher, answers=False)
        session = await mine.new(tmp_path)
        await submit(mine, session, "ask edit", asks=True)
        assert (await result(mine))["outcome"]["optionId"] == "no"


@aio
async def test_a_question_that_its_caller_answers_is_over_for_all_who_watch(tmp_path: Path) -> None:
    async with stage(tmp_path) as at, at.caller() as mine:
        async with at.caller(greet=False) as one, at.caller(greet=False) as two:
            await watch(one)
            session = await mine.new(tmp_path)
            decide = asyncio.Event()

            async def later(request: Any) -> Any:
                await decide.wait()
                return NO

            mine.answer = later
            ending = at.broker.tasks.start(mine.prompting(session, "ask edit"), "prompt")
            question = await told(one, "_dragoman/question")
            # One who comes later sees it as well.
            assert await watch(two) == [question]
            decide.set()
            for each in (one, two):
                assert (await told(each, "_dragoman/settled"))["by"] == "caller"
            assert await answer(one, question, YES) is False
            await ending
            assert json.loads(mine.texts()[-1])["outcome"]["optionId"] == "no"


@aio
async def test_of_two_answers_exactly_one_counts(tmp_path: Path) -> None:
    async with stage(tmp_path) as at, at.caller() as mine:
        async with at.caller(greet=False) as one, at.caller(greet=False) as two:
            await watch(one)
            await watch(two)
            session = await mine.new(tmp_path)
            await submit(mine, session, "ask edit", asks=True)
            question = await told(one, "_dragoman/question")
            first, second = await asyncio.gather(
                answer(one, question, YES), answer(two, question, NO)
            )
            assert {first, second} == {True, False}
            chosen = "yes" if first else "no"
            assert (await result(mine))["outcome"]["optionId"] == chosen


@aio
async def test_a_caller_is_notified_that_its_question_was_answered_elsewhere(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path) as at, at.caller() as mine, at.caller(greet=False) as watcher:
        await watch(watcher)
        mine.connection.post("_dragoman/terms", {"answered": True})
        session = await mine.new(tmp_path)
        ending = at.broker.tasks.start(mine.prompting(session, "ask edit"), "prompt")
        await mine.until(lambda: mine.questions)
        assert await answer(watcher, await told(watcher, "_dragoman/question"), YES)
        assert await told(mine, "_dragoman/answered") == {
            "sessionId": session,
            "toolCallId": "t1",
            "kind": "allow_once",
        }
        await ending


@aio
async def test_an_answer_elsewhere_is_not_taken_for_that_of_another_question_about_the_same_call(
    tmp_path: Path,
) -> None:
    agent = NearAgent()
    async with (
        standing(tmp_path, agent) as at,
        at.caller() as mine,
        at.caller(greet=False) as watcher,
    ):
        await watch(watcher)
        mine.connection.post("_dragoman/terms", {"answered": True})
        session = await mine.new(tmp_path)
        at.broker.tasks.start(mine.prompting(session, "x"), "prompt")
        await agent.until(lambda: agent.prompts)
        assert agent.connection is not None
        answers = []
        for title in ("look", "delete"):
            asked = {
                "sessionId": session,
                "toolCall": {"toolCallId": "t1", "title": title},
                "options": [{"optionId": "yes", "name": "Yes", "kind": "allow_once"}],
            }
            work = agent.connection.call("session/request_permission", asked)
            answers.append(at.broker.tasks.start(work, title))
        await mine.until(lambda: len(mine.questions) == 2)
        first = await told(watcher, "_dragoman/question")
        assert first["params"]["toolCall"]["title"] == "look"
        assert await answer(watcher, first, YES)
        assert json.loads(bytes(await answers[0])) == YES
        assert (await told(mine, "$/cancel_request"))["requestId"] == mine.questions[0].id
        assert mine.told == [] and not answers[1].done()
        agent.end()


@aio
async def test_a_caller_of_another_program_sees_its_question_cancelled(tmp_path: Path) -> None:
    async with stage(tmp_path) as at, at.caller() as mine, at.caller(greet=False) as watcher:
        await watch(watcher)
        session = await mine.new(tmp_path)
        ending = at.broker.tasks.start(mine.prompting(session, "ask edit"), "prompt")
        await mine.until(lambda: mine.questions)
        assert await answer(watcher, await told(watcher, "_dragoman/question"), YES)
        assert (await told(mine, "$/cancel_request"))["requestId"] == mine.questions[0].id
        await ending


@aio
async def test_an_answer_that_does_not_fit_is_refused_and_the_question_waits(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path) as at, at.caller() as mine, at.caller(greet=False) as watcher:
        await watch(watcher)
        session = await mine.new(tmp_path)
        await submit(mine, session, "ask edit", asks=True)
        question = await told(watcher, "_dragoman/question")
        with pytest.raises(RemoteError, match="not the one that was shown"):
            await answer(watcher, question | {"digest": "0" * 64}, YES)
        other = {"outcome": {"outcome": "selected", "optionId": "other"}}
        for wrong in (other, {"outcome": {"outcome": "cancelled"}}, {}, 1):
            with pytest.raises(RemoteError):
                await answer(watcher, question, wrong)
        assert await answer(watcher, question, NO)


@aio
async def test_a_question_without_a_way_to_refuse_can_be_refused(tmp_path: Path) -> None:
    async with stage(tmp_path) as at, at.caller() as mine, at.caller(greet=False) as watcher:
        await watch(watcher)
        session = await mine.new(tmp_path)
        await submit(mine, session, "insist execute", asks=True)
        question = await told(watcher, "_dragoman/question")
        refused = {"outcome": {"outcome": "cancelled"}}
        assert await answer(watcher, question, refused)
        ended = await mine.call("_dragoman/result", {"job": "j-1", "wait": True})
        assert json.loads(ended["text"]) == refused
        assert ended["outcome"] != "ok", ended


@aio
async def test_a_form_is_answered_by_those_who_watch(tmp_path: Path) -> None:
    async with stage(tmp_path) as at, at.caller() as mine, at.caller(greet=False) as watcher:
        await watch(watcher)
        session = await mine.new(tmp_path)
        await submit(mine, session, "elicit")
        question = await told(watcher, "_dragoman/question")
        assert question["method"] == "elicitation/create"
        with pytest.raises(RemoteError):
            await answer(watcher, question, {"action": 3})
        reply = {"action": "accept", "content": {"name": "Ada"}}
        assert await answer(watcher, question, reply)
        assert await result(mine) == reply


@aio
async def test_a_question_waits_a_little_for_a_watcher_that_reconnects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(question_watchers, "GRACE", 0.05)
    async with stage(tmp_path) as at, at.caller() as mine:
        session = await mine.new(tmp_path)
        async with at.caller(greet=False) as watcher:
            await watch(watcher)
            await submit(mine, session, "ask edit", asks=True)
            await told(watcher, "_dragoman/question")
        assert (await result(mine))["outcome"]["optionId"] == "no"


@aio
async def test_cancelling_the_turn_ends_the_question(tmp_path: Path) -> None:
    async with stage(tmp_path) as at, at.caller() as mine, at.caller(greet=False) as watcher:
        await watch(watcher)
        session = await mine.new(tmp_path)
        await submit(mine, session, "ask edit", asks=True)
        question = await told(watcher, "_dragoman/question")
        await mine.call("_dragoman/cancel", {"job": "j-1"})
        assert (await told(watcher, "_dragoman/settled"))["by"] == "cancelled"
        assert await answer(watcher, question, YES) is False


OPTIONS = [
    {"optionId": "once", "name": "Once", "kind": "allow_once"},
    {"optionId": "always", "name": "Always", "kind": "allow_always"},
    {"optionId": "never", "name": "Never", "kind": "reject_always"},
]


def test_an_answer_is_one_of_the_options() -> None:
    params = json.dumps({"sessionId": "s", "toolCall": {"toolCallId": "t"}, "options": OPTIONS})

    def kind(option: str) -> str:
        chosen = {"outcome": {"outcome": "selected", "optionId": option}}
        return question_watchers._chosen_kind(
            Raw(params.encode()),
            Raw(json.dumps(chosen).encode()),
        )

    assert kind("once") == "allow_once"
    assert kind("always") == "allow_always"
    with pytest.raises(RemoteError, match="not one of the question's options"):
        kind("other")


@aio
async def test_one_who_does_not_read_is_sent_away_and_nothing_waits_for_it(tmp_path: Path) -> None:
    async with stage(tmp_path) as at, at.caller(greet=False) as watcher:
        await watch(watcher)
        watchers = at.broker.watchers
        (caller,) = watchers._watchers
        caller.connection.post("_filler", {"text": "x" * 8_000_000})
        assert caller.connection.is_full
        watchers._tell("_dragoman/settled", {"id": "1", "by": "caller"}, None)
        await at.until(lambda: not watchers._watchers)


@aio
async def test_one_who_watches_a_job_sees_and_answers_only_its_questions(tmp_path: Path) -> None:
    async with stage(tmp_path) as at, at.caller() as mine, at.caller(greet=False) as watcher:
        params = {"answers": True, "job": "j-2"}
        assert (await watcher.call("_dragoman/watch", params))["questions"] == []
        session = await mine.new(tmp_path)
        at.broker.watchers._began_at -= question_watchers.ARRIVAL
        await submit(mine, session, "ask edit", asks=True)
        # It waits for none of those who watch, so the policy decides.
        assert (await result(mine))["outcome"]["optionId"] == "no"
        await submit(mine, session, "ask edit", job="j-2", asks=True)
        question = await told(watcher, "_dragoman/question")
        assert question["job"] == "j-2"
        assert await answer(watcher, question, YES)
        assert (await result(mine, "j-2"))["outcome"]["optionId"] == "yes"


@aio
async def test_a_question_waits_for_a_later_watcher_as_long_as_its_job_says(tmp_path: Path) -> None:
    async with stage(tmp_path) as at, at.caller() as mine, at.caller(greet=False) as watcher:
        session = await mine.new(tmp_path)
        at.broker.watchers._began_at -= question_watchers.ARRIVAL
        await submit(mine, session, "ask edit", asks=True, wait=30.0)
        await at.until(lambda: bool(at.broker.watchers._waiting))
        (question,) = await watch(watcher)
        assert await answer(watcher, question, YES)
        assert (await result(mine))["outcome"]["optionId"] == "yes"
        # The watcher is gone before the second question.
        at.broker.watchers._watchers.clear()
        await submit(mine, session, "ask edit", job="j-2", asks=True, wait=0.05)
        assert (await result(mine, "j-2"))["outcome"]["optionId"] == "no"
