"""Parked peers: list them, and unpark them on request.

A missing login parks a peer only for the set of credential variables that were set at the time
(`catalogue.launch.surroundings_of`). `health` decides when to park, `store.ledger` stores it, and
`store.peer_recovery` unparks a peer after a successful turn.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from dragoman.catalogue.launch import surroundings_of
from dragoman.errors import StoreError

if TYPE_CHECKING:
    from dragoman.paths import Paths
    from dragoman.runs.context import RunContext
    from dragoman.store.values import Health, Park

log: Final = logging.getLogger("dragoman.delegation")


def surroundings_here(name: str, place: RunContext) -> str:
    """`surroundings_of` a peer in a run context."""
    descriptor = place.catalogue.get(name) if name in place.catalogue else None
    own = place.config.settings.for_peer(name)
    return surroundings_of(descriptor, env=own.env, environ=place.environ)


def parked_peers(place: RunContext, *, now: float) -> dict[str, Park]:
    """The peers that are parked here, with reason and time."""
    from dragoman.store.ledger.ledger import Ledger, ledger_path

    path = ledger_path(place.paths.state)
    if not os.path.exists(path):
        return {}
    try:
        with Ledger.open(path, read_only=True) as ledger:
            healths = ledger.healths()
    except StoreError as error:
        log.debug("which peers are parked is not known: %s", error)
        return {}
    found = {
        name: health.parking(now, surroundings_here(name, place))
        for name, health in healths.items()
    }
    return {name: park for name, park in found.items() if park is not None}


def unpark(peers: Iterable[str], paths: Paths) -> list[str]:
    """Unpark peers in all surroundings and forget their failures. Returns those that were
    parked or had failures. Raises `StoreError`."""
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
    """Whether the ledger has a parked state or failures of the peer, even expired ones."""
    return health.parked_until is not None or bool(health.logins) or health.failures > 0
