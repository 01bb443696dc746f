"""Tests of what every value has in common."""

from __future__ import annotations

from inspect import get_annotations

import pytest

from dragoman.dialects.acp import v1
from dragoman.dialects.acp.v1 import shape


def test_values_cannot_be_changed() -> None:
    block = v1.text("x")
    with pytest.raises(AttributeError):
        block.text = "y"  # type: ignore[misc]


def test_values_with_the_same_content_are_equal() -> None:
    assert v1.text("x") == v1.TextContent(text="x")
    assert v1.text("x") != v1.text("y")


def test_values_take_their_fields_by_name_only() -> None:
    with pytest.raises(TypeError):
        v1.TextContent("x")  # type: ignore[call-arg,arg-type]


def test_the_text_form_shows_only_what_was_said() -> None:
    assert repr(v1.text("x")) == "TextContent(text='x')"


def test_a_supported_feature_is_an_empty_object() -> None:
    assert v1.encode(v1.Supported()) == b"{}"


def test_a_mark_shows_its_name() -> None:
    assert repr(shape.STRICT) == "STRICT"
    assert repr(shape.Alias("modeId")) == "modeId"


def test_a_family_without_members_cannot_choose() -> None:
    with pytest.raises(NotImplementedError):
        shape.Family.member({})


def every_type(base: type) -> list[type]:
    below: list[type] = base.__subclasses__()
    return [found for each in below for found in (each, *every_type(each))]


def test_no_type_leaves_the_compiling_of_its_annotations_to_the_first_message() -> None:
    types = [*every_type(shape.Wire), *every_type(shape.Unknown)]
    ours = [each for each in types if each.__module__.startswith(v1.__name__)]
    assert v1.TextContent in ours
    texts = [
        each for each in ours if any(isinstance(a, str) for a in get_annotations(each).values())
    ]
    assert texts == []
