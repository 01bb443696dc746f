"""Types of a routing decision: `Decision`, `Candidate`, and `PassedOver` with its `Reason`.

They are stored, and written as JSON output, with exactly these fields. `decide` makes a decision,
`explain` formats it as text.
"""

from __future__ import annotations

import enum
from typing import Literal

from msgspec import Struct

from dragoman.delegation.routing.inputs import Adaptive
from dragoman.store.values import Arm, Size


class Reason(enum.StrEnum):
    """Why a peer is not a candidate. `filters` gives the first reason that applies."""

    TOO_DEEP = "too_deep"
    """The maximum depth of nested delegations is reached."""
    NOT_WISHED = "not_wished"
    """Another peer was requested, or a model or an option that this one does not have."""
    ROLE_NOT_CLAIMED = "role_not_claimed"
    NOT_INSTALLED = "not_installed"
    NOT_ENABLED = "not_enabled"
    """The settings do not enable it."""
    HOST_UNUSABLE = "host_unusable"
    """Its host was never checked, or the work cannot be sent there."""
    ADAPTER_INVALID = "adapter_invalid"
    """Its Python adapter is missing, not trusted or does not load."""
    NO_CARD = "no_card"
    """It was never verified, and the settings require that."""
    CARD_SAYS_NO = "card_says_no"
    NOT_ENFORCED = "not_enforced"
    """The policy restricts the peer but would not be enforced, usually because the peer does not
    ask for permission."""
    PARKED = "parked"
    """Its quota is used up, or it needs a login."""
    BROKEN = "broken"
    """It failed too often recently: the circuit breaker is open."""
    OVER_BUDGET = "over_budget"


class Candidate(Struct, frozen=True, kw_only=True):
    """A peer that may be tried."""

    peer: str
    host: str | None = None
    """The host that the peer is on; None is this machine."""
    tier: str
    """The tier, ``default`` if the peer chooses the model, or ``model:ID``."""
    model: str | None
    """The model to request; None lets the peer choose."""
    why: str
    measured: str = ""
    """How many of its delegations in this role were done, with their cost and duration, as text."""
    score: float | None = None
    """The best random draw for the peer from its posteriors; each decision draws again. None if
    none was drawn: for a last resort, or with `adaptive` off."""
    last_resort: bool = False
    """Whether it is only a last resort, which does not have to claim the role."""


class PassedOver(Struct, frozen=True, kw_only=True):
    """A peer that is excluded, and why."""

    peer: str
    host: str | None = None
    """The host that the peer is on; None is this machine."""
    reason: Reason
    detail: str
    """The reason as text, with the remedy."""
    until: float | None = None
    """When the reason ends by itself, if known."""


class Decision(Struct, frozen=True, kw_only=True):
    """A routing decision. It has every peer exactly once: as a candidate, or passed over with one
    reason."""

    role: str
    tier: str | None
    """The requested tier."""
    size: Size
    candidates: tuple[Candidate, ...]
    passed_over: tuple[PassedOver, ...]
    order: Literal["fixed", "bandit"]
    adaptive: Adaptive | None = None
    """The setting `adaptive`; None in decisions made by an older version."""
    shadow: tuple[str, ...] = ()
    """The order that the bandit drew in shadow mode, where it is not used; empty in other modes."""
    why: str

    def arm_of(self, candidate: Candidate) -> Arm:
        """Return the bandit arm of an attempt with this candidate."""
        return Arm(role=self.role, size=self.size, peer=candidate.peer, tier=candidate.tier)
