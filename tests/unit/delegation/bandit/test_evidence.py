"""What a turn earns, and how evidence is added and fades."""

from __future__ import annotations

import math

import pytest

from dragoman.delegation.bandit import HALF_LIFE, SCALES, decayed, reward, updated
from dragoman.delegation.bandit.evidence import MEMORY, OK_FLOOR
from dragoman.store.values import Posterior


def ok(cost: float | None = 0.1, seconds: float = 120.0) -> float:
    return reward(ok=True, rejected=False, cost=cost, seconds=seconds)


def test_a_turn_that_was_not_ok_or_was_rejected_earns_nothing_however_cheap() -> None:
    assert reward(ok=False, rejected=False, cost=0.0, seconds=0.0) == 0
    assert reward(ok=True, rejected=True, cost=0.0, seconds=0.0) == 0
    assert reward(ok=False, rejected=True, cost=0.0, seconds=0.0) == 0


def test_a_free_and_instant_turn_earns_all_and_the_scale_earns_half_of_what_is_left() -> None:
    assert ok(0.0, 0.0) == 1
    scale = SCALES["medium"]
    assert ok(scale.cost, scale.seconds) == pytest.approx(0.75)


def test_less_cost_and_less_time_both_earn_more() -> None:
    assert ok(cost=0.05) > ok(cost=0.1) > ok(cost=5.0)
    assert ok(seconds=10) > ok(seconds=120) > ok(seconds=9000)


@pytest.mark.parametrize("cost", [0.0, 1e9, math.inf, math.nan, -1.0, None])
@pytest.mark.parametrize("seconds", [0.0, 1e9, math.inf, math.nan, -1.0])
def test_every_turn_that_was_ok_earns_more_than_half_and_never_more_than_one(
    cost: float | None, seconds: float
) -> None:
    assert OK_FLOOR < ok(cost, seconds) <= 1


def test_an_unknown_cost_is_neither_free_nor_dear() -> None:
    assert ok(cost=0.0) > ok(cost=None) == ok(cost=SCALES["medium"].cost) > ok(cost=1.0)


def test_a_time_that_is_not_a_number_is_not_evidence_of_speed() -> None:
    assert ok(seconds=math.nan) < ok(seconds=10_000)


def test_the_same_turn_earns_more_where_the_work_was_larger() -> None:
    small, large = (
        reward(ok=True, rejected=False, cost=0.1, seconds=100, scale=SCALES[size])
        for size in ("small", "large")
    )
    assert large > small


def test_evidence_loses_half_of_its_weight_in_a_half_life() -> None:
    belief = decayed(Posterior(alpha=9, beta=3, pulls=10, updated_at=100), 100 + HALF_LIFE)
    assert (belief.alpha, belief.beta) == (5, 2)
    assert (belief.pulls, belief.updated_at) == (10, 100 + HALF_LIFE)


def test_a_belief_that_is_very_old_is_not_a_belief_at_all() -> None:
    belief = decayed(Posterior(alpha=50, beta=3, pulls=60), 1000 * HALF_LIFE)
    assert (belief.alpha, belief.beta) == (1, 1)


def test_a_prior_does_not_fade() -> None:
    assert decayed(Posterior(alpha=3, beta=2), 1e12) == Posterior(alpha=3, beta=2)


def test_a_clock_that_was_set_back_changes_no_belief() -> None:
    belief = Posterior(alpha=9, beta=3, pulls=10, updated_at=100)
    assert decayed(belief, 50) == belief


def test_a_reward_moves_the_mean_towards_it() -> None:
    before = Posterior(alpha=2, beta=2, pulls=1)
    assert updated(before, 1.0, 0).mean > before.mean > updated(before, 0.0, 0).mean
    assert updated(before, 1.0, 7).pulls == 2
    assert updated(before, 1.0, 7).updated_at == 7


def test_an_arm_remembers_a_bounded_number_of_turns() -> None:
    belief = Posterior()
    for _ in range(2000):
        belief = updated(belief, 1.0, 0)
    assert belief.alpha + belief.beta <= 2 + MEMORY
    for _ in range(int(MEMORY)):
        belief = updated(belief, 0.0, 0)
    assert belief.mean < 0.5


def test_cost_and_time_are_averages_of_turns_that_earned_something() -> None:
    belief = updated(Posterior(), 0.8, 0, cost=1.0, seconds=10)
    assert (belief.cost, belief.seconds) == (1.0, 10)
    assert updated(belief, 0.0, 0, cost=99, seconds=99).cost == 1.0
    later = updated(belief, 0.8, 0, cost=2.0, seconds=20)
    assert later.cost == pytest.approx(1.2)
    assert later.seconds == pytest.approx(12)


def test_an_unknown_cost_stays_unknown_and_never_becomes_zero() -> None:
    assert updated(Posterior(), 0.8, 0, cost=None, seconds=10).cost is None
    assert updated(Posterior(cost=0.3), 0.8, 0, cost=None).cost == 0.3
    assert updated(Posterior(cost=0.3), 0.8, 0, cost=math.nan).cost == 0.3


@pytest.mark.parametrize("bad", [-0.1, 1.1, math.nan])
def test_a_reward_that_is_none_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        updated(Posterior(), bad, 0)
