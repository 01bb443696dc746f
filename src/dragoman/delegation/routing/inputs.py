"""Types of the facts that a routing decision is made from: CardFacts, PeerFacts, Inputs.

`delegation.collect_facts` fills them from disk, ledger and settings. Routing reads nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct, field

from dragoman.store.values import Arm, Posterior, Size

Adaptive: TypeAlias = Literal["off", "shadow", "on"]
Breaker: TypeAlias = Literal["closed", "open", "half_open"]


class CardFacts(Struct, frozen=True, kw_only=True):
    """The facts of a peer's card that routing needs. None means not measured, never no."""

    usable: bool = True
    """Whether nothing essential failed."""
    turns_ok: bool | None = None
    """Whether a turn returned text."""
    asks_permission: bool | None = None
    """Whether it asked before writing."""
    parallel: bool | None = None
    """Whether two sessions ran at once."""
    models: tuple[str, ...] | None = None
    """The models it offers, as it names them."""
    problem: str = ""
    """What failed, as text, with the remedy."""


class TrackRecord(Struct, frozen=True, kw_only=True):
    """How the delegations to a peer in one role ended."""

    finished: int = 0
    done: int = 0
    """Finished attempts that were ok and that neither a check nor a verdict rejected."""
    costs: dict[str, float] = field(default_factory=dict)
    """Known cost of all attempts, by currency."""
    priced: int = 0
    """Finished attempts whose cost is known."""
    seconds: float | None = None
    """Average duration of an attempt."""


class PeerFacts(Struct, frozen=True, kw_only=True):
    """The facts about one peer at this moment."""

    name: str
    host: str | None = None
    """The host that it is on, such as box for ``codex@box``; None is this machine."""
    host_problem: str = ""
    """Why its host cannot be used, with the remedy; empty if it can."""
    host_note: str = ""
    """What is known about it on its host, and since when."""
    roles: tuple[str, ...] = ()
    """The roles it claims."""
    installed: bool = True
    hint: str = ""
    """The command that removes the obstacle: install, enable or log in."""
    enabled: bool = False
    """Whether the settings enable it."""
    adapter_problem: str = ""
    """Why its Python adapter cannot be used; empty if it can or there is none."""
    card: CardFacts | None = None
    """Facts from its card; None if it was never verified."""
    tiers: dict[str, str] = field(default_factory=dict)
    """Its model for each tier."""
    unenforced: str = ""
    """Why the policy would not be enforced for it; empty if no reason is known, if the policy
    restricts nothing, or if that is allowed."""
    lacking: str = ""
    """The option of the request that it does not support; empty if it supports all of them."""
    parked_until: float | None = None
    parked_why: str | None = None
    """Why it is parked; None if it is not. Without `parked_until` it stays parked until the user
    unparks it."""
    breaker: Breaker = "closed"
    over_budget: str | None = None
    """The budget that is used up, as text."""
    record: TrackRecord | None = None
    """Its record in this role; None if it cannot be read."""
    always: bool = False
    """Whether it is a last resort (scout, or a local model that does not compete): allowed for
    every role without being enabled, after all others."""


class Inputs(Struct, frozen=True, kw_only=True):
    """Inputs of one routing decision."""

    role: str
    tier: str | None = None
    model: str | None = None
    """The requested model; it takes precedence over a tier."""
    peer: str | None = None
    """The peer that the user or an agent file names: only it is tried."""
    size: Size = "medium"
    peers: tuple[PeerFacts, ...]
    """Every known peer, in the fixed order."""
    depth: int = 0
    """Number of delegations above this one; 0 if a person delegates."""
    max_depth: int = 1
    """Maximum depth of nested delegations. At this depth no peer is a candidate."""
    adaptive: Adaptive = "shadow"
    posteriors: Mapping[Arm, Posterior] = field(default_factory=dict)
    require_card: bool = False
    """Whether a peer that was never verified is passed over."""
