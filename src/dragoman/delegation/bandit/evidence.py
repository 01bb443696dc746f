"""Compute the reward of a turn, and update and decay posteriors.

Pure: the time is an argument, in seconds of any one clock. Evidence decays in two ways: by age
(HALF_LIFE) and by the number of later turns (MEMORY). `sampling` draws from the posteriors.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Final

from msgspec import Struct

from dragoman.store.values import FLOOR, Posterior, Size

HALF_LIFE: Final = 30 * 24 * 3600.0
"""Seconds in which evidence loses half of its weight. Peers change with their releases, and a few
delegations a day must be enough to learn something between two releases."""

MEMORY: Final = 60.0
"""Maximum weight of an arm's evidence, in attempts: each attempt reduces the weight of the earlier
ones. Otherwise, a peer that was good for a thousand turns would need hundreds of failures to lose
its place, however fast they come."""

OK_FLOOR: Final = 0.5
"""A successful turn earns more than this, however expensive and slow it was. A failure earns 0, so
saved cost or time never makes up for one."""

_LEAST_EFFICIENCY: Final = 1e-6
"""Keeps a successful turn above the floor if its time or cost is extreme."""


class Scale(Struct, frozen=True, kw_only=True):
    """The neutral cost and duration of a turn. For exactly this cost, a successful turn earns half
    of what a free one earns for its low cost, and likewise for the duration."""

    cost: float
    seconds: float


SCALES: Final[Mapping[Size, Scale]] = {
    "small": Scale(cost=0.02, seconds=30.0),
    "medium": Scale(cost=0.10, seconds=120.0),
    "large": Scale(cost=0.50, seconds=600.0),
}
"""The scale for each size of work, in dollars and seconds. Arms are compared only within a size."""


def reward(
    *,
    ok: bool,
    rejected: bool,
    cost: float | None,
    seconds: float,
    scale: Scale = SCALES["medium"],
) -> float:
    """Return the reward of a turn: 0 if it was not ok or was rejected, else more than 0.5 and at
    most 1.

    An unknown cost counts as the neutral one: a peer that does not report its cost neither gains
    nor loses.
    """
    if not ok or rejected:
        return 0.0
    known = cost if cost is not None and isfinite(cost) and cost >= 0 else scale.cost
    cheap = scale.cost / (scale.cost + known)
    quick = scale.seconds / (scale.seconds + max(seconds, 0.0))
    # NaN seconds earn nothing for speed.
    efficiency = (cheap + quick) / 2 if quick == quick else cheap / 2
    return OK_FLOOR + (1 - OK_FLOOR) * max(efficiency, _LEAST_EFFICIENCY)


def weight_left(posterior: Posterior, now: float) -> float:
    """Return the share of its evidence that a posterior still has at `now`.

    A prior is not evidence and does not decay. If the clock was set back, nothing decays.
    """
    elapsed = now - posterior.updated_at
    if posterior.pulls == 0 or elapsed <= 0:
        return 1.0
    left: float = 0.5 ** (elapsed / HALF_LIFE)
    return left


def decayed(posterior: Posterior, now: float) -> Posterior:
    """Return the posterior with its evidence decayed to `now`."""
    left = weight_left(posterior, now)
    if left == 1:
        return posterior
    return Posterior(
        alpha=FLOOR + (posterior.alpha - FLOOR) * left,
        beta=FLOOR + (posterior.beta - FLOOR) * left,
        cost=posterior.cost,
        seconds=posterior.seconds,
        pulls=posterior.pulls,
        updated_at=now,
    )


def updated(
    posterior: Posterior,
    reward: float,
    now: float,
    *,
    cost: float | None = None,
    seconds: float | None = None,
) -> Posterior:
    """Return the posterior, decayed to `now` and updated for one more turn.

    `cost` and `seconds` are those of the turn, if known; a turn without reward does not change
    their averages. Raises `ValueError` unless `reward` is between 0 and 1.
    """
    if not 0.0 <= reward <= 1.0:
        raise ValueError(f"a reward must be between 0 and 1, not {reward}")
    before = decayed(posterior, now)
    kept = 1 - 1 / MEMORY
    return Posterior(
        alpha=FLOOR + (before.alpha - FLOOR) * kept + reward,
        beta=FLOOR + (before.beta - FLOOR) * kept + (1 - reward),
        # The cost of a failure says nothing about the cost of a success.
        cost=_averaged(before.cost, cost if reward > 0 else None),
        seconds=_averaged(before.seconds, seconds if reward > 0 else None),
        pulls=before.pulls + 1,
        updated_at=now,
    )


_NEWEST: Final = 0.2
"""The weight of the newest turn in a moving average: about the last five turns count."""


def _averaged(average: float | None, newest: float | None) -> float | None:
    if newest is None or not isfinite(newest):
        return average
    return newest if average is None else average + _NEWEST * (newest - average)
