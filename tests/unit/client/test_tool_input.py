"""What is taken out of a tool call, whatever the agent calls it."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.client.codex.approvals import UNNAMED, Approval
from dragoman.client.tool_input import told_of
from dragoman.events.words import ToolKind


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


@pytest.mark.parametrize(
    ("kind", "title", "lines", "hidden"),
    [
        (ToolKind.EXECUTE, "make", ["make"], False),
        (ToolKind.READ, "cat a", ["cat a"], False),
        (ToolKind.EXECUTE, UNNAMED, [], True),
        (ToolKind.EXECUTE, "because", [], True),
        (ToolKind.EDIT, "Edit a", [], False),
    ],
)
def test_an_approval_of_codex_tells_its_command(
    kind: ToolKind, title: str, lines: list[str], hidden: bool
) -> None:
    told = told_of(Approval("t", None, "i", title, "because", kind, (), {}, None))
    assert (told.lines, told.hidden) == (lines, hidden)
