"""The bandit: which peer has earned the work, learned from how turns ended.

It is pure: randomness, time and what was learned are arguments, and nothing is remembered here. The
ledger keeps the posteriors, and `dragoman.delegation.routing` asks for an order. The reasons are told in
docs/explanation/routing-and-bandit.md.
"""

from dragoman.delegation.bandit.arms import prior, size_of
from dragoman.delegation.bandit.evidence import HALF_LIFE, SCALES, Scale, decayed, reward, updated
from dragoman.delegation.bandit.sampling import Chance, Draw, believed, best_of, sample
from dragoman.store.values import DEFAULT_TIER, Arm, Posterior, Size

__all__ = [
    "DEFAULT_TIER",
    "HALF_LIFE",
    "SCALES",
    "Arm",
    "Chance",
    "Draw",
    "Posterior",
    "Scale",
    "Size",
    "believed",
    "best_of",
    "decayed",
    "prior",
    "reward",
    "sample",
    "size_of",
    "updated",
]
