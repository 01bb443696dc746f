"""JSON with comments: what is read, what is refused, and where things stand."""

from __future__ import annotations

import json

import pytest

from dragoman.setup.install.jsonc import MAX_DEPTH, InvalidJsonc, comments_end, read

TEXT = '// head\n{ "a": [1, 2.5e3, true, null,], /* x */ "b{": {"c": "\\u00e4 // no" , }, }\n'


def test_comments_and_trailing_commas_are_read_over() -> None:
    node = read(TEXT)
    assert node is not None
    assert node.value == {"a": [1, 2500.0, True, None], "b{": {"c": "ä // no"}}
    assert node.trailing_comma


def test_every_member_knows_its_place() -> None:
    node = read(TEXT)
    assert node is not None
    first, second = node.members
    assert TEXT[first.start :].startswith('"a"')
    assert TEXT[first.node.start : first.node.end] == "[1, 2.5e3, true, null,]"
    assert TEXT[second.node.start : second.node.end] == '{"c": "\\u00e4 // no" , }'
    assert node.member("b{") is second and node.member("b") is None


@pytest.mark.parametrize("text", ["", " \r\n", "// nothing", "/* nothing\n */ "])
def test_a_text_without_a_value_has_none(text: str) -> None:
    assert read(text) is None


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("{\n  'a': 1}", 2, "a key in double quotes"),
        ('{"a" 1}', 1, "a colon"),
        ('{"a": 1 "b": 2}', 1, "a comma or a closing brace"),
        ("[1 2]", 1, "a comma or a closing bracket"),
        ('{"a": 1,, }', 1, "a key in double quotes"),
        ("{,}", 1, "a key in double quotes"),
        ("[,]", 1, "a value"),
        ('{"a": 1}\n{}', 2, "after the end"),
        ('{"a": "x\n"}', 1, "does not end"),
        ('{"a": "\\x"}', 1, "invalid escape"),
        ('{"a": ', 1, "ends too early"),
        ('{"a": 01}', 1, "a comma or a closing brace"),
        ('{"a": 1} /* open', 1, "after the end"),
        ("name: value\n", 1, "a value"),
    ],
)
def test_what_is_not_json_is_named_with_its_line(text: str, line: int, problem: str) -> None:
    with pytest.raises(InvalidJsonc) as refused:
        read(text)
    assert refused.value.line == line
    assert problem in refused.value.problem


def test_a_key_that_occurs_twice_is_refused_at_any_depth() -> None:
    with pytest.raises(InvalidJsonc, match='line 3, column 3: the key "b" occurs twice'):
        read('{"a": {"b": 1,\n // here\n  "\\u0062": 2}}')


def test_nesting_without_end_is_refused_and_does_not_exhaust_the_stack() -> None:
    assert read("[" * MAX_DEPTH + "]" * MAX_DEPTH) is not None
    with pytest.raises(InvalidJsonc, match="nested more than"):
        read("[" * 100_000)


def test_plain_json_means_what_it_means_elsewhere() -> None:
    value = {"a": [1, -2, 0.5, 'ü\n"\\', {}, [], None, True, False], "": {"x": {"y": 1e9}}}
    for text in (json.dumps(value), json.dumps(value, indent=4)):
        node = read(text)
        assert node is not None and node.value == value


def test_the_end_of_the_last_comment_is_found() -> None:
    text = "x  // one\n /* two */  }"
    assert text[: comments_end(text, 1, len(text) - 1)].endswith("/* two */")
    assert comments_end("x  }", 1, 3) == 1
