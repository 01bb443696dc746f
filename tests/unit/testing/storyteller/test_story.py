"""A story is the same after its way through JSON."""

from __future__ import annotations

import pytest

from dragoman.testing.storyteller import story
from dragoman.testing.storyteller.story import (
    Ask,
    ChangeFile,
    Choices,
    Count,
    Crash,
    End,
    Fail,
    FinishTool,
    Past,
    Say,
    SetOption,
    SetPlan,
    Story,
    SwitchMode,
    TellChoices,
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
    SwitchMode("write"),
    SetOption("effort", "high"),
    TellChoices(),
    Ask("1", (Say("yes"), Ask("1", (Say("twice"),))), (Fail("internal", "no"),)),
    Count(1, 2, 3, 4),
    Wait(),
    Crash(9),
    End("refusal"),
    Fail("rate_limit", "later"),
)


def test_every_step_survives_the_way_through_json() -> None:
    past = Past("p", "Title", (("user", "q"), ("agent", "a")))
    choices = Choices(("plan",), ("a", "b"), (("effort", ("low",)),), (("help", "Help"),))
    whole = Story(EVERY_STEP, (past,), choices)
    assert loads(dumps(whole)) == whole
    assert loads('{"steps": []}') == Story(())


def test_a_model_is_one_of_the_options() -> None:
    choices = Choices(models=("a", "b"), options=(("effort", ("low", "high")),))
    assert choices.values == {"model": ("a", "b"), "effort": ("low", "high")}
    assert Choices().values == {}


def test_no_step_is_forgotten_here() -> None:
    assert {type(step).__name__ for step in EVERY_STEP} == set(story.STEPS)


def test_an_unknown_step_is_an_error() -> None:
    with pytest.raises(KeyError):
        loads('{"steps": [{"step": "Dance"}], "past": []}')
