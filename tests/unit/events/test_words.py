"""The words: what is not known is never taken for success."""

from __future__ import annotations

import msgspec
import pytest

from dragoman.dialects.acp.v1 import translate as acp
from dragoman.dialects.legacy import chained, keyed, oneshot, tagged, threads
from dragoman.events import words
from dragoman.events.parts import Capabilities
from dragoman.events.words import (
    Loss,
    Outcome,
    Part,
    PermissionKind,
    PlanStatus,
    ToolKind,
    ToolStatus,
    parts_of,
)


@pytest.mark.parametrize(
    ("stop", "outcome"),
    [
        ("end_turn", Outcome.OK),
        ("completed", Outcome.OK),
        ("max_tokens", Outcome.TRUNCATED),
        ("refusal", Outcome.REFUSED),
        ("cancelled", Outcome.CANCELLED),
        ("interrupted", Outcome.CANCELLED),
        ("failed", Outcome.FAILED),
        ("END_TURN", Outcome.UNKNOWN),
        ("", Outcome.UNKNOWN),
    ],
)
def test_a_stop_is_an_outcome_and_an_unknown_one_is_not_good(stop: str, outcome: Outcome) -> None:
    assert words.outcome_of(stop) is outcome
    assert outcome.good is (outcome is Outcome.OK)


def test_unknown_words_become_other() -> None:
    assert words.tool_status("levitating") is ToolStatus.OTHER
    assert words.tool_kind("levitate") is ToolKind.OTHER
    assert words.plan_status("levitating") is PlanStatus.OTHER
    assert words.permission_kind("allow_gravity") is PermissionKind.OTHER


def test_spellings_of_different_dialects_mean_the_same() -> None:
    assert words.tool_status("in_progress") is words.tool_status("inProgress")
    assert words.plan_status("in_progress") is PlanStatus.RUNNING
    assert words.tool_status("in_progress") is ToolStatus.RUNNING


def test_a_tool_is_over_when_it_ended_in_whatever_way() -> None:
    over = {status for status in ToolStatus if status.over}
    assert over == {
        ToolStatus.COMPLETED,
        ToolStatus.FAILED,
        ToolStatus.DECLINED,
        ToolStatus.CANCELLED,
    }


def test_no_kind_of_error_makes_a_turn_good() -> None:
    assert not any(outcome.good for outcome in words.ERROR_OUTCOMES.values())


EVERY = [acp.LOSSES, oneshot.LOSSES, threads.LOSSES, tagged.LOSSES, keyed.LOSSES, chained.LOSSES]
NAMES = {field.name for field in msgspec.structs.fields(Capabilities)}


@pytest.mark.parametrize("losses", EVERY)
def test_a_loss_names_capabilities_that_exist(losses: tuple[Loss, ...]) -> None:
    assert {name for loss in losses for name in loss.cannot} <= NAMES


@pytest.mark.parametrize("losses", EVERY)
def test_no_part_is_lost_twice(losses: tuple[Loss, ...]) -> None:
    parts = [part for loss in losses for part in loss.parts]
    assert len(set(parts)) == len(parts)
    assert parts_of(losses) == set(parts)


def test_every_part_is_lost_by_some_dialect() -> None:
    assert frozenset.union(*map(parts_of, EVERY)) == set(Part)
