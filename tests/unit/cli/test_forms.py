"""The fields of a form as a person types them, line by line."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.cli.forms import MAX_FIELDS, Field, TerminalInquirer, fields_of
from dragoman.client.inquiries import CANCELLED, DECLINED, Inquiry, Reply
from tests.aio import aio


def field(required: bool = False, **schema: Any) -> Field:
    fields = fields_of({"properties": {"f": schema}, "required": ["f"] if required else []})
    assert fields is not None
    return fields[0]


TWO = {"type": "string", "oneOf": [{"const": "a", "title": "First"}, {"const": "b"}]}
MANY = {"type": "array", "items": {"enum": ["x", "y", "z"]}, "minItems": 1, "maxItems": 2}


@pytest.mark.parametrize(
    ("schema", "typed", "value"),
    [
        ({"type": "string"}, "hello", "hello"),
        ({"type": "string"}, "", None),
        ({"type": "string", "default": "x"}, "", "x"),
        ({"type": "integer"}, "-3", -3),
        ({"type": "number"}, "1.5", 1.5),
        ({"type": "boolean"}, "Yes", True),
        ({"type": "boolean"}, "n", False),
        ({"type": "boolean", "default": False}, "", False),
        (TWO, "1", "a"),
        (TWO, "first", "a"),
        (TWO, "B", "b"),
        ({"enum": ["m", "n"], "enumNames": ["Em", "En"]}, "en", "n"),
        (MANY, "1, z, x", ["x", "z"]),
    ],
)
def test_what_is_typed_becomes_a_value_of_the_field(
    schema: dict[str, Any], typed: str, value: object
) -> None:
    assert field(**schema).parse(typed) == value


@pytest.mark.parametrize(
    ("schema", "typed", "told"),
    [
        ({"type": "string", "minLength": 3}, "ab", "at least 3 characters"),
        ({"type": "string", "maxLength": 1}, "ab", "at most 1 character$"),
        ({"type": "integer"}, "1.5", "a whole number"),
        ({"type": "number"}, "much", "a number"),
        ({"type": "integer", "minimum": 2}, "1", "the minimum is 2"),
        ({"type": "number", "maximum": 2}, "3", "the maximum is 2"),
        ({"type": "integer", "minimum": 1234567}, "3", "the minimum is 1234567"),
        ({"type": "integer", "minimum": 10**400}, "3", "the minimum is 10{400}$"),
        ({"type": "number"}, "nan", "a finite number, not nan"),
        ({"type": "number"}, "1e999", "a finite number, not 1e999"),
        ({"type": "boolean"}, "maybe", "y or n"),
        (TWO, "3", "from 1 to 2"),
        (MANY, "x,y,z", "at most 2"),
    ],
)
def test_a_wrong_answer_says_what_is_possible(
    schema: dict[str, Any], typed: str, told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        field(**schema).parse(typed)


def test_a_required_field_needs_an_answer() -> None:
    with pytest.raises(ValueError, match="required"):
        field(required=True, type="string").parse("")


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"properties": {"f": "text"}},
        {"properties": {"f": {"type": "object"}}},
        {"properties": {"f": {"type": "array", "items": {"type": "string"}}}},
        {"properties": {str(n): {"type": "string"} for n in range(MAX_FIELDS + 1)}},
    ],
)
def test_a_form_that_cannot_be_asked_line_by_line_has_no_fields(schema: dict[str, Any]) -> None:
    assert fields_of(schema) is None


class Typist:
    """Types prepared lines, and keeps what was shown for each."""

    def __init__(self, *lines: str | None) -> None:
        self.lines = list(lines)
        self.shown: list[str] = []

    async def line(self, prompt: str, *, question: str) -> str | None:
        self.shown.append(question + prompt)
        return self.lines.pop(0)

    async def ask(self, schema: dict[str, Any] | None, **more: Any) -> Reply:
        return await TerminalInquirer(self)(Inquiry("s", "Why?", schema, **more))  # type: ignore[arg-type]


@aio
async def test_a_form_is_asked_until_every_answer_is_valid() -> None:
    typist = Typist("", "7", "")
    schema = {
        "properties": {"n": {"type": "integer"}, "o": {"type": "string"}},
        "required": ["n"],
    }
    assert await typist.ask(schema) == Reply("accept", {"n": 7})
    assert "[question] Why?" in typist.shown[0] and "required" in typist.shown[1]
    assert "[question]" not in typist.shown[2] and "o (optional)" in typist.shown[2]


@aio
async def test_a_form_is_declined_by_a_word_by_the_end_of_input_or_if_it_is_not_a_form(
    capsys: pytest.CaptureFixture[str],
) -> None:
    schema = {"properties": {"n": {"type": "integer"}}}
    assert await Typist("/decline").ask(schema) == DECLINED
    assert await Typist(None).ask(schema) == DECLINED
    assert await Typist().ask({"properties": {"n": {"type": "object"}}}) == DECLINED
    assert "cannot be filled in" in capsys.readouterr().err
    assert CANCELLED != DECLINED


@aio
async def test_a_form_without_fields_and_a_page_ask_for_consent() -> None:
    assert await Typist("y").ask({"properties": {}}) == Reply("accept", {})
    assert await Typist("n").ask({"properties": {}}) == DECLINED
    page = Typist("yes")
    assert await page.ask(None, url="https://example.org/") == Reply("accept")
    assert "https://example.org/" in page.shown[0]
    assert await Typist("").ask(None, url="https://example.org/") == DECLINED
