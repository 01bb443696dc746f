"""The peers that a worker announces: the state, card and health of each, without secrets.

`worker` sends the states with each heartbeat and the rest only after a change. Starts no program.
"""

from __future__ import annotations

import time
from typing import Final

from dragoman.delegation.peer_eligibility import health_of
from dragoman.delegation.peer_status import PeerStatus, row_of, with_parking
from dragoman.fleet.records import READY, PeerDetails
from dragoman.redaction.redactor import Redactor
from dragoman.runs.context import RunContext
from dragoman.store.ledger.ledger import Ledger, ledger_path
from dragoman.store.values import Health

SCOUT: Final = "scout"
MAX_STATE_SIZE: Final = 160
"""Maximum number of characters in a state, which may quote a provider's message."""


def announced_peers(place: RunContext, redact: Redactor) -> dict[str, PeerDetails]:
    """Return what to announce about each enabled peer and the scout, including peers that cannot be
    used now. Reads the disk. Raises `StoreError` if the ledger cannot be read."""
    names = dict.fromkeys((*place.config.settings.enabled_peers, SCOUT))
    rows = [row_of(name, place) for name in names if name in place.catalogue]
    with Ledger.open(ledger_path(place.paths.state), read_only=True) as ledger:
        healths = ledger.healths()
    now = time.time()
    return {
        row.descriptor.name: _details(row, healths.get(row.descriptor.name), redact, now)
        for row in with_parking(rows, place)
    }


def _details(row: PeerStatus, known: Health | None, redact: Redactor, now: float) -> PeerDetails:
    health = None if known is None else health_of(known, now)
    state = READY
    if not row.installed:
        state = "not installed"
    elif row.parked is not None:
        until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(row.parked.until))
        state = f"parked until {until}{f': {row.parked.why}' if row.parked.why else ''}"
    elif health is not None and health.breaker == "open":
        state = f"paused after {health.failures} failures"
    elif row.card is not None and not row.card.usable:
        state = "failed verification"
    return PeerDetails(
        state=redact.text(state)[:MAX_STATE_SIZE],
        version=row.version or "",
        roles=tuple(row.descriptor.roles),
        card=row.card_state,
        measured_at="" if row.card is None else row.card.measured_at,
        breaker="" if health is None else health.breaker,
        failures=0 if health is None else health.failures,
        last_ok_at=None if health is None else health.last_ok_at,
    )
