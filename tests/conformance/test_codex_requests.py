"""Requests of the Codex server to its client, such as approvals, with a server as a child process.

The manifest `codex.toml` lists these tests with the requirements that they prove.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from dragoman.client.inquiries import Inquiry, Reply
from dragoman.client.permissions import Answer, Question, approve_all, deny_all
from dragoman.dialects.codex import shapes
from dragoman.events.fold import fold
from dragoman.events.words import Outcome, ToolStatus
from tests.aio import aio
from tests.conformance.codex import (
    ANSWER,
    OPTIONS,
    Step,
    about,
    ask_command,
    command,
    ended,
    item,
    message,
    request,
    resolved,
    started,
    thread,
    together,
    turns,
    wait_for,
)

ALLOWING = structs.replace(OPTIONS, permit=approve_all)


def asking(*questions: Step, status: str = "completed") -> list[Step]:
    """The steps of a command that needs approval."""
    begun = command("inProgress", "started")
    return [begun, *questions, command(status, "completed"), message("done")]


@pytest.mark.parametrize(
    ("answer", "offered", "decision"),
    [
        (Answer.ALLOW_ONCE, None, "accept"),
        (Answer.ALLOW_ALWAYS, None, "acceptForSession"),
        (Answer.REJECT_ONCE, None, "decline"),
        (Answer.CANCEL, None, "cancel"),
        # `decline` is accepted although it is not listed.
        (Answer.REJECT_ONCE, ["accept", "cancel"], "decline"),
        # "Allow once" is not replaced by "allow always".
        (Answer.ALLOW_ONCE, ["acceptForSession", "cancel"], "decline"),
    ],
)
@aio
async def test_an_approval_is_answered_with_a_decision_of_the_protocol(
    answer: Answer, offered: list[str] | None, decision: str, tmp_path: Path
) -> None:
    options = structs.replace(OPTIONS, permit=lambda question: answer)
    more = {} if offered is None else {"availableDecisions": offered}
    steps = asking(ask_command(0, **more), wait_for(0), resolved(0))
    async with thread(tmp_path, turns(steps), options) as (talk, wire):
        await talk.ask("x")
    assert wire.answer(0) == {"decision": decision}


@aio
async def test_an_approval_is_about_the_item_that_was_announced(tmp_path: Path) -> None:
    asked: list[Question] = []

    def permit(question: Question) -> Answer:
        asked.append(question)
        return Answer.ALLOW_ONCE

    change = {"path": "/w/a.txt", "kind": {"type": "add"}, "diff": "text\n"}
    shape: dict[str, Any] = {"type": "fileChange", "id": "f1", "changes": [change]}
    question = request(0, "item/fileChange/requestApproval", **about(), itemId="f1", startedAtMs=1)
    steps = [
        item("started", **shape, status="inProgress"),
        *(question, wait_for(0), resolved(0)),
        item("completed", **shape, status="completed"),
        message("done"),
    ]
    options = structs.replace(OPTIONS, permit=permit)
    async with thread(tmp_path, turns(steps), options) as (talk, wire):
        await talk.ask("x")
    assert [(q.tool_call_id, q.title) for q in asked] == [("f1", "Edit /w/a.txt")]
    assert wire.answer(0) == {"decision": "accept"}


@aio
async def test_a_declined_command_does_not_end_the_turn(tmp_path: Path) -> None:
    steps = asking(ask_command(0), wait_for(0), resolved(0), status="declined")
    options = structs.replace(OPTIONS, permit=deny_all)
    async with thread(tmp_path, turns(steps), options) as (talk, wire):
        result = await talk.ask("x")
    assert result.text == "done"
    assert [denial.title for denial in result.denials] == ["touch x"]
    (tool,) = fold(wire.events).tools.values()
    assert tool.status is ToolStatus.DECLINED


@aio
async def test_a_permit_that_fails_is_answered_with_an_error_and_not_with_a_yes(
    tmp_path: Path,
) -> None:
    def permit(question: Question) -> Answer:
        raise ValueError("secret")

    steps = [command("inProgress", "started"), ask_command(0), wait_for(0)]
    script = {"turn/start": [[ANSWER, started(), *steps, ended(status="interrupted")]]}
    options = structs.replace(OPTIONS, permit=permit)
    async with thread(tmp_path, script, options) as (talk, wire):
        assert not (await talk.ask("x")).ok
    answer = wire.answer(0)
    assert answer["code"] == -32603
    assert "secret" not in str(answer)


@pytest.mark.parametrize("at_once", [False, True])
@aio
async def test_a_question_that_the_server_resolved_is_withdrawn(
    at_once: bool, tmp_path: Path
) -> None:
    seen: list[str] = []

    async def permit(question: Question) -> Answer:
        seen.append("asked")
        try:
            await talk.rename("the question is shown")
            await asyncio.Event().wait()
        finally:
            seen.append("withdrawn")
        return Answer.ALLOW_ALWAYS

    shown = [ask_command(0), wait_for("thread/name/set"), resolved(0)]
    question = [together(ask_command(0), resolved(0))] if at_once else shown
    steps = asking(*question, wait_for(0))
    options = structs.replace(OPTIONS, permit=permit)
    async with thread(tmp_path, turns(steps), options) as (talk, wire):
        result = await talk.ask("x")
        assert seen == ([] if at_once else ["asked", "withdrawn"])
    assert (result.text, result.denials) == ("done", ())
    # The server has dropped the request, so a late response must not be an approval.
    assert wire.answer(0) == {"decision": "cancel"}


@aio
async def test_a_question_may_be_resolved_after_the_end_of_its_turn(tmp_path: Path) -> None:
    async def permit(question: Question) -> Answer:
        turn.cancel()
        await asyncio.Event().wait()
        return Answer.ALLOW_ONCE

    first = [command("inProgress", "started"), ask_command(0), wait_for("turn/interrupt")]
    over = [command("declined", "completed"), ended(status="interrupted"), resolved(0)]
    again = [ANSWER, started("u2"), message("again", turn="u2"), ended("u2")]
    script = {"turn/start": [[ANSWER, started(), *first, *over], again]}
    options = structs.replace(OPTIONS, permit=permit)
    async with thread(tmp_path, script, options) as (talk, wire):
        async with talk.prompt("x") as turn:
            assert (await turn.wait()).outcome is Outcome.CANCELLED
        assert (await talk.ask("y")).text == "again"
    assert wire.answer(0) == {"decision": "cancel"}


@pytest.mark.parametrize(
    ("answer", "reply"),
    [
        (Answer.ALLOW_ONCE, {"permissions": {"network": {"enabled": True}}, "scope": "turn"}),
        (Answer.ALLOW_ALWAYS, {"permissions": {"network": {"enabled": True}}, "scope": "session"}),
        (Answer.REJECT_ONCE, {"permissions": {}}),
    ],
)
@aio
async def test_permissions_are_granted_as_they_were_asked_for_or_not_at_all(
    answer: Answer, reply: dict[str, Any], tmp_path: Path
) -> None:
    wanted = {"permissions": {"network": {"enabled": True}}, "cwd": "/w", "startedAtMs": 1}
    question = request(
        0, "item/permissions/requestApproval", **about(), itemId="c1", reason=None, **wanted
    )
    options = structs.replace(OPTIONS, permit=lambda question: answer)
    steps = asking(question, wait_for(0), resolved(0))
    async with thread(tmp_path, turns(steps), options) as (talk, wire):
        await talk.ask("x")
    assert wire.answer(0) == reply


@pytest.mark.parametrize(
    ("answer", "decision"),
    [
        (Answer.ALLOW_ONCE, "approved"),
        (Answer.ALLOW_ALWAYS, "approved_for_session"),
        (Answer.REJECT_ONCE, {"denied": {"rejection": "refused by the client"}}),
        (Answer.CANCEL, "abort"),
    ],
)
@aio
async def test_the_old_approvals_have_their_own_words(
    answer: Answer, decision: Any, tmp_path: Path
) -> None:
    fields = {"callId": "c1", "command": ["ls"], "cwd": "/w", "parsedCmd": []}
    question = request(0, "execCommandApproval", conversationId="t1", **fields)
    options = structs.replace(OPTIONS, permit=lambda question: answer)
    steps = [question, wait_for(0), message("done")]
    async with thread(tmp_path, turns(steps), options) as (talk, wire):
        await talk.ask("x")
    assert wire.answer(0) == {"decision": decision}


QUESTION = request(
    0,
    "item/tool/requestUserInput",
    **about(),
    itemId="q1",
    isBlocking=True,
    questions=[{"id": "colour", "header": "Colour", "question": "Which?", "options": None}],
)


@aio
async def test_questions_are_answered_by_their_ids(tmp_path: Path) -> None:
    async def answer(asked: shapes.UserInputRequest) -> dict[str, Sequence[str]]:
        return {question["id"]: ["blue"] for question in asked.questions}

    options = structs.replace(OPTIONS, answer_questions=answer)
    steps = [QUESTION, wait_for(0), resolved(0), message("done")]
    async with thread(tmp_path, turns(steps), options) as (talk, wire):
        await talk.ask("x")
    assert wire.answer(0) == {"answers": {"colour": {"answers": ["blue"]}}}


FORM = {"mode": "form", "message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}
PAGE = {"mode": "url", "message": "Go", "url": "https://example.invalid/", "elicitationId": "e1"}


@pytest.mark.parametrize(
    ("wanted", "reply", "result"),
    [
        (FORM, Reply("accept", {"name": "me"}), {"action": "accept", "content": {"name": "me"}}),
        (FORM, Reply("cancel"), {"action": "cancel", "content": None}),
        (PAGE, Reply("accept"), {"action": "accept", "content": None}),
        ({**FORM, "mode": "novel"}, Reply("accept"), {"action": "decline", "content": None}),
    ],
)
@aio
async def test_a_form_is_answered_and_what_cannot_be_shown_is_declined(
    wanted: dict[str, Any], reply: Reply, result: dict[str, Any], tmp_path: Path
) -> None:
    async def inquire(inquiry: Inquiry) -> Reply:
        return reply

    question = request(0, "mcpServer/elicitation/request", serverName="s", **about(), **wanted)
    options = structs.replace(OPTIONS, inquire=inquire)
    steps = [question, wait_for(0), resolved(0), message("done")]
    async with thread(tmp_path, turns(steps), options) as (talk, wire):
        await talk.ask("x")
    assert wire.answer(0) == result


@pytest.mark.parametrize("questions", [QUESTION, FORM])
@aio
async def test_questions_without_anyone_to_answer_are_answered_at_once(
    questions: Step, tmp_path: Path
) -> None:
    if questions is FORM:
        fields = {"serverName": "s", **about(), **FORM}
        questions = request(0, "mcpServer/elicitation/request", **fields)
    steps = [questions, wait_for(0), message("done")]
    async with thread(tmp_path, turns(steps)) as (talk, wire):
        assert (await talk.ask("x")).text == "done"
    assert wire.answer(0) in ({"answers": {}}, {"action": "decline", "content": None})


@pytest.mark.parametrize(
    ("method", "code"),
    [
        ("item/tool/call", -32601),
        ("currentTime/read", -32601),
        ("novel/request", -32601),
        ("item/commandExecution/requestApproval", -32602),
    ],
)
@aio
async def test_a_request_that_is_not_understood_is_refused_and_the_turn_goes_on(
    method: str, code: int, tmp_path: Path
) -> None:
    steps = [request(0, method, novel=1), wait_for(0), message("done")]
    async with thread(tmp_path, turns(steps), ALLOWING) as (talk, wire):
        assert (await talk.ask("x")).text == "done"
    assert wire.answer(0)["code"] == code


@aio
async def test_an_approval_of_a_thread_that_is_not_ours_is_not_given(tmp_path: Path) -> None:
    other = ask_command(0)["send"]
    other["params"]["threadId"] = "t7"
    steps: list[Step] = [{"send": other}, wait_for(0), message("done")]
    async with thread(tmp_path, turns(steps), ALLOWING) as (talk, wire):
        assert (await talk.ask("x")).text == "done"
    assert wire.answer(0) == {"decision": "cancel"}
