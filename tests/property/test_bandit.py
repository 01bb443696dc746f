"""Properties of the bandit, and its benefit: simulated with peers that change.

The simulation is scripts/simulate_bandit.py, which also draws the picture in the documentation. It
uses the real bandit, and everything in it follows from the seeds.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from statistics import median

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.delegation.bandit import HALF_LIFE, SCALES, best_of, decayed, reward, sample, updated
from dragoman.delegation.bandit.evidence import MEMORY, OK_FLOOR
from dragoman.store.values import Arm, Posterior
from scripts.simulate_bandit import DRAWING, SEEDS, Summary, drifting, simulate, told
from tests.amounts import SOME

ROOT = Path(__file__).resolve().parents[2]
SIMULATION_TIMEOUT = 180.0
"""Seconds. It takes about ten on an idle core, but tests share their core with others."""
MOST_REGRET = 0.40
"""As a share of the fixed order's, over the last 5,000 of 10,000 delegations."""
LEAST_SHARE = 0.70
"""The share of the picks within 500 delegations of a swap that go to the new best peer."""

rewards = st.just(0.0) | st.floats(0.5, 1.0)


def a_history(number: int) -> list[tuple[float, float]]:
    """The rewards of turns, and the pauses before them."""
    dice = random.Random(number)
    longest = dice.choice([0.0, 3600.0, 2 * HALF_LIFE])
    likely = dice.random()
    return [
        (dice.uniform(0.5, 1.0) if dice.random() < likely else 0.0, dice.uniform(0, longest))
        for _ in range(dice.choice([0, 1, 5, 40]))
    ]


# A number stands for a whole history, which is faster than drawing every turn of it.
histories = st.integers(0, 2**32).map(a_history)
sizes = st.sampled_from(list(SCALES))
amounts = st.floats(0, 1e6)


def learned(history: list[tuple[float, float]]) -> tuple[Posterior, float]:
    belief, now = Posterior(), 0.0
    for earned, pause in history:
        now += pause
        belief = updated(belief, earned, now)
    return belief, now


@SOME
@given(histories)
def test_whatever_happens_a_belief_is_sound_and_its_memory_bounded(
    history: list[tuple[float, float]],
) -> None:
    belief, now = learned(history)
    assert belief.sound
    assert belief.alpha + belief.beta <= 2 + MEMORY + 1e-9
    assert belief.pulls == len(history)
    assert 0 <= sample(belief, random.Random(0), now) <= 1


@SOME
@given(histories, st.floats(0, 10 * HALF_LIFE), st.floats(0, 10 * HALF_LIFE))
def test_fading_in_two_steps_is_fading_in_one(
    history: list[tuple[float, float]], first: float, second: float
) -> None:
    belief, now = learned(history)
    once = decayed(belief, now + first + second)
    twice = decayed(decayed(belief, now + first), now + first + second)
    assert (once.alpha, once.beta) == pytest.approx((twice.alpha, twice.beta))


@SOME
@given(histories, rewards, rewards)
def test_a_better_turn_never_makes_a_belief_worse(
    history: list[tuple[float, float]], one: float, other: float
) -> None:
    belief, now = learned(history)
    worse, better = sorted((one, other))
    assert updated(belief, worse, now).mean <= updated(belief, better, now).mean


@SOME
@given(amounts, amounts, amounts, amounts, sizes)
def test_no_saving_makes_up_for_a_failure_and_less_is_never_worth_less(
    cost: float, seconds: float, more_cost: float, more_seconds: float, size: str
) -> None:
    scale = next(value for key, value in SCALES.items() if key == size)
    good = reward(ok=True, rejected=False, cost=cost, seconds=seconds, scale=scale)
    dear = reward(
        ok=True,
        rejected=False,
        cost=cost + more_cost,
        seconds=seconds + more_seconds,
        scale=scale,
    )
    assert OK_FLOOR < dear <= good <= 1
    assert reward(ok=False, rejected=False, cost=cost, seconds=seconds, scale=scale) == 0
    assert reward(ok=True, rejected=True, cost=cost, seconds=seconds, scale=scale) == 0


@SOME
@given(st.lists(histories, min_size=1, max_size=4), st.integers(0, 100))
def test_the_same_dice_choose_the_same_arm(
    stories: list[list[tuple[float, float]]], seed: int
) -> None:
    known = {
        Arm(role="plan", size="small", peer=f"p{place}"): learned(story)[0]
        for place, story in enumerate(stories)
    }
    draws = [best_of(known, known, random.Random(seed), 0, claims=True) for _ in range(2)]
    assert draws[0] == draws[1]
    assert draws[0].arm in known


@pytest.fixture(scope="module")
def simulation() -> Summary:
    # In a separate process, because measuring coverage would make it several times slower.
    done = subprocess.run(
        [sys.executable, "-m", "scripts.simulate_bandit", "--json"],
        cwd=ROOT,
        env={"PYTHONPATH": os.pathsep.join(["src", "."]), "PATH": os.environ.get("PATH", "")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=SIMULATION_TIMEOUT,
        check=True,
    )
    return msgspec.json.decode(done.stdout, type=Summary)


@pytest.mark.timeout(SIMULATION_TIMEOUT)
def test_regret_against_drifting_peers_is_a_fraction_of_the_fixed_orders(
    simulation: Summary,
) -> None:
    assert len(simulation.ratios) == len(SEEDS) == 20
    assert median(simulation.ratios) <= MOST_REGRET


@pytest.mark.timeout(SIMULATION_TIMEOUT)
def test_the_new_best_peer_gets_most_of_the_work_at_once_after_a_swap(simulation: Summary) -> None:
    assert len(simulation.after) == 20
    assert median(simulation.after) >= LEAST_SHARE
    # Before the swap the old best peer must have had the work, or there would be nothing to change.
    assert median(simulation.before) >= LEAST_SHARE


@pytest.mark.timeout(SIMULATION_TIMEOUT)
def test_the_documents_show_what_the_simulation_says(simulation: Summary) -> None:
    assert DRAWING.read_text(encoding="utf-8") == simulation.drawing
    page = ROOT / "docs" / "explanation" / "routing-and-bandit.md"
    text = page.read_text(encoding="utf-8")
    assert "\n".join(told(simulation)) in text


def test_a_simulation_follows_from_its_seed() -> None:
    one, same, other = (simulate(drifting, seed, length=300) for seed in (1, 1, 2))
    assert one == same
    assert one != other
