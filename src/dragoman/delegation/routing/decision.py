"""Types of a routing decision: Candidate, PassedOver with its Reason, Decision.

They are stored and printed as they are. `decide` makes a decision, `explain` formats it.
"""

from __future__ import annotations

import enum
from typing import Literal

from msgspec import Struct

from dragoman.store.values import Arm, Size


class Reason(enum.StrEnum):
    """Why a peer is no candidate. A peer has the first of these that applies, in this order."""

    TOO_DEEP = "too_deep"
    """The delegation is itself delegated, as often as is allowed."""
    NOT_WISHED = "not_wished"
    """Another peer, or a model that this one does not have, was asked for."""
    ROLE_NOT_CLAIMED = "role_not_claimed"
    NOT_INSTALLED = "not_installed"
    NOT_ENABLED = "not_enabled"
    """It is not on the allow-list."""
    NO_CARD = "no_card"
    """It was never verified, and that is asked for."""
    CARD_SAYS_NO = "card_says_no"
    NOT_ENFORCED = "not_enforced"
    """The policy restricts it, and it does not ask for permission."""
    PARKED = "parked"
    """Its quota is used up, or it wants a login."""
    BROKEN = "broken"
    """It failed too often of late: the circuit is open."""
    OVER_BUDGET = "over_budget"


class Candidate(Struct, frozen=True, kw_only=True):
    """A peer that may be asked."""

    peer: str
    tier: str
    """The tier, ``default`` where the model is left to the peer, or ``model:ID``."""
    model: str | None
    """The model to ask for; None leaves it to the peer."""
    why: str
    score: float | None = None
    """The best that the bandit drew for the peer; None if the bandit was not asked."""
    last_resort: bool = False
    """It is here because somebody has to answer, and does not have to claim the role."""


class PassedOver(Struct, frozen=True, kw_only=True):
    """A peer that may not be asked, and why."""

    peer: str
    reason: Reason
    detail: str
    """In words, with what to do about it."""
    until: float | None = None
    """When the reason ends by itself, where that is known."""


class Decision(Struct, frozen=True, kw_only=True):
    """Every peer exactly once: a candidate, or passed over with one reason."""

    role: str
    tier: str | None
    """The tier that was wished for."""
    size: Size
    candidates: tuple[Candidate, ...]
    passed_over: tuple[PassedOver, ...]
    order: Literal["fixed", "bandit"]
    shadow: tuple[str, ...] = ()
    """The order the bandit would have chosen, where it was asked and not followed."""
    why: str

    def arm_of(self, candidate: Candidate) -> Arm:
        """What the bandit learns about from an attempt with this candidate."""
        return Arm(role=self.role, size=self.size, peer=candidate.peer, tier=candidate.tier)
