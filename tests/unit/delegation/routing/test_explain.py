"""A decision in words, as a person reads it."""

from __future__ import annotations

from dragoman.delegation.routing import TrackRecord, explain
from dragoman.store.values import Arm, Posterior
from tests.unit.delegation.routing.peers import NOW, decided, peer, scout


def test_a_decision_is_reported_with_its_order_and_every_reason() -> None:
    decision = decided(
        peer("amber", tiers={"fast": "a-1"}),
        peer("birch", enabled=False),
        peer("cedar", roles=("plan",)),
        scout(),
        tier="fast",
    )
    assert explain(decision) == [
        "review (medium work, tier fast): amber is the only one that can be used for review",
        "tried in this order: first those that have the model asked for, then the order of "
        "enabled_peers in your settings; measured success does not change it (adaptive = off)",
        "  1. amber (fast: a-1): it claims review",
        "  2. scout: the last resort, which answers what it can",
        "passed over:",
        "  birch  it is not enabled: `dragoman peers enable birch`",
        "  cedar  it does not claim review; it claims plan",
    ]


def test_a_decision_without_candidates_has_only_reasons() -> None:
    lines = explain(decided(peer("amber", enabled=False)))
    assert lines[0] == "review (medium work): no peer can be used for review"
    assert lines[1] == "passed over:"


def test_a_model_that_was_asked_for_is_shown_once() -> None:
    lines = explain(decided(peer("amber"), model="m-1"))
    assert lines[2].startswith("  1. amber (m-1): ")


def test_the_shadow_is_reported_and_agreement_too() -> None:
    known = {
        Arm(role="review", size="medium", peer="amber"): Posterior(
            beta=90, pulls=90, updated_at=NOW
        ),
        Arm(role="review", size="medium", peer="birch"): Posterior(
            alpha=90, pulls=90, updated_at=NOW
        ),
    }
    other = decided(peer("amber"), peer("birch"), scout(), adaptive="shadow", posteriors=known)
    assert explain(other)[-1] == "adaptive = on would have drawn this order this time: birch, amber"
    same = decided(peer("birch"), peer("amber"), scout(), adaptive="shadow", posteriors=known)
    assert explain(same)[-1] == "adaptive = on would have drawn the same order this time"
    assert "adaptive = shadow" in explain(same)[1]
    assert not any("[" in line for line in explain(same))


def test_draws_are_shown_as_draws_and_only_where_the_bandit_decided() -> None:
    lines = explain(decided(peer("amber"), adaptive="on"))
    assert lines[1] == (
        "tried in this order: random draws from measured success, cost and time; adaptive = on"
    )
    assert "amber [drawn 0." in lines[2]


def test_what_came_of_earlier_work_is_reported_with_counts() -> None:
    tried = TrackRecord(finished=8, done=7, costs={"USD": 0.06}, priced=6, seconds=4.04)
    free = TrackRecord(finished=2, done=1)
    lines = explain(
        decided(
            peer("amber", record=tried), peer("birch", record=free), scout(record=TrackRecord())
        )
    )
    assert lines[3] == "     7 of 8 done, 0.01 USD each on average, cost of 2 unknown, 4.0 s each"
    assert lines[5] == "     1 of 2 done, cost unknown"
    assert lines[7] == "     no review was delegated to it yet"


def test_the_end_of_a_pause_is_reported_by_the_clock() -> None:
    parked = peer("amber", parked_until=NOW + 900, parked_why="its quota is used up")
    lines = explain(decided(parked, scout()), clock=lambda at: f"at {at:.0f}")
    assert lines[-1] == (
        f"  amber  until at {NOW + 900:.0f}: its quota is used up; parked for another 15 min: "
        "`dragoman peers unpark amber`"
    )
