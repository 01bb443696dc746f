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
    """Where a number comes from, which says how reliable it is."""

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

FREE: Final = Charge(amount=0.0, currency=DOLLARS, provenance=Provenance.DERIVED)
"""The cost of a turn of a peer that calls no model."""


DEFAULT_TIER: Final = "default"
"""The tier of an attempt in which the peer chose the model."""

FLOOR: Final = 1.0
"""Alpha and beta without any evidence: a uniform prior."""


MOST_EVIDENCE: Final = 1e6
"""Maximum evidence of an arm, more than any can reach. Without a limit, sampling may never end."""


class Arm(Struct, frozen=True, kw_only=True):
    """One arm of the bandit: a peer at a tier, for work of a role and size."""

    role: str
    size: Size
    peer: str
    tier: str = DEFAULT_TIER


class Posterior(Struct, frozen=True, kw_only=True):
    """The posterior of an arm: the Beta distribution of its mean reward, and its cost."""

    alpha: float = FLOOR
    beta: float = FLOOR
    cost: float | None = None
    """Moving average of the cost of an ok turn; None if no turn reported it."""
    seconds: float | None = None
    """Moving average of the duration of an ok turn; None if there was none."""
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
    """Until when a peer is parked (not used by delegation), and why."""

    until: float
    why: str | None = None


class Health(Struct, frozen=True, kw_only=True):
    """What is recorded about the failures of a peer, and until when it is parked."""

    peer: str
    failures: int = 0
    """Consecutive failed turns that are the peer's fault."""
    opened_at: float | None = None
    """When it was last parked because of failures. A success, or unparking it, resets this to
    None."""
    trial_at: float | None = None
    """When a trial turn last began."""
    last_ok_at: float | None = None
    last_failed_at: float | None = None
    last_error: str | None = None
    handshake_seconds: float | None = None
    """How long its handshake takes, smoothed."""
    parked_until: float | None = None
    parked_why: str | None = None
    logins: dict[str, Park] = {}
    """Parking by the set of credential variables (`catalogue.launch.surroundings_of`) with which it
    requires a login. A key that one shell lacks may be set in another."""

    def parking(self, now: float, surroundings: str = "") -> Park | None:
        """Return until when and why the peer is parked with this set of credentials, or None if it
        is not parked."""
        if self.parked_until is not None and now < self.parked_until:
            return Park(self.parked_until, self.parked_why)
        login = self.logins.get(surroundings)
        return login if login is not None and now < login.until else None

    def unparked(self, surroundings: str) -> Health:
        """Return the health after the peer has worked with this set of credentials: not parked,
        except for logins with other sets."""
        logins = {name: park for name, park in self.logins.items() if name != surroundings}
        return structs.replace(self, parked_until=None, parked_why=None, logins=logins)

    def recovered(self, surroundings: str) -> Health:
        """Return the health after the peer has worked with this set of credentials: without
        failures, and not parked, except for logins with other sets."""
        freed = self.unparked(surroundings)
        return structs.replace(freed, failures=0, opened_at=None, trial_at=None)
