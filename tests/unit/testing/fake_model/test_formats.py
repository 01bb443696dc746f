"""What the formats of the model APIs share."""

from __future__ import annotations

import json

from dragoman.testing.fake_model.formats import (
    dict_of,
    event,
    objects,
    said,
    schema_of,
    texts,
    usage_of,
)
from dragoman.testing.fake_model.triggers import Asked, Reply


def test_an_event_is_one_line_of_data_with_its_name_before_it() -> None:
    piece = event({"a": "b\nc"}, "thing", text=True)
    assert piece.data == b'event: thing\ndata: {"a": "b\\nc"}\n\n'
    assert piece.text
    assert event([]).data == b"data: []\n\n"


def test_what_is_not_an_object_is_passed_over() -> None:
    assert list(objects([1, {"a": 1}, None])) == [{"a": 1}]
    assert list(objects("text")) == []
    assert dict_of([1]) == {}


def test_content_is_a_text_or_parts() -> None:
    assert texts("one") == ["one"]
    assert texts([{"text": "one"}, {"image": 1}, {"text": 2}, {"text": "two"}]) == ["one", "two"]
    assert texts(None) == []


def test_a_result_that_is_not_text_is_shown_as_json() -> None:
    assert said("plain") == "plain"
    assert said([{"text": "a"}, {"text": "b"}]) == "a\nb"
    assert json.loads(said({"output": 3})) == {"output": 3}
    assert said(None) == ""


def test_words_stand_for_tokens() -> None:
    assert usage_of(Asked("m", "two words"), Reply(("a", "b", "c"))) == (2, 3)


def test_the_schema_of_an_answer_is_found_where_it_stands() -> None:
    wanted = {"type": "json_schema", "json_schema": {"schema": {"type": "array"}}}
    assert schema_of(wanted, "json_schema", "schema") == {"type": "array"}
    assert schema_of({"type": "json_object"}, "json_schema", "schema") == {"type": "object"}
    assert schema_of({"type": "text"}, "schema") is None
    assert schema_of(None, "schema") is None
