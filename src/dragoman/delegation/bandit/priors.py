"""Priors for the bandit, and the size of a task (small, medium, large) from its prompt and files.

Pure. `store.values` defines Arm and Posterior, `evidence` updates a posterior, `sampling` draws
from it.
"""

from __future__ import annotations

from typing import Final

from dragoman.store.values import FLOOR, Arm, Posterior, Size

SMALL_PROMPT_SIZE: Final = 400
"""Maximum length of a prompt that counts as a question or a single request: about five lines."""
LARGE_PROMPT_SIZE: Final = 4000
"""Minimum length of a prompt that counts as a specification: more than a page."""
SMALL_FILES: Final = 1
LARGE_FILES: Final = 10
"""Work on at most `SMALL_FILES` files can be small; work on `LARGE_FILES` or more is large, because
it spans a whole package."""

# Share of the prior's weight that counts as success. A claimed role is worth something until it is
# measured. A strong model is expensive for small work, a fast one often too weak for large work.
_FITS: Final[dict[tuple[str, Size], float]] = {
    ("fast", "small"): 0.8,
    ("fast", "medium"): 0.6,
    ("fast", "large"): 0.35,
    ("strong", "small"): 0.5,
    ("strong", "medium"): 0.65,
    ("strong", "large"): 0.8,
}
_FITS_ELSE: Final = 0.7
_NOT_CLAIMED: Final = 0.25
PRIOR_WEIGHT: Final = 2.0
"""Weight of a prior, in attempts. It is small, so that a handful of real turns outweigh it."""


def prior(arm: Arm, claims: bool) -> Posterior:
    """Return the prior of an arm that was never tried. `claims`: whether the peer claims the
    role."""
    good = _FITS.get((arm.tier, arm.size), _FITS_ELSE) if claims else _NOT_CLAIMED
    return Posterior(alpha=FLOOR + PRIOR_WEIGHT * good, beta=FLOOR + PRIOR_WEIGHT * (1 - good))


def size_of(prompt: str, files: int) -> Size:
    """Return the size of the work, estimated from the prompt and the number of files it names.

    Deliberately rough: with finer sizes each arm would be tried too rarely to learn from.
    """
    if len(prompt) >= LARGE_PROMPT_SIZE or files >= LARGE_FILES:
        return "large"
    if len(prompt) <= SMALL_PROMPT_SIZE and files <= SMALL_FILES:
        return "small"
    return "medium"
