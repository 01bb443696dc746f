"""Parked peers: list them, unpark them, and unpark a peer after a successful turn.

A missing login parks a peer only for the set of credential variables that were set at the time; a
hash of their names identifies it. `health` decides when to park, `store.ledger` stores it.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dragoman.errors import StoreError

if TYPE_CHECKING:
    from dragoman.catalogue import Descriptor
    from dragoman.paths import Paths
    from dragoman.runs.context import RunContext
    from dragoman.store.values import Health, Park

log: Final = logging.getLogger("dragoman.delegation")

LEDGER: Final = "ledger.db"
"""File name of the ledger, below the state directory."""

NO_TROUBLE: Final = ('"parked_until":null', '"logins":{}', '"failures":0')
"""JSON in the ledger for a peer that is neither parked nor failing."""

MARK_SIZE: Final = 16
"""Characters of the hash: it tells a handful of shells of one user apart."""


def surroundings_of(
    descriptor: Descriptor | None,
    *,
    env: Iterable[str] = (),
    environ: Mapping[str, str] | None = None,
) -> str:
    """Hash of the credential variables that are set for a peer: those that its descriptor names,
    and those that the user lets through (`env`). Only the names count, never a value."""
    environ = os.environ if environ is None else environ
    if descriptor is None:
        return ""
    named = {*descriptor.credentials.env, *descriptor.credentials.endpoints}
    for name in env:
        if name.endswith("*"):
            named.update(each for each in environ if each.startswith(name[:-1]))
        else:
            named.add(name)
    present = "\0".join(sorted(name for name in named if environ.get(name)))
    return hashlib.sha256(present.encode()).hexdigest()[:MARK_SIZE]


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


def note_success(
    peer: str,
    descriptor: Descriptor | None,
    *,
    paths: Paths | None = None,
    env: Iterable[str] = (),
    environ: Mapping[str, str] | None = None,
) -> None:
    """Unpark a peer after a successful turn, and reset its failure count. A ledger that cannot be
    used is ignored: the turn is done."""
    from dragoman.paths import find_paths

    path = (paths or find_paths()).state / LEDGER
    if not _may_be_left_alone(peer, path):
        return
    from dragoman.store.ledger.ledger import Ledger

    here = surroundings_of(descriptor, env=env, environ=environ)

    def recovered(health: Health) -> Health:
        return health.recovered(here)

    try:
        with Ledger.open(path) as ledger:
            known = ledger.health(peer)
            if recovered(known) != known:
                ledger.change_health(peer, recovered)
    except StoreError as error:
        log.debug("%s is not unparked: %s", peer, error)


def _may_be_left_alone(peer: str, path: Path) -> bool:
    """Whether the peer may be parked or failing. A raw query: opening the ledger takes longer than
    everything else that a command does after its turn, and is nearly always unnecessary."""
    if not os.path.exists(path):
        return False
    import sqlite3
    from contextlib import closing

    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
            row = connection.execute("SELECT data FROM health WHERE peer = ?", (peer,)).fetchone()
    except sqlite3.Error as error:
        log.debug("whether %s is parked is not known: %s", peer, error)
        return False
    return row is not None and not all(words in row[0] for words in NO_TROUBLE)


def unpark(peers: Iterable[str], paths: Paths) -> list[str]:
    """Use peers again, in all surroundings, and forget their failures. Returns those that were
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
    """Whether the ledger has a parking or failures of the peer, even if they have expired."""
    return health.parked_until is not None or bool(health.logins) or health.failures > 0
