"""Thompson sampling: draw a score for each arm from its posterior and take the highest.

Pure: randomness and time are arguments. Each arm is drawn once, so the same random source gives
the same choice. `evidence` computes the posteriors; `delegation.routing` excludes peers beforehand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from msgspec import Struct

from dragoman.delegation.bandit.evidence import decayed, weight_left
from dragoman.delegation.bandit.priors import prior
from dragoman.store.values import FLOOR, Arm, Posterior

SHARPNESS: Final = 2.0
"""Weight of each piece of evidence in a draw. Decay keeps every posterior wide. Draws from the
unsharpened posterior would try poor arms about twice as often (measured in the simulation)."""


class Chance(Protocol):
    """The random source; `random.Random` satisfies it."""

    def betavariate(self, alpha: float, beta: float, /) -> float: ...


class Draw(Struct, frozen=True, kw_only=True):
    """The score drawn for one arm."""

    arm: Arm
    score: float
    belief: Posterior
    """The posterior it was drawn from, decayed."""


def sample(posterior: Posterior, rng: Chance, now: float) -> float:
    """Draw a score from a posterior: a plausible mean reward of its arm."""
    weight = SHARPNESS * weight_left(posterior, now)
    return rng.betavariate(
        FLOOR + weight * (posterior.alpha - FLOOR), FLOOR + weight * (posterior.beta - FLOOR)
    )


def believed(posteriors: Mapping[Arm, Posterior], arm: Arm, *, claims: bool) -> Posterior:
    """Return the stored posterior of an arm, or its prior if none is stored or the stored one is
    invalid. Neither is decayed. `claims`: whether the peer claims the role."""
    known = posteriors.get(arm)
    return known if known is not None and known.sound else prior(arm, claims)


def best_of(
    arms: Iterable[Arm],
    posteriors: Mapping[Arm, Posterior],
    rng: Chance,
    now: float,
    *,
    claims: bool,
) -> Draw:
    """Draw a score for each arm, and return the highest draw; the first one if several are equal.

    `claims`: whether the peer claims the role. Raises `ValueError` if `arms` is empty.
    """
    best: tuple[Arm, Posterior] | None = None
    highest = -1.0
    for arm in arms:
        belief = believed(posteriors, arm, claims=claims)
        score = sample(belief, rng, now)
        if score > highest:
            best, highest = (arm, belief), score
    if best is None:
        raise ValueError("there is no arm to choose")
    return Draw(arm=best[0], score=highest, belief=decayed(best[1], now))
