"""The values that the ledger keeps."""

from __future__ import annotations

import math

import pytest

from dragoman.store.values import Arm, Posterior, Size


def arm(tier: str = "default", size: Size = "medium") -> Arm:
    return Arm(role="review", size=size, peer="amber", tier=tier)


def test_arms_of_equal_fields_are_one_key_and_the_role_size_peer_and_tier_all_count() -> None:
    keys = {
        arm(),
        arm("fast"),
        arm(size="large"),
        Arm(role="plan", size="medium", peer="amber"),
        Arm(role="review", size="medium", peer="birch"),
    }
    assert len(keys) == 5
    assert arm() in keys


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0, -3.0, 1e300])
def test_a_record_that_is_not_a_distribution_is_not_sound(bad: float) -> None:
    assert Posterior().sound
    assert not Posterior(alpha=bad).sound
    assert not Posterior(beta=bad).sound
    assert not Posterior(updated_at=math.nan).sound
