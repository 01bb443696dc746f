"""The facts: what is not said is neither allowed nor known."""

from __future__ import annotations

from dragoman.delegation.routing import CardFacts, Inputs, PeerFacts


def test_a_peer_of_which_nothing_is_said_is_not_on_the_allow_list_and_claims_nothing() -> None:
    facts = PeerFacts(name="amber")
    assert (facts.enabled, facts.always, facts.roles, facts.card) == (False, False, (), None)


def test_what_a_card_did_not_measure_is_unknown() -> None:
    card = CardFacts()
    assert (card.turns_ok, card.asks_permission, card.parallel, card.models) == (None,) * 4


def test_the_bandit_only_watches_unless_it_may_decide() -> None:
    assert Inputs(role="review", peers=()).adaptive == "shadow"
