"""Unpark a peer (let delegation use it again) after a successful turn, and reset its failure count
in the ledger.

It runs after every turn, so it checks with one plain query before it opens the ledger. The surfaces
call it for turns that they waited for, `broker` for turns without a caller. `store.values` defines
what recovery changes.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dragoman.catalogue.launch import surroundings_of
from dragoman.errors import FileFailed, StoreError
from dragoman.paths import Paths, find_paths
from dragoman.rpc.tasks import in_thread

if TYPE_CHECKING:
    from dragoman.catalogue import Descriptor
    from dragoman.store.values import Health

log: Final = logging.getLogger("dragoman.store")

LEDGER: Final = "ledger.db"
"""File name of the ledger, below the state directory."""

NO_TROUBLE: Final = ('"parked_until":null', '"logins":{}', '"failures":0')
"""JSON in the ledger for a peer that is neither parked nor failing."""


async def note_success(
    peer: str,
    descriptor: Descriptor | None,
    *,
    paths: Paths | None = None,
    env: Iterable[str] = (),
    environ: Mapping[str, str] | None = None,
) -> None:
    """Unpark a peer after a successful turn, and reset its failure count. If the ledger cannot be
    used, that is ignored, because the turn is done.

    Runs in a thread, because another process may hold the ledger.
    """
    state = (paths or find_paths()).state
    here = surroundings_of(descriptor, env=env, environ=environ)
    try:
        await in_thread(
            str(state), lambda _: unpark_after_success(peer, state, here), changes_disk=True
        )
    except FileFailed as error:
        log.debug("could not unpark %s: %s", peer, error)


def unpark_after_success(peer: str, state: Path, surroundings: str) -> None:
    """Unpark a peer, and reset its failure count, because it has worked with this set of
    credentials. Errors of the ledger are ignored, because the turn is already done."""
    path = state / LEDGER
    if not _may_be_parked(peer, path):
        return
    from dragoman.store.ledger.ledger import Ledger

    def recovered(health: Health) -> Health:
        return health.recovered(surroundings)

    try:
        with Ledger.open(path) as ledger:
            known = ledger.health(peer)
            if recovered(known) != known:
                ledger.change_health(peer, recovered)
    except StoreError as error:
        log.debug("could not unpark %s: %s", peer, error)


def _may_be_parked(peer: str, path: Path) -> bool:
    """Return whether the peer may be parked or failing. This is a raw query, because opening the
    ledger takes longer than everything else that a command does after its turn, and is almost never
    necessary."""
    if not os.path.exists(path):
        return False
    import sqlite3
    from contextlib import closing

    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
            row = connection.execute("SELECT data FROM health WHERE peer = ?", (peer,)).fetchone()
    except sqlite3.Error as error:
        log.debug("cannot read whether %s is parked: %s", peer, error)
        return False
    return row is not None and not all(words in row[0] for words in NO_TROUBLE)
