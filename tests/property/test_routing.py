"""Properties of routing: for any facts about any peers, no peer is lost and none is added."""

from __future__ import annotations

import math
import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dragoman.delegation.routing import (
    CardFacts,
    Decision,
    Inputs,
    PeerFacts,
    Reason,
    decide,
    explain,
)
from dragoman.errors import UnknownPeer, UnknownRole
from dragoman.store.values import Arm, Posterior, Size
from tests.amounts import SOME

NOW = 1_000_000.0
NAMES = ("amber", "birch", "cedar", "delta", "scout")
ROLES = ("review", "plan", "execute")
TIERS = ("default", "fast", "strong")
SIZES: tuple[Size, ...] = ("small", "medium", "large")
MODELS = ("m-1", "m-2-preview", "m-3")


def a_card(dice: random.Random) -> CardFacts:
    return CardFacts(
        usable=dice.random() < 0.8,
        turns_ok=dice.choice([None, True, False]),
        asks_permission=dice.choice([None, True, False]),
        models=dice.choice([None, (), tuple(dice.sample(MODELS, 2))]),
    )


def a_peer(name: str, dice: random.Random) -> PeerFacts:
    return PeerFacts(
        name=name,
        roles=tuple(dice.sample(ROLES, dice.randint(0, 3))),
        installed=dice.random() < 0.8,
        hint=dice.choice(["", "do this"]),
        enabled=dice.random() < 0.7,
        card=a_card(dice) if dice.random() < 0.6 else None,
        tiers={tier: dice.choice(MODELS) for tier in dice.sample(TIERS, dice.randint(0, 2))},
        parked_until=dice.choice([None, None, None, NOW - 1, NOW, NOW + 1]),
        parked_why=dice.choice([None, None, None, None, "quota", ""]),
        breaker=dice.choice(["closed", "closed", "half_open", "open"]),
        over_budget=dice.choice([None, None, None, None, "spent", ""]),
        always=name == "scout" and dice.random() < 0.5,
    )


def a_belief(dice: random.Random) -> Posterior:
    """Stored values may be damaged, so anything may be in their place."""
    odd = [0.0, -1.0, 1e300, math.inf, math.nan]
    return Posterior(
        alpha=dice.choice([1.0, 2.5, 40.0, *odd[: dice.choice([0, 0, 5])]]),
        beta=dice.choice([1.0, 2.5, 40.0, *odd[: dice.choice([0, 0, 5])]]),
        pulls=dice.choice([0, 3, 100]),
        updated_at=dice.choice([0.0, NOW, NOW + 10, -1e300, *odd[: dice.choice([0, 0, 5])]]),
    )


ARMS = [
    Arm(role=role, size=size, peer=name, tier=tier)
    for role in ROLES
    for size in SIZES
    for name in NAMES
    for tier in TIERS
]


def a_question(number: int) -> Inputs:
    dice = random.Random(number)
    names = dice.sample(NAMES, dice.randint(1, len(NAMES)))
    return Inputs(
        role=dice.choice(ROLES),
        tier=dice.choice([None, None, *TIERS, "odd"]),
        model=dice.choice([None, None, None, *MODELS, "odd"]),
        peer=dice.choice([None, None, None, dice.choice(NAMES)]),
        size=dice.choice(SIZES),
        peers=tuple(a_peer(name, dice) for name in names),
        depth=dice.choice([0, 0, 1, 2]),
        max_depth=dice.choice([1, 2, 3]),
        adaptive=dice.choice(["off", "shadow", "on"]),
        posteriors={arm: a_belief(dice) for arm in dice.sample(ARMS, dice.choice([0, 20]))},
        require_card=dice.random() < 0.3,
    )


# A number stands for a whole question: drawing every field of every peer takes longer than all the
# routing of a test. A failing question is printed completely.
questions = st.integers(0, 2**32).map(a_question)
seeds = st.integers(0, 1000)


def decided(question: Inputs, seed: int) -> Decision | None:
    """Return None if the question may be refused, and was."""
    try:
        return decide(question, random.Random(seed), NOW)
    except UnknownRole:
        assert all(question.role not in peer.roles for peer in question.peers)
    except UnknownPeer:
        assert question.peer not in [peer.name for peer in question.peers]
    return None


@SOME
@given(questions, seeds)
def test_every_peer_is_there_exactly_once_as_candidate_or_with_one_reason(
    question: Inputs, seed: int
) -> None:
    decision = decided(question, seed)
    if decision is not None:
        seen = Counter(item.peer for item in decision.candidates)
        seen.update(item.peer for item in decision.passed_over)
        assert seen == Counter(peer.name for peer in question.peers)
        assert all(item.detail for item in decision.passed_over)
        assert all(item.why for item in decision.candidates)
        assert decision.why


@SOME
@given(questions, seeds)
def test_no_peer_outside_the_allow_list_is_a_candidate_and_last_resorts_stand_last(
    question: Inputs, seed: int
) -> None:
    decision = decided(question, seed)
    if decision is None:
        return
    facts = {peer.name: peer for peer in question.peers}
    for item in decision.candidates:
        assert facts[item.peer].enabled or facts[item.peer].always
        assert not item.last_resort or facts[item.peer].always
    resorts = [item.last_resort for item in decision.candidates]
    assert resorts == sorted(resorts)


@SOME
@given(questions, seeds)
def test_no_candidate_is_missing_parked_broken_spent_unsuited_or_too_deep(
    question: Inputs, seed: int
) -> None:
    decision = decided(question, seed)
    if decision is None:
        return
    facts = {peer.name: peer for peer in question.peers}
    assert question.depth < question.max_depth or not decision.candidates
    for item in decision.candidates:
        peer = facts[item.peer]
        assert peer.installed and peer.breaker != "open" and peer.over_budget is None
        assert peer.parked_until is None or peer.parked_until <= NOW
        assert peer.parked_until is not None or peer.parked_why is None
        if not peer.always:
            # A peer that the user names does the work whatever it claims.
            assert question.role in peer.roles or question.peer == peer.name
            assert question.peer in (None, peer.name)
            assert peer.card is not None or not question.require_card
            assert peer.card is None or (peer.card.usable and peer.card.turns_ok is not False)


@SOME
@given(questions, seeds)
def test_the_same_question_and_dice_give_the_same_decision(question: Inputs, seed: int) -> None:
    assert decided(question, seed) == decided(question, seed)


@SOME
@given(questions, seeds, seeds)
def test_off_and_shadow_ask_the_same_peers_in_the_same_order_whatever_the_dice_show(
    question: Inputs, seed: int, other: int
) -> None:
    off = decided(replace(question, adaptive="off"), seed)
    shadow = decided(replace(question, adaptive="shadow"), other)
    if off is not None and shadow is not None:
        assert [item.score for item in off.candidates] == [None] * len(off.candidates)
        assert off.candidates == tuple(replace(item, score=None) for item in shadow.candidates)
        assert off.passed_over == shadow.passed_over


@SOME
@given(questions, seeds)
def test_the_shadow_is_what_would_have_been_done(question: Inputs, seed: int) -> None:
    shadow = decided(replace(question, adaptive="shadow"), seed)
    on = decided(replace(question, adaptive="on"), seed)
    if shadow is not None and on is not None:
        ordinary = tuple(item.peer for item in on.candidates if not item.last_resort)
        assert shadow.shadow == ordinary
        assert on.passed_over == shadow.passed_over
        assert {item.peer for item in on.candidates} == {item.peer for item in shadow.candidates}


@SOME
@given(questions, seeds)
def test_a_model_that_was_asked_for_is_the_model_of_every_candidate_but_last_resorts(
    question: Inputs, seed: int
) -> None:
    decision = decided(question, seed)
    if decision is not None and question.model is not None:
        ordinary = [item for item in decision.candidates if not item.last_resort]
        assert {item.model for item in ordinary} <= {question.model}


@SOME
@given(questions, seeds)
def test_facts_about_one_peer_change_nothing_for_the_others(question: Inputs, seed: int) -> None:
    decision = decided(question, seed)
    # Another peer that claims the role keeps the question answerable.
    if decision is None or sum(question.role in peer.roles for peer in question.peers) < 2:
        return
    for gone in question.peers:
        rest = tuple(peer for peer in question.peers if peer is not gone)
        if question.peer == gone.name:
            continue
        fewer = decided(replace(question, peers=rest), seed)
        assert fewer is not None
        before = {item.peer: item.reason for item in decision.passed_over}
        before.pop(gone.name, Reason.PARKED)
        assert {item.peer: item.reason for item in fewer.passed_over} == before


@SOME
@given(questions, seeds)
def test_an_explanation_names_every_peer(question: Inputs, seed: int) -> None:
    decision = decided(question, seed)
    if decision is not None:
        text = "\n".join(explain(decision))
        assert all(peer.name in text for peer in question.peers)
