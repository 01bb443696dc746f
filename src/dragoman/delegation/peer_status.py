"""Status of each peer: installed, enabled, version, card, parked.

Reads files and starts no process. If the version can only be found by running the program, the one
on its card is used.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dragoman.catalogue import Descriptor
from dragoman.catalogue.card import Card, CardStore, to_know
from dragoman.catalogue.enforcement import NOT_ENFORCED, gap
from dragoman.catalogue.launch import LaunchSpec, current_platform, resolve, with_env
from dragoman.catalogue.roles import is_generalist
from dragoman.catalogue.versions import installed_version
from dragoman.delegation.parked import parked_peers
from dragoman.errors import NotInstalled
from dragoman.runs.context import RunContext
from dragoman.store.values import Park


@dataclass(frozen=True, slots=True)
class PeerStatus:
    """Status of one peer on this machine."""

    descriptor: Descriptor
    origin: str
    enabled: bool
    way: LaunchSpec | None
    """How it is started; None if it is not installed."""
    missing: str
    """Why it is not installed; empty if it is."""
    version: str | None
    card: Card | None
    notes: tuple[str, ...]
    parked: Park | None = None
    """Until when it is parked here, and why."""

    @property
    def installed(self) -> bool:
        return self.way is not None

    @property
    def card_state(self) -> str:
        """The state of the card as a short text."""
        if self.card is None:
            return "none"
        if not self.card.usable:
            return "failed"
        if self.version is not None and self.card.version != self.version:
            return f"of {self.card.version or 'another version'}"
        facts = self.card.facts
        proof = "a session opens" if facts.sessions else "it starts"
        if facts.echo is not None:
            proof = "a turn completes" if facts.echo else "a turn failed"
        count = len(to_know(self.card))
        problems = f"{count} problem{'' if count == 1 else 's'}"
        return f"{proof}, {problems}" if count else proof


def overview(place: RunContext) -> list[PeerStatus]:
    """Return the status of every peer on this machine, with its parked state."""
    return with_parking([row_of(name, place) for name in place.catalogue.names], place)


def with_parking(rows: Sequence[PeerStatus], place: RunContext) -> list[PeerStatus]:
    """Return the rows, with a parked or paused state from the ledger added to each that has one."""
    parked = parked_peers(place, now=time.time())
    found = ((row, parked.get(row.descriptor.name)) for row in rows)
    return [
        row
        if park is None
        else replace(row, parked=park, notes=(*row.notes, f"parked until {clock(park.until)}"))
        for row, park in found
    ]


def clock(at: float) -> str:
    """Format a timestamp as local time, with the date if it is not today."""
    then, today = time.localtime(at), time.localtime()
    same = then[:3] == today[:3]
    return time.strftime("%H:%M" if same else "%Y-%m-%d %H:%M", then)


def row_of(name: str, place: RunContext) -> PeerStatus:
    """Return the status of one peer, without its parked state. Raises `UnknownPeer`."""
    descriptor = place.role_catalogue().get(name)
    way, missing = _way(descriptor, place)
    store = place.cards()
    version = installed_version(way) if way is not None else None
    card = store.load(name, version, current_platform()) if version is not None else None
    card = card or store.latest(name)
    if version is None and way is not None and card is not None:
        version = card.version
    return PeerStatus(
        descriptor,
        place.catalogue.origin(name),
        place.is_enabled(name),
        way,
        missing,
        version,
        card,
        tuple(_notes(descriptor, way, card, store, place)),
    )


def _way(descriptor: Descriptor, place: RunContext) -> tuple[LaunchSpec | None, str]:
    try:
        way = resolve(descriptor, environ=place.environ)
    except NotInstalled as error:
        return None, str(error)
    return with_env(way, place.config.settings.for_peer(descriptor.name).env), ""


def _notes(
    descriptor: Descriptor,
    way: LaunchSpec | None,
    card: Card | None,
    store: CardStore,
    place: RunContext,
) -> list[str]:
    notes: list[str] = []
    if is_generalist(descriptor.roles):
        notes.append("generalist")
    if not descriptor.verified:
        notes.append("facts unverified")
    if way is not None and way.deprecated:
        notes.append("this way of starting it is deprecated")
    if gap(descriptor, card=card):
        notes.append(NOT_ENFORCED)
    if card is not None and card.facts.authenticated is False:
        notes.append("not logged in")
    if place.is_enabled(descriptor.name) and place.adapter_problem(descriptor.name):
        notes.append("its adapter cannot be used: `dragoman doctor` says why")
    if store.trouble:
        notes.append("its card cannot be used: verify it again")
    return notes


def credentials_set(descriptor: Descriptor, place: RunContext) -> tuple[str, ...]:
    """Return the names of the peer's credential variables that are set here; never values."""
    names = (*descriptor.credentials.env, *descriptor.credentials.endpoints)
    return tuple(name for name in names if place.environ.get(name))
