"""Parked and paused peers: list them, and unpark them on request.

A missing login parks a peer only for the set of credential variables that were set at the time
(`catalogue.launch.surroundings_of`). `health` decides when to park, `store.ledger` stores it, and
`store.peer_recovery` unparks a peer after a successful turn. After several failures in a row a peer
is paused (`health.Breaker`), which is listed in the same way.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from dragoman.catalogue.launch import surroundings_of
from dragoman.delegation.health import BREAKER
from dragoman.errors import StoreError
from dragoman.store.values import Park

if TYPE_CHECKING:
    from dragoman.paths import Paths
    from dragoman.runs.context import RunContext
    from dragoman.store.values import Health

log: Final = logging.getLogger("dragoman.delegation")


def surroundings_here(name: str, place: RunContext) -> str:
    """Return a hash that identifies which credential variables are set for a peer here
    (`surroundings_of`)."""
    descriptor = place.catalogue.get(name) if name in place.catalogue else None
    own = place.config.settings.for_peer(name)
    return surroundings_of(descriptor, env=own.env, environ=place.environ)


def parked_peers(place: RunContext, *, now: float) -> dict[str, Park]:
    """Return the peers that are parked or paused here, by name, each with the reason and the end of
    this state. Empty, with a warning in the log, if the ledger cannot be read."""
    from dragoman.store.ledger.ledger import Ledger, ledger_path

    path = ledger_path(place.paths.state)
    if not os.path.exists(path):
        return {}
    try:
        with Ledger.open(path, read_only=True) as ledger:
            healths = ledger.healths()
    except StoreError as error:
        log.warning("cannot read which peers are parked: %s", error)
        return {}
    found = {
        name: health.parking(now, surroundings_here(name, place)) or _paused(health, now)
        for name, health in healths.items()
    }
    return {name: park for name, park in found.items() if park is not None}


def _paused(health: Health, now: float) -> Park | None:
    """Return until when and why a peer is not used after several failures in a row, or None if it
    may be used."""
    if BREAKER.state(health, now) != "open":
        return None
    until = BREAKER.opens_again_at(health)
    if until <= now:
        # One turn tries it now, and others wait for its result.
        until = (health.trial_at or now) + BREAKER.trial
    last = f": {' '.join(health.last_error.split())}" if health.last_error else ""
    return Park(until, f"it failed {health.failures} times in a row{last}")


def unpark(peers: Iterable[str], paths: Paths) -> list[str]:
    """Unpark peers for every set of credentials and reset their failures.

    Returns the names of those that were parked or had failures. Raises `StoreError` if the ledger
    cannot be written.
    """
    from dragoman.store.ledger.ledger import Ledger, ledger_path

    path = ledger_path(paths.state)
    if not os.path.exists(path):
        return []
    with Ledger.open(path) as ledger:
        ledger.check_kept()
        known = ledger.healths()
        held = [name for name in peers if name in known and _is_held(known[name])]
        for name in held:
            ledger.unpark(name)
    return held


def _is_held(health: Health) -> bool:
    """Return whether the ledger records the peer as parked or with failures, even if the parking
    has expired."""
    return health.parked_until is not None or bool(health.logins) or health.failures > 0
