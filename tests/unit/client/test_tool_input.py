"""What is taken out of a tool call, whatever the agent calls it."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.client.tool_input import told_of


def test_a_call_without_anything_says_nothing() -> None:
    calls: tuple[Any, ...] = (None, {}, {"rawInput": {}}, 7)
    for call in calls:
        told = told_of(call)
        assert (told.paths, told.lines, told.argv, told.kinds) == ([], [], None, set())
        assert not told.runs and not told.shows_reading("read") and told.shows_reading("think")


@pytest.mark.parametrize(
    "given",
    [
        {"file_path": "a", "offset": 3, "limit": 10},
        {"pattern": "x", "path": "src", "output_mode": "content", "-i": True, "glob": "*.py"},
        {"paths": ["a", "b"], "recursive": True, "options": {"respect_git_ignore": True}},
        {"query": "where is it", "description": "to find it"},
    ],
)
def test_input_of_tools_that_read_shows_reading(given: dict[str, Any]) -> None:
    assert told_of({"rawInput": given}).shows_reading("read")


@pytest.mark.parametrize(
    "given",
    [
        {"path": "a", "payload": "x"},
        {"path": "a", "options": {"then": "x"}},
        {"path": "a", "extra": ["x"]},
        {"path": "a", "new_string": "x"},
        {"path": "a", "code": "x"},
        {"url": "https://example.org"},
        {"path": "https://example.org"},
        {"path": "a", "content": ""},
        {"path": "a", "overwrite": True},
        {"path": "a", "process": 1234},
        {"path": "a", "rm -rf ~": None},
        {"source": "a", "destination": "b"},
        {"path": "a", "newPath": "b"},
        5,
        "a",
        ["a"],
    ],
)
def test_any_other_word_in_the_input_does_not(given: Any) -> None:
    assert not told_of({"rawInput": given}).shows_reading("read")


def test_input_that_is_nested_too_deeply_may_run_anything() -> None:
    deep: Any = {"command": "x"}
    for _ in range(20):
        deep = {"more": deep}
    assert told_of({"rawInput": deep}).hidden


def test_texts_that_would_be_written_are_known() -> None:
    told = told_of(
        {"rawInput": {"path": "a", "edits": [{"old_string": "x", "new_text": "y", "at": "z"}]}}
    )
    assert told.written == ["x", "y"] and told.unknown
