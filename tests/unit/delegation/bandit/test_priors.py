"""What is believed of an arm that was never tried, and how large work is taken to be."""

from __future__ import annotations

import pytest

from dragoman.delegation.bandit import prior, size_of
from dragoman.store.values import Arm, Size


def arm(tier: str = "default", size: Size = "medium") -> Arm:
    return Arm(role="review", size=size, peer="amber", tier=tier)


def test_a_claim_makes_success_likelier_than_not_and_no_claim_makes_it_less_likely() -> None:
    assert prior(arm(), True).mean > 0.5 > prior(arm(), False).mean


def test_a_prior_is_outweighed_by_a_handful_of_turns() -> None:
    for claims in (True, False):
        belief = prior(arm(), claims)
        assert belief.alpha + belief.beta <= 5
        assert belief.pulls == 0 and belief.sound


def test_a_strong_model_is_expected_to_do_better_at_large_work_and_a_fast_one_at_small() -> None:
    assert prior(arm("strong", "large"), True).mean > prior(arm("fast", "large"), True).mean
    assert prior(arm("fast", "small"), True).mean > prior(arm("strong", "small"), True).mean


@pytest.mark.parametrize(
    ("length", "files", "size"),
    [
        (0, 0, "small"),
        (400, 1, "small"),
        (401, 1, "medium"),
        (400, 2, "medium"),
        (3999, 9, "medium"),
        (4000, 0, "large"),
        (10, 10, "large"),
    ],
)
def test_work_is_as_large_as_its_prompt_or_its_files(length: int, files: int, size: Size) -> None:
    assert size_of("x" * length, files) == size
