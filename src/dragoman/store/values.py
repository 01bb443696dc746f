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
    """The peer has told it."""
    DERIVED = "derived"
    """It follows from what the peer has told."""
    ESTIMATED = "estimated"
    """Something had to be assumed."""
    UNKNOWN = "unknown"


class Charge(Struct, frozen=True, kw_only=True):
    """What a turn has cost. Without an amount it is unknown, and not free."""

    amount: float | None = None
    currency: str | None = None
    """A currency, or another unit that the peer counts in."""
    provenance: Provenance = Provenance.UNKNOWN


UNKNOWN: Final = Charge()


DEFAULT_TIER: Final = "default"
"""The tier of an attempt that left the model to the peer."""

FLOOR: Final = 1.0
"""What alpha and beta are with no evidence at all: every mean is as likely as any other."""


MOST_EVIDENCE: Final = 1e6
"""More than any arm can remember. A draw from a belief without such a limit may never end."""


class Arm(Struct, frozen=True, kw_only=True):
    """One choice: this peer at this tier, for work of this role and size."""

    role: str
    size: Size
    peer: str
    tier: str = DEFAULT_TIER


class Posterior(Struct, frozen=True, kw_only=True):
    """What is believed of an arm: the Beta distribution of its mean reward, and what it costs."""

    alpha: float = FLOOR
    beta: float = FLOOR
    cost: float | None = None
    """The cost of a turn that was ok, a moving average; None if no turn has told it."""
    seconds: float | None = None
    """The time of a turn that was ok, a moving average; None if there was none."""
    pulls: int = 0
    """How often the arm was tried, ever. It does not fade; without any there is no evidence."""
    updated_at: float = 0.0
    """When it was last tried."""

    @property
    def mean(self) -> float:
        return self.alpha / (self.alpha + self.beta)

    @property
    def sound(self) -> bool:
        """Whether it is a distribution at all. What was stored may have been damaged."""
        return (
            FLOOR <= self.alpha <= MOST_EVIDENCE
            and FLOOR <= self.beta <= MOST_EVIDENCE
            and isfinite(self.updated_at)
        )


class Park(Struct, frozen=True):
    """Until when a peer is left alone, and why."""

    until: float
    why: str | None = None


class Health(Struct, frozen=True, kw_only=True):
    """What is remembered of a peer."""

    peer: str
    failures: int = 0
    """How many turns in a row have failed for reasons that the peer has to answer for."""
    opened_at: float | None = None
    """When it was last given up; None while it is not."""
    trial_at: float | None = None
    """When somebody last began to try it again."""
    last_ok_at: float | None = None
    last_failed_at: float | None = None
    last_error: str | None = None
    handshake_seconds: float | None = None
    """How long its greetings take, smoothed."""
    parked_until: float | None = None
    parked_why: str | None = None
    logins: dict[str, Park] = {}
    """Surroundings in which it wants a login. A key that one shell lacks may be set in another."""

    def parking(self, now: float, surroundings: str = "") -> Park | None:
        """Until when and why it is left alone in these surroundings; None if it is not."""
        if self.parked_until is not None and now < self.parked_until:
            return Park(self.parked_until, self.parked_why)
        login = self.logins.get(surroundings)
        return login if login is not None and now < login.until else None

    def unparked(self, surroundings: str) -> Health:
        """It has worked in these surroundings."""
        logins = {name: park for name, park in self.logins.items() if name != surroundings}
        return structs.replace(self, parked_until=None, parked_why=None, logins=logins)

    def recovered(self, surroundings: str) -> Health:
        """It has worked in these surroundings: neither what parked it nor its failures count any
        more."""
        freed = self.unparked(surroundings)
        return structs.replace(freed, failures=0, opened_at=None, trial_at=None)
