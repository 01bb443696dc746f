"""Where events come from: the envelope, and the counting."""

from __future__ import annotations

import itertools

from dragoman.events.envelope import EventEnvelope
from tests.unit.events.sayings import SOURCE


def test_places_of_one_connection_count_together() -> None:
    numbers = itertools.count(1)
    one, two = EventEnvelope(SOURCE, numbers, "a"), EventEnvelope(SOURCE, numbers, "b")
    seqs = [place.base("x", None)[1] for place in (one, two, one)]
    assert seqs == [1, 2, 3]


def test_the_envelope_has_the_session_the_turn_and_the_message() -> None:
    place = EventEnvelope(SOURCE, itertools.count(7), "s")
    place.turn = "t"
    place.replay = True
    assert place.base("method", b"{}") == (SOURCE, 7, "s", "t", "method", b"{}", True)
