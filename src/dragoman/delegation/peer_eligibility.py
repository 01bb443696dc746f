"""For every peer and role: whether the peer is a candidate for routing, and if not, why.

Has the facts of `dragoman explain`, for all roles and by peer. Starts and writes nothing.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from msgspec import Struct

from dragoman.delegation.candidates import decide_for
from dragoman.delegation.health import BREAKER, BreakerState
from dragoman.delegation.request import DelegationRequest
from dragoman.delegation.routing import Reason
from dragoman.store.ledger.ledger import Ledger, ledger_path

if TYPE_CHECKING:
    from dragoman.runs.context import RunContext
    from dragoman.store.values import Health


class RoleStanding(Struct, frozen=True, kw_only=True, rename="camel"):
    """The standing of a peer in a role that it claims, or in which it is the last resort."""

    role: str
    position: int | None
    """Its place in the order, from 1; None if it is not a candidate."""
    why: str
    """Why it is a candidate, or why not, with the remedy."""
    reason: str | None = None
    """The `Reason` value, if it is not a candidate."""
    until: float | None = None
    """When the reason ends by itself, if known."""
    measured: str = ""
    """The results of its delegations in this role, as text."""


class PeerHealth(Struct, frozen=True, kw_only=True, rename="camel"):
    """The recorded health of a peer."""

    breaker: BreakerState
    failures: int
    last_ok_at: float | None
    last_failed_at: float | None
    last_error: str | None
    handshake_seconds: float | None


class PeerStanding(Struct, frozen=True, kw_only=True):
    """What routing knows about a peer besides its status: its standing in each role, and its
    health."""

    roles: tuple[RoleStanding, ...] = ()
    health: PeerHealth | None = None
    """The health; None if the peer was never tried."""


def standings(place: RunContext, *, now: float | None = None) -> dict[str, PeerStanding]:
    """Return the standing of each peer, by name, as a delegation in the directory of `place` would
    find it. A peer without a role and without recorded health is missing. If the bandit decides,
    its order is drawn with a fixed seed, so that it does not change from call to call.

    Raises `StoreError` if limits are set and the ledger cannot be read.
    """
    now = time.time() if now is None else now
    found: dict[str, list[RoleStanding]] = {}
    # The bandit draws a new order each time; a fixed seed keeps the displayed order stable.
    rng = random.Random(0)
    with Ledger.open(ledger_path(place.paths.state), read_only=True) as ledger:
        healths = ledger.healths()
        for role in place.role_catalogue().roles:
            request = DelegationRequest(role=role, prompt=role, workspace=place.cwd)
            decision = decide_for(request, place, ledger=ledger, rng=rng, now=now)
            for position, one in enumerate(decision.candidates, 1):
                found.setdefault(one.peer, []).append(
                    RoleStanding(role=role, position=position, why=one.why, measured=one.measured)
                )
            for other in decision.passed_over:
                if other.reason is not Reason.ROLE_NOT_CLAIMED:
                    found.setdefault(other.peer, []).append(
                        RoleStanding(
                            role=role,
                            position=None,
                            why=other.detail,
                            reason=other.reason.value,
                            until=other.until,
                        )
                    )
    names = found.keys() | healths.keys()
    return {
        name: PeerStanding(
            roles=tuple(found.get(name, ())),
            health=health_of(healths[name], now) if name in healths else None,
        )
        for name in names
    }


def health_of(health: Health, now: float) -> PeerHealth:
    """Return the recorded health of a peer, with the state of its circuit breaker at `now`."""
    return PeerHealth(
        breaker=BREAKER.state(health, now),
        failures=health.failures,
        last_ok_at=health.last_ok_at,
        last_failed_at=health.last_failed_at,
        last_error=health.last_error,
        handshake_seconds=health.handshake_seconds,
    )
