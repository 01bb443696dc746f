"""What Codex asks its user, as a form or a page."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dragoman.client.codex import inquiries
from dragoman.client.inquiries import CANCELLED, DECLINED, Reply
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.codex import shapes


def asked(*questions: dict[str, Any]) -> shapes.UserInputRequest:
    return shapes.UserInputRequest("t", "u", "i", list(questions))


CHOICE = {
    "id": "colour",
    "header": "Colour",
    "question": "Which colour?",
    "options": [{"label": "red", "description": "like a rose"}, {"label": "blue"}],
}
FREE = {"id": "name", "header": "Name", "question": "What name?", "options": None}


def test_every_question_is_a_property_of_the_form() -> None:
    inquiry = inquiries.of_questions(asked(CHOICE, FREE))
    assert inquiry is not None
    assert (inquiry.session_id, inquiry.tool_call_id) == ("t", "i")
    assert inquiry.message == "Which colour?; What name?"
    assert inquiry.schema == {
        "type": "object",
        "properties": {
            "colour": {
                "type": "string",
                "title": "Colour",
                "description": "Which colour?",
                "oneOf": [
                    {"const": "red", "title": "red: like a rose"},
                    {"const": "blue", "title": "blue"},
                ],
            },
            "name": {"type": "string", "title": "Name", "description": "What name?"},
        },
        "required": ["colour", "name"],
    }
    # ACP can show it as it is.
    form = acp.decode(msgspec.json.encode(inquiry.schema), acp.ElicitationSchema)
    assert not any(isinstance(p, acp.UnknownPropertySchema) for p in form.properties.values())


def test_where_something_else_may_be_answered_the_options_are_only_named() -> None:
    inquiry = inquiries.of_questions(asked({**CHOICE, "isOther": True}))
    assert inquiry is not None and inquiry.schema is not None
    colour = inquiry.schema["properties"]["colour"]
    assert "oneOf" not in colour
    assert colour["description"] == "Which colour? (red, blue)"


def test_a_secret_is_not_asked_for_in_a_form() -> None:
    assert inquiries.of_questions(asked(CHOICE, {**FREE, "isSecret": True})) is None


@pytest.mark.parametrize("question", [{}, {"options": 3}, {"options": [1, {}]}, {"header": None}])
def test_a_question_with_missing_parts_is_still_asked(question: dict[str, Any]) -> None:
    assert inquiries.of_questions(asked(question)) is not None


@pytest.mark.parametrize(
    ("reply", "answers"),
    [
        (
            Reply("accept", {"a": "x", "b": ["y", "z"], "c": 3}),
            {"a": ["x"], "b": ["y", "z"], "c": ["3"]},
        ),
        (Reply("accept"), {}),
        (DECLINED, {}),
        (CANCELLED, {}),
    ],
)
def test_what_was_filled_in_answers_the_questions(reply: Reply, answers: Any) -> None:
    assert inquiries.answers_of(reply) == answers


@pytest.mark.parametrize("mode", [None, "form", "openai/form"])
def test_a_form_of_an_mcp_server_is_taken_as_it_is(mode: str | None) -> None:
    schema = {"type": "object", "properties": {}}
    inquiry = inquiries.of_elicitation(
        shapes.ElicitationRequest("t", "server", None, mode, "Well?", schema)
    )
    assert inquiry is not None
    assert (inquiry.session_id, inquiry.message, inquiry.schema) == ("t", "Well?", schema)


def test_a_page_of_an_mcp_server_is_one() -> None:
    wanted = shapes.ElicitationRequest("t", "server", None, "url", "Go", None, "https://x", "p")
    inquiry = inquiries.of_elicitation(wanted)
    assert inquiry is not None and (inquiry.url, inquiry.page_id) == ("https://x", "p")


@pytest.mark.parametrize(("mode", "schema"), [("form", None), ("url", None), ("dance", {})])
def test_what_is_neither_is_not_asked(mode: str, schema: Any) -> None:
    wanted = shapes.ElicitationRequest("t", "server", None, mode, "m", schema)
    assert inquiries.of_elicitation(wanted) is None
