"""Multi-armed bandit (Thompson sampling): rank peers by how their earlier turns ended.

Pure: randomness, time and posteriors are arguments. `store.ledger` stores the posteriors and
`delegation.routing` uses the ranking. docs/explanation/routing-and-bandit.md gives the reasons.
"""

from dragoman.delegation.bandit.evidence import HALF_LIFE, SCALES, Scale, decayed, reward, updated
from dragoman.delegation.bandit.priors import prior, size_of
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
