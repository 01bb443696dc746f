"""Drawing from beliefs: likelier arms are chosen more often, and the dice are the caller's."""

from __future__ import annotations

import math
import random

import pytest

from dragoman.delegation.bandit import HALF_LIFE, believed, best_of, prior, sample
from dragoman.store.values import Arm, Posterior

GOOD = Posterior(alpha=18, beta=4, pulls=20)
BAD = Posterior(alpha=4, beta=18, pulls=20)
AMBER, BIRCH = (Arm(role="plan", size="small", peer=name) for name in ("amber", "birch"))


class Spread:
    """Dice that show what they were thrown with."""

    def __init__(self) -> None:
        self.thrown: list[tuple[float, float]] = []

    def betavariate(self, alpha: float, beta: float, /) -> float:
        self.thrown.append((alpha, beta))
        return alpha / (alpha + beta)


def test_the_same_dice_give_the_same_draw() -> None:
    assert sample(GOOD, random.Random(7), 0) == sample(GOOD, random.Random(7), 0)
    assert sample(GOOD, random.Random(7), 0) != sample(GOOD, random.Random(8), 0)


def test_a_draw_uses_the_belief_as_old_as_it_is() -> None:
    dice = Spread()
    sample(Posterior(alpha=9, beta=3, pulls=10), dice, HALF_LIFE)
    sample(Posterior(alpha=5, beta=2, pulls=10, updated_at=HALF_LIFE), dice, HALF_LIFE)
    assert dice.thrown[0] == dice.thrown[1]


def test_the_better_arm_is_chosen_almost_always_and_the_order_of_arms_does_not_matter() -> None:
    known = {AMBER: BAD, BIRCH: GOOD}
    dice = random.Random(1)
    picks = [
        best_of(arms, known, dice, 0, claims=True).arm
        for arms in ([AMBER, BIRCH], [BIRCH, AMBER])
        for _ in range(200)
    ]
    assert picks.count(BIRCH) > 380


def test_an_arm_that_was_never_tried_gets_its_turn_beside_a_mediocre_one() -> None:
    known = {AMBER: Posterior(alpha=6, beta=6, pulls=10)}
    dice = random.Random(1)
    picks = [best_of([AMBER, BIRCH], known, dice, 0, claims=True).arm for _ in range(200)]
    assert 40 < picks.count(BIRCH) < 190


def test_every_arm_is_drawn_once_and_the_first_of_equals_wins() -> None:
    dice = Spread()
    draw = best_of([AMBER, BIRCH], {}, dice, 0, claims=True)
    assert draw.arm == AMBER
    assert len(dice.thrown) == 2
    assert draw.belief == prior(AMBER, True)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0, 0.0, 1e300])
def test_a_damaged_record_counts_as_none(bad: float) -> None:
    assert believed({AMBER: Posterior(alpha=bad)}, AMBER, claims=True) == prior(AMBER, True)
    assert believed({AMBER: GOOD}, AMBER, claims=True) == GOOD
    best_of([AMBER], {AMBER: Posterior(alpha=bad)}, random.Random(0), 0, claims=False)


def test_choosing_from_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no arm"):
        best_of([], {}, random.Random(0), 0, claims=True)
