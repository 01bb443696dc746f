"""The values of the ledger."""

from __future__ import annotations

from msgspec import structs

from dragoman.events.parts import Usage
from dragoman.store.ledger.records import (
    MAX_TOKENS,
    NO_TOKENS,
    StatRow,
    new_decision_id,
    tokens_of,
)
from dragoman.store.values import Provenance
from tests.unit.store.ledger.samples import START, attempt

ROW = StatRow(
    key="review",
    attempts=4,
    ok=1,
    unfinished=2,
    fallbacks=0,
    good=0,
    bad=0,
    seconds=None,
    first_event_seconds=None,
    input_tokens=None,
    output_tokens=None,
    tokens_unknown=0,
    costs={},
    cost_unknown=0,
    cost_estimated=0,
)


def test_tokens_that_were_not_told_are_unknown_and_not_zero() -> None:
    assert tokens_of(None) is NO_TOKENS
    assert tokens_of(Usage(context_used=5)) is NO_TOKENS
    assert NO_TOKENS.input is None and NO_TOKENS.provenance is Provenance.UNKNOWN


def test_told_tokens_are_reported_and_their_sum_is_made_where_both_are_known() -> None:
    told = tokens_of(Usage(input_tokens=3, output_tokens=4))
    assert (told.input, told.output, told.total) == (3, 4, 7)
    assert told.provenance is Provenance.REPORTED
    assert tokens_of(Usage(input_tokens=3)).total is None
    assert tokens_of(Usage(total_tokens=9)).input is None


def test_numbers_of_tokens_that_cannot_be_right_are_unknown() -> None:
    told = tokens_of(Usage(input_tokens=-1, output_tokens=4, total_tokens=MAX_TOKENS + 1))
    assert (told.input, told.output, told.total) == (None, 4, None)
    assert tokens_of(Usage(input_tokens=MAX_TOKENS)).input == MAX_TOKENS


def test_an_attempt_that_runs_has_no_duration() -> None:
    assert attempt().seconds is None
    assert attempt(ended_at=START + 2.5).seconds == 2.5


def test_success_is_a_part_of_what_has_ended() -> None:
    assert ROW.success == 0.5
    assert structs.replace(ROW, unfinished=4).success is None


def test_no_two_decisions_have_one_name() -> None:
    assert len({new_decision_id() for _ in range(100)}) == 100
