"""Who is asked, and in which order."""

from __future__ import annotations

import random

import pytest

from dragoman.delegation.routing import CardFacts, Inputs, Reason, decide
from dragoman.errors import UnknownPeer, UnknownRole
from dragoman.store.values import Arm, Posterior
from tests.unit.delegation.routing.peers import NOW, decided, names, peer, scout

GOOD = Posterior(alpha=45, beta=5, pulls=50, updated_at=NOW)
BAD = Posterior(alpha=5, beta=45, pulls=50, updated_at=NOW)


def arm(name: str, tier: str = "default") -> Arm:
    return Arm(role="review", size="medium", peer=name, tier=tier)


class NoDice:
    """Dice that nobody may throw."""

    def betavariate(self, alpha: float, beta: float, /) -> float:
        raise AssertionError("the dice were thrown")


def test_candidates_stand_in_the_given_order_and_the_last_resort_at_the_end() -> None:
    decision = decided(scout(), peer("birch"), peer("amber"))
    assert names(decision) == ["birch", "amber", "scout"]
    assert [item.last_resort for item in decision.candidates] == [False, False, True]
    assert decision.order == "fixed"
    assert "birch is the first of your enabled peers" in decision.why


def test_an_unclaimed_role_is_refused_with_a_list_of_roles() -> None:
    with pytest.raises(UnknownRole, match="did you mean review.*exploration, plan, review"):
        decided(peer("amber", roles=("review", "plan")), scout(), role="reviev")
    with pytest.raises(UnknownRole, match="no peer claims any"):
        decided()


def test_a_role_that_only_peers_out_of_reach_claim_is_known() -> None:
    decision = decided(peer("amber", installed=False), scout())
    assert names(decision) == ["scout"]
    assert decision.why == "only the last resort is left: scout"


def test_a_peer_that_does_not_exist_is_refused_with_those_that_look_like_it() -> None:
    with pytest.raises(UnknownPeer, match="did you mean amber"):
        decided(peer("amber"), peer="ambre")


def test_two_peers_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="same name"):
        decided(peer("amber"), peer("amber"))


def test_a_named_peer_is_the_only_one() -> None:
    decision = decided(peer("amber"), peer("birch"), scout(), peer="birch")
    assert names(decision) == ["birch"]
    assert [(item.peer, item.reason) for item in decision.passed_over] == [
        ("amber", Reason.NOT_WISHED),
        ("scout", Reason.NOT_WISHED),
    ]
    assert decision.why == "birch was requested"


def test_a_named_peer_is_asked_for_a_role_that_it_does_not_claim() -> None:
    decision = decided(peer("amber"), peer("birch", roles=()), scout(), peer="birch")
    (candidate,) = decision.candidates
    assert candidate.peer == "birch"
    assert candidate.why.startswith("it was requested by name; it does not claim ")


def test_a_named_last_resort_is_an_ordinary_candidate() -> None:
    (candidate,) = decided(peer("amber"), scout(), peer="scout").candidates
    assert (candidate.peer, candidate.last_resort) == ("scout", False)


def test_at_the_depth_limit_no_peer_is_asked_not_even_the_last_resort() -> None:
    decision = decided(peer("amber"), scout(), depth=3, max_depth=3)
    assert decision.candidates == ()
    assert {item.reason for item in decision.passed_over} == {Reason.TOO_DEEP}
    assert "3 deep" in decision.why
    assert names(decided(peer("amber"), depth=2, max_depth=3)) == ["amber"]


def test_having_no_peer_at_all_is_reported() -> None:
    assert decided(peer("amber", enabled=False)).why == "no peer can be used for review"


def test_without_a_wish_the_model_is_left_to_the_peer() -> None:
    (candidate,) = decided(peer("amber", tiers={"fast": "a-1"})).candidates
    assert (candidate.tier, candidate.model) == ("default", None)


def test_a_tier_chooses_the_model_and_peers_that_name_none_come_behind() -> None:
    decision = decided(peer("amber"), peer("birch", tiers={"fast": "b-1"}), tier="fast")
    assert [(item.peer, item.tier, item.model) for item in decision.candidates] == [
        ("birch", "fast", "b-1"),
        ("amber", "default", None),
    ]
    assert "it has no fast model" in decision.candidates[1].why


def test_a_model_goes_first_to_those_known_to_have_it_and_never_to_those_known_not_to() -> None:
    decision = decided(
        peer("amber"),
        peer("birch", card=CardFacts(models=("m-2",))),
        peer("cedar", card=CardFacts(models=("m-1",))),
        peer("delta", tiers={"strong": "m-1"}),
        scout(),
        model="m-1",
        tier="fast",
    )
    assert [(item.peer, item.tier, item.model) for item in decision.candidates] == [
        ("cedar", "model:m-1", "m-1"),
        ("delta", "strong", "m-1"),
        ("amber", "model:m-1", "m-1"),
        ("scout", "default", None),
    ]
    assert "it is not known whether it has m-1" in decision.candidates[2].why
    assert [item.peer for item in decision.passed_over] == ["birch"]


def test_what_speaks_against_a_candidate_is_said() -> None:
    decision = decided(
        peer("amber", card=None),
        peer("birch", card=CardFacts(asks_permission=False)),
        peer("cedar", breaker="half_open"),
    )
    assert [item.why.partition("; ")[2] for item in decision.candidates] == [
        "never verified",
        "it does not ask before it writes",
        "a trial after repeated failures",
    ]


def test_off_never_asks_the_bandit() -> None:
    question = Inputs(role="review", peers=(peer("amber"), peer("birch")), adaptive="off")
    decision = decide(question, NoDice(), NOW)
    assert [item.score for item in decision.candidates] == [None, None]
    assert decision.shadow == ()


def test_shadow_keeps_the_fixed_order_and_says_what_the_bandit_would_have_done() -> None:
    known = {arm("amber"): BAD, arm("birch"): GOOD}
    decision = decided(peer("amber"), peer("birch"), scout(), adaptive="shadow", posteriors=known)
    assert names(decision) == ["amber", "birch", "scout"]
    assert decision.order == "fixed"
    assert decision.shadow == ("birch", "amber")
    assert decision.candidates[0].score is not None
    assert decision.candidates[2].score is None


def test_on_follows_the_bandit_but_leaves_the_last_resort_at_the_end() -> None:
    known = {
        arm("amber"): BAD,
        arm("birch"): GOOD,
        arm("scout"): Posterior(alpha=900, beta=1, pulls=900, updated_at=NOW),
    }
    decision = decided(scout(), peer("amber"), peer("birch"), adaptive="on", posteriors=known)
    assert names(decision) == ["birch", "amber", "scout"]
    assert (decision.order, decision.shadow) == ("bandit", ())
    assert "drew the best score" in decision.why


def test_on_chooses_the_tier_that_has_earned_most_unless_one_is_wished_for() -> None:
    subject = peer("amber", tiers={"fast": "a-1", "strong": "a-9"})
    known = {arm("amber", tier): BAD for tier in ("default", "fast")}
    known[arm("amber", "strong")] = GOOD
    (free,) = decided(subject, adaptive="on", posteriors=known).candidates
    assert (free.tier, free.model) == ("strong", "a-9")
    (wished,) = decided(subject, adaptive="on", posteriors=known, tier="fast").candidates
    assert (wished.tier, wished.model) == ("fast", "a-1")


def test_no_draw_goes_against_a_wish() -> None:
    known = {arm("amber"): GOOD, arm("birch", "fast"): BAD}
    decision = decided(
        peer("amber"),
        peer("birch", tiers={"fast": "b-1"}),
        adaptive="on",
        posteriors=known,
        tier="fast",
    )
    assert names(decision) == ["birch", "amber"]


def test_what_was_learned_of_other_work_does_not_count() -> None:
    other = {Arm(role="review", size="large", peer="amber"): BAD}
    asked = (peer("amber"), peer("birch"))
    question = Inputs(role="review", peers=asked, adaptive="on", posteriors=other)
    blank = Inputs(role="review", peers=asked, adaptive="on")
    for seed in range(20):
        first, second = (decide(q, random.Random(seed), NOW) for q in (question, blank))
        assert first == second


def test_the_host_of_a_peer_is_part_of_its_candidate_and_of_the_reason() -> None:
    there = peer("amber@box", host="box", host_note="checked 2 h ago", card=None)
    (one,) = decided(there).candidates
    assert one.host == "box"
    assert one.why == "it claims review; on the host box, checked 2 h ago"
