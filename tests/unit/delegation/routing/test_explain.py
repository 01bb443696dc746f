"""A decision in words, as a person reads it."""

from __future__ import annotations

from dragoman.delegation.routing import explain
from dragoman.store.values import Arm, Posterior
from tests.unit.delegation.routing.peers import NOW, decided, peer, scout


def test_a_decision_is_told_with_its_order_and_every_reason() -> None:
    decision = decided(
        peer("amber", tiers={"fast": "a-1"}),
        peer("birch", enabled=False),
        peer("cedar", roles=("plan",)),
        scout(),
        tier="fast",
    )
    assert explain(decision) == [
        "review (medium work, tier fast): amber is the only one that can be asked for review",
        "asked in this order (the fixed order):",
        "  1. amber (fast: a-1): it claims review",
        "  2. scout: the last resort, which answers what it can",
        "passed over:",
        "  birch  it is not enabled: `dragoman peers enable birch`",
        "  cedar  it does not claim review; it claims plan",
    ]


def test_a_decision_for_nobody_has_only_reasons() -> None:
    lines = explain(decided(peer("amber", enabled=False)))
    assert lines[0] == "review (medium work): nobody can be asked for review"
    assert lines[1] == "passed over:"


def test_a_model_that_was_asked_for_is_shown_once() -> None:
    lines = explain(decided(peer("amber"), model="m-1"))
    assert lines[2].startswith("  1. amber (m-1): ")


def test_the_shadow_is_told_and_agreement_too() -> None:
    known = {
        Arm(role="review", size="medium", peer="amber"): Posterior(
            beta=90, pulls=90, updated_at=NOW
        ),
        Arm(role="review", size="medium", peer="birch"): Posterior(
            alpha=90, pulls=90, updated_at=NOW
        ),
    }
    other = decided(peer("amber"), peer("birch"), scout(), adaptive="shadow", posteriors=known)
    assert explain(other)[-1] == "the bandit would have chosen: birch, amber"
    same = decided(peer("birch"), peer("amber"), scout(), adaptive="shadow", posteriors=known)
    assert explain(same)[-1] == "the bandit would have chosen the same order"


def test_scores_are_shown_where_the_bandit_decided() -> None:
    lines = explain(decided(peer("amber"), adaptive="on"))
    assert lines[1] == "asked in this order (by what they have earned):"
    assert "amber [0." in lines[2]
    assert lines[2].endswith("never tried")
