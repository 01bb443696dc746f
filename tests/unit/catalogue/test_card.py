from __future__ import annotations

import msgspec

from dragoman.catalogue.card import (
    CARD_FORMAT,
    Card,
    MeasuredFacts,
    RungResult,
    RungVerdict,
    to_know,
)


def test_what_was_not_measured_is_unknown_and_not_false() -> None:
    assert set(msgspec.structs.asdict(MeasuredFacts()).values()) == {None}


def test_a_card_survives_its_json_with_unknown_and_false_told_apart() -> None:
    card = Card(
        peer="gemini",
        version="0.61.0",
        platform="linux",
        measured_at="2026-11-15T00:00:00+00:00",
        dragoman="0.1",
        turns=True,
        reached="echo",
        usable=True,
        rungs=(RungResult(rung="echo", verdict=RungVerdict.PASS, evidence="it said hello"),),
        facts=MeasuredFacts(echo=True, cancel=False, models=("a", "b")),
    )
    again = msgspec.json.decode(msgspec.json.encode(card), type=Card)
    assert again == card
    assert again.format == CARD_FORMAT
    assert (again.facts.echo, again.facts.cancel, again.facts.usage) == (True, False, None)


def test_warnings_and_failures_are_what_a_user_has_to_know() -> None:
    warning = RungResult(rung="late updates", verdict=RungVerdict.WARN, evidence="late")
    passed = RungResult(rung="binary", verdict=RungVerdict.PASS, evidence="found")
    card = Card(
        peer="x",
        version="1.2",
        platform="linux",
        measured_at="",
        dragoman="",
        turns=True,
        reached="",
        usable=True,
        rungs=(passed, warning),
    )
    assert to_know(card) == ["late updates: late"]
