"""Value types of the ledger: charges, posteriors of the bandit, and the health of peers.

Pure: no I/O, clock or randomness. `delegation.prices` computes charges, `delegation.bandit` updates
posteriors, and `delegation.health` derives health from failures.
"""

from __future__ import annotations

import enum
from math import isfinite
from typing import Final, Literal, TypeAlias

from msgspec import Struct, structs

DOLLARS: Final = "USD"

Size: TypeAlias = Literal["small", "medium", "large"]


class Provenance(enum.StrEnum):
    """How well a number is known."""

    REPORTED = "reported"
    """Reported by the peer."""
    DERIVED = "derived"
    """Computed from what the peer reported."""
    ESTIMATED = "estimated"
    """Based on an assumption."""
    UNKNOWN = "unknown"


class Charge(Struct, frozen=True, kw_only=True):
    """The cost of a turn. Without an amount it is unknown, not free."""

    amount: float | None = None
    currency: str | None = None
    """A currency, or another unit that the peer uses."""
    provenance: Provenance = Provenance.UNKNOWN


UNKNOWN: Final = Charge()


DEFAULT_TIER: Final = "default"
"""The tier of an attempt that left the model to the peer."""

FLOOR: Final = 1.0
"""Alpha and beta without any evidence: a uniform prior."""


MOST_EVIDENCE: Final = 1e6
"""More than any arm can reach. Sampling without such a limit may never end."""


class Arm(Struct, frozen=True, kw_only=True):
    """One choice: this peer at this tier, for work of this role and size."""

    role: str
    size: Size
    peer: str
    tier: str = DEFAULT_TIER


class Posterior(Struct, frozen=True, kw_only=True):
    """The posterior of an arm: the Beta distribution of its mean reward, and its cost."""

    alpha: float = FLOOR
    beta: float = FLOOR
    cost: float | None = None
    """The cost of an ok turn, a moving average; None if no turn reported it."""
    seconds: float | None = None
    """The duration of an ok turn, a moving average; None if there was none."""
    pulls: int = 0
    """How often the arm was ever tried. Does not decay; zero means no evidence."""
    updated_at: float = 0.0
    """When it was last tried."""

    @property
    def mean(self) -> float:
        return self.alpha / (self.alpha + self.beta)

    @property
    def sound(self) -> bool:
        """Whether this is a valid distribution. Stored values may be damaged."""
        return (
            FLOOR <= self.alpha <= MOST_EVIDENCE
            and FLOOR <= self.beta <= MOST_EVIDENCE
            and isfinite(self.updated_at)
        )


class Park(Struct, frozen=True):
    """Until when a peer is parked, and why."""

    until: float
    why: str | None = None


class Health(Struct, frozen=True, kw_only=True):
    """The recorded health of a peer."""

    peer: str
    failures: int = 0
    """Consecutive failed turns that are the peer's fault."""
    opened_at: float | None = None
    """When it was last parked for failures; None while it is not."""
    trial_at: float | None = None
    """When a retry of it last began."""
    last_ok_at: float | None = None
    last_failed_at: float | None = None
    last_error: str | None = None
    handshake_seconds: float | None = None
    """How long its handshake takes, smoothed."""
    parked_until: float | None = None
    parked_why: str | None = None
    logins: dict[str, Park] = {}
    """Surroundings in which it requires a login. A key that one shell lacks may be set in
    another."""

    def parking(self, now: float, surroundings: str = "") -> Park | None:
        """Until when and why it is parked in these surroundings; None if it is not."""
        if self.parked_until is not None and now < self.parked_until:
            return Park(self.parked_until, self.parked_why)
        login = self.logins.get(surroundings)
        return login if login is not None and now < login.until else None

    def unparked(self, surroundings: str) -> Health:
        """Whether it has worked in these surroundings."""
        logins = {name: park for name, park in self.logins.items() if name != surroundings}
        return structs.replace(self, parked_until=None, parked_why=None, logins=logins)

    def recovered(self, surroundings: str) -> Health:
        """Record that it has worked in these surroundings: clears its parking and its failures."""
        freed = self.unparked(surroundings)
        return structs.replace(freed, failures=0, opened_at=None, trial_at=None)
