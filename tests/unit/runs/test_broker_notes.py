from __future__ import annotations

from itertools import count

import pytest

from dragoman.events import model
from dragoman.events.model import EventEnvelope
from dragoman.events.words import Outcome
from dragoman.runs.broker_notes import BrokerNotes
from dragoman.runs.sessions import LIVE, NEW, RESTORED

PLACE = EventEnvelope(model.Source("acp", "c"), count(), "s")


def said(what: str) -> bytes:
    return b'{"result": {"_meta": {"dragoman": {%b}}}}' % what.encode()


def ended(raw: bytes) -> model.TurnEnded:
    return model.TurnEnded(*PLACE.base("x", raw), outcome=Outcome.OK)


def test_what_a_broker_says_with_the_end_of_a_turn_is_passed_on_and_the_same_failure_once() -> None:
    told: list[str] = []
    notes = BrokerNotes(told.append)
    full = said('"unstored": "the disk is full"')
    for raw in (full, full, b'{"result": {}}', full):
        notes.turn_begins()
        notes.event(ended(raw))
        notes.report()
    assert told == ["this is not stored: the disk is full"] * 2
    notes.event(ended(said('"notice": "update soon"')))
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
        raw = said(f'"context": "{opening}"')
        notes.event(model.SessionOpened(*PLACE.base("x", raw), how="load"))
    for expected in (first, second):
        notes.turn_begins()
        if ending is not None:
            notes.event(ended(said(f'"context": "{ending}"')))
        assert notes.context(opened) == expected
