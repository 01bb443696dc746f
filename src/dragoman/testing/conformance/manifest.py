"""The requirements of ACP v1, and how dragoman proves that it meets them.

Reads the entries of ``requirements.toml``. Most requirements are proven by checks, which name them
in `checks.Check.ids`. An entry lists only tests that prove it elsewhere, as
``tests/file.py::test_name``, or says why no proof is claimed. Nothing is run here.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Final, Literal

Side = Literal["agent", "client"]

SIDES: Final[dict[str, tuple[Side, ...]]] = {
    "agent": ("agent",),
    "client": ("client",),
    "both": ("agent", "client"),
}

LEVELS: Final = ("MUST", "MUST NOT", "FACT", "SHOULD", "SHOULD NOT", "IMPL", "MAY")
"""The levels, strictest first. FACT is defined by the schema and counts like a MUST. IMPL is not in
the protocol: it is what peers rely on, and what dragoman does where the protocol leaves it open."""

DEMANDED: Final = frozenset({"MUST", "MUST NOT", "FACT"})
"""Levels whose violation is a failure; any other violation is a warning."""

PROVED: Final = frozenset({"MUST", "MUST NOT", "SHOULD", "SHOULD NOT"})
"""Levels that need a proof for dragoman itself, or a reason why none is claimed."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What proves, in addition to the checks, that one side of dragoman meets a requirement."""

    tests: tuple[str, ...] = ()
    not_claimed: str = ""
    """Why no proof is claimed; empty if one is."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement of the protocol, for one side or both."""

    id: str
    sides: tuple[Side, ...]
    level: str
    says: str
    proofs: Mapping[Side, Proof]

    @property
    def demanded(self) -> bool:
        """Whether a violation is a failure, not only a warning."""
        return self.level in DEMANDED


@functools.cache
def requirements() -> Mapping[str, Requirement]:
    """Return every requirement by its id, in the order of the protocol's chapters."""
    text = resources.files(__package__).joinpath("requirements.toml").read_text("utf-8")
    return parse(text)


def parse(text: str) -> dict[str, Requirement]:
    """Return the requirements of a manifest. Raises ValueError for an invalid entry."""
    found: dict[str, Requirement] = {}
    for id, entry in tomllib.loads(text).items():
        unknown = entry.keys() - {"side", "level", "says", "agent", "client"}
        if unknown or entry.get("level") not in LEVELS or entry.get("side") not in SIDES:
            raise ValueError(f"{id}: {entry} is not a valid manifest entry")
        sides = SIDES[entry["side"]]
        proofs = {side: _proof(entry.get(side, [])) for side in sides}
        if any(side in entry and side not in sides for side in SIDES["both"]):
            raise ValueError(f"{id}: has a proof for a side that it does not apply to")
        found[id] = Requirement(id, sides, entry["level"], entry["says"], proofs)
    return found


def strictest(ids: Iterable[str]) -> str:
    """Return the strictest level among some requirements."""
    known = requirements()
    return min((known[id].level for id in ids), key=LEVELS.index)


def _proof(entry: str | list[str]) -> Proof:
    if isinstance(entry, str):
        return Proof(not_claimed=entry)
    return Proof(tests=tuple(entry))
