from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.scout.search import Found
from dragoman.scout.turn_context import reservations
from tests.aio import aio
from tests.unit.scout.asking import answer


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (Found([]), ""),
        (Found([], cut=True), "stopped early"),
        (Found([], unreadable=2), "2 files or directories could not be read"),
    ],
)
def test_what_was_missed_is_said(found: Found, words: str) -> None:
    said = reservations(found)
    assert words in said
    assert bool(said) is bool(words)


@aio
async def test_a_plan_moves_one_step_at_a_time_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def foo():\n    pass\n")
    reply = await answer(tmp_path, tmp_path / ".state", "where is foo defined?")
    states = [[state for _, state in plan] for plan in reply.plans]
    assert states == [
        ["in_progress", "pending", "pending"],
        ["completed", "in_progress", "pending"],
        ["completed", "completed", "in_progress"],
        ["completed", "completed", "completed"],
    ]


@aio
async def test_a_tool_call_says_what_it_does_where_and_what_came_of_it(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("\ndef foo():\n    pass\n")
    reply = await answer(tmp_path, tmp_path / ".state", "where is foo defined?")
    first, last = next(iter(reply.tools.values()))
    assert (first.kind, first.status, first.name) == ("search", "in_progress", "search")
    assert first.raw_input["terms"] == ["foo"]
    assert last.status == "completed"
    assert [(place.path, place.line) for place in last.locations] == [(str(tmp_path / "a.py"), 2)]
    assert "`a.py:2`" in last.content[0].content.text
    assert last.raw_output["complete"] is True


@aio
async def test_a_path_that_is_not_text_is_not_a_place_to_follow(tmp_path: Path) -> None:
    (tmp_path / "a\nb.py").write_text("def foo():\n    pass\n")
    reply = await answer(tmp_path, tmp_path / ".state", "where is foo defined?")
    assert "`a\\nb.py:1`" in reply.text
    _, last = next(iter(reply.tools.values()))
    assert not last.locations
