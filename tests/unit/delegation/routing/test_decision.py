"""A decision is stored and printed as it is, and says what an attempt teaches."""

from __future__ import annotations

import msgspec

from dragoman.delegation.routing import Decision
from dragoman.store.values import Arm
from tests.unit.delegation.routing.peers import NOW, decided, peer, scout


def test_a_decision_survives_being_stored_as_json() -> None:
    decision = decided(
        peer("amber"), peer("birch", parked_until=NOW + 5), scout(), adaptive="shadow"
    )
    assert msgspec.json.decode(msgspec.json.encode(decision), type=Decision) == decision


def test_an_attempt_teaches_about_the_tier_that_was_asked_for() -> None:
    decision = decided(peer("amber", tiers={"fast": "a-1"}), tier="fast", size="large")
    (candidate,) = decision.candidates
    assert decision.arm_of(candidate) == Arm(role="review", size="large", peer="amber", tier="fast")
