"""A story is the same after its way through JSON."""

from __future__ import annotations

import pytest

from dragoman.testing.storyteller import story
from dragoman.testing.storyteller.story import (
    Ask,
    ChangeFile,
    Count,
    Crash,
    End,
    Fail,
    FinishTool,
    Past,
    Say,
    SetPlan,
    Story,
    Think,
    UseTool,
    Wait,
    dumps,
    loads,
)

EVERY_STEP = (
    Say("a"),
    Think("b"),
    UseTool("1", "read", "Read", "read", {"x": [1]}, "/a"),
    ChangeFile("1", "/a", "new", "old"),
    FinishTool("1", "out", "failed"),
    SetPlan((("one", "pending"), ("two", "completed"))),
    Ask("1", (Say("yes"), Ask("1", (Say("twice"),))), (Fail("internal", "no"),)),
    Count(1, 2, 3, 4),
    Wait(),
    Crash(9),
    End("refusal"),
    Fail("rate_limit", "later"),
)


def test_every_step_survives_the_way_through_json() -> None:
    whole = Story(EVERY_STEP, (Past("p", "Title", (("user", "q"), ("agent", "a"))),))
    assert loads(dumps(whole)) == whole


def test_no_step_is_forgotten_here() -> None:
    assert {type(step).__name__ for step in EVERY_STEP} == set(story.STEPS)


def test_an_unknown_step_is_an_error() -> None:
    with pytest.raises(KeyError):
        loads('{"steps": [{"step": "Dance"}], "past": []}')
