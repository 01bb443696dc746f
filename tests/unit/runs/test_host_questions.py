"""Questions from agents on other machines: what the user is asked, and what the agent gets."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from dragoman.broker.protocol import ShownQuestion
from dragoman.client.inquiries import Inquiry, Reply
from dragoman.client.permissions import Answer, Question
from dragoman.runs.host_questions import form_result, is_permission, permission_result
from tests.aio import aio

ASKED = {
    "sessionId": "s",
    "toolCall": {"toolCallId": "c1", "title": "Run make", "kind": "execute"},
    "options": [
        {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
        {"optionId": "always", "name": "Always", "kind": "allow_always"},
        {"optionId": "no", "name": "No", "kind": "reject_once"},
    ],
}
FORM = {
    "sessionId": "s",
    "mode": "form",
    "message": "Which one?",
    "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
}


def shown(method: str, params: dict[str, Any]) -> ShownQuestion:
    return ShownQuestion(
        id="q",
        digest="d",
        session_id="s",
        key="k",
        job="j-1",
        method=method,
        params=Raw(msgspec.json.encode(params)),
        asked_at=0.0,
    )


PERMISSION = shown("session/request_permission", ASKED)


@pytest.mark.parametrize(
    ("answer", "option", "denied"),
    [(Answer.ALLOW_ONCE, "yes", False), (Answer.REJECT_ONCE, "no", True)],
)
@aio
async def test_an_answer_selects_an_option(answer: Answer, option: str, denied: bool) -> None:
    asked: list[Question] = []

    def permit(question: Question) -> Answer:
        asked.append(question)
        return answer

    result, denial = await permission_result(PERMISSION, permit)
    assert result == {"outcome": {"outcome": "selected", "optionId": option}}
    assert (denial is not None) == denied
    # The decision applies only to this question.
    assert [each.option_id for each in asked[0].options] == ["yes", "no"]


@aio
async def test_without_an_answer_the_question_stays_open() -> None:
    async def permit(question: Question) -> Answer:
        return Answer.CANCEL

    assert await permission_result(PERMISSION, permit) == (None, None)


@aio
async def test_a_form_is_shown_and_its_values_are_sent() -> None:
    asked: list[Inquiry] = []

    async def inquire(inquiry: Inquiry) -> Reply:
        asked.append(inquiry)
        return Reply("accept", {"name": "one"})

    form = shown("elicitation/create", FORM)
    assert not is_permission(form)
    result = await form_result(form, inquire)
    assert asked[0].message == "Which one?"
    assert (result["action"], result["content"]) == ("accept", {"name": "one"})


@aio
async def test_a_form_that_cannot_be_shown_is_declined() -> None:
    assert await form_result(shown("elicitation/create", FORM), None) == {"action": "decline"}
    unknown = shown("_other/ask", {})
    assert await form_result(unknown, lambda _: Reply("accept")) == {"action": "decline"}
