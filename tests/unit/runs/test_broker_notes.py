from __future__ import annotations

import pytest

from dragoman.broker.protocol import Added
from dragoman.runs.broker_notes import BrokerNotes
from dragoman.runs.sessions import LIVE, NEW, RESTORED


def test_what_a_broker_says_with_the_end_of_a_turn_is_passed_on_and_the_same_failure_once() -> None:
    told: list[str] = []
    notes = BrokerNotes(told.append)
    full = Added(unstored="the disk is full")
    for ended in (full, full, Added(), full):
        notes.turn_begins()
        notes.ended = ended
        notes.report()
    assert told == ["this is not stored: the disk is full"] * 2
    notes.ended = Added(notice="update soon")
    notes.report()
    assert told[2:] == ["update soon"]


@pytest.mark.parametrize(
    ("opened", "opening", "ending", "first", "second"),
    [
        (NEW, None, None, NEW, LIVE),
        (RESTORED, None, None, RESTORED, LIVE),
        (RESTORED, "live", None, LIVE, LIVE),
        (RESTORED, "live", "fresh", "fresh", "fresh"),
    ],
)
def test_the_context_of_a_turn_is_the_brokers_if_it_says_one(
    opened: str, opening: str | None, ending: str | None, first: str, second: str
) -> None:
    notes = BrokerNotes(lambda text: None)
    if opening is not None:
        notes.opened = Added(context=opening)
    for expected in (first, second):
        notes.turn_begins()
        if ending is not None:
            notes.ended = Added(context=ending)
        assert notes.context(opened) == expected
