"""The requirements of ACP v1, and how dragoman proves that it keeps them.

It owns the type of an entry and the reading of ``requirements.toml``, where the entries are. The
checks that prove most of them name the requirements themselves (`checks.Check.ids`); an entry
lists only what is proved elsewhere, as ``tests/file.py::test_name``, and what is not claimed.
It does not run anything.
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
"""From strict to free. FACT is a shape that the schema fixes, and counts like a MUST; IMPL is not
in the protocol: what peers rely on, and what dragoman does where the protocol is silent."""

DEMANDED: Final = frozenset({"MUST", "MUST NOT", "FACT"})
"""Levels whose breach is a failure; every other breach is a warning."""

PROVED: Final = frozenset({"MUST", "MUST NOT", "SHOULD", "SHOULD NOT"})
"""Levels that need a proof for dragoman itself, or a reason why none is claimed."""


@dataclass(frozen=True, slots=True)
class Proof:
    """How one side of dragoman is shown to keep a requirement, besides the checks."""

    tests: tuple[str, ...] = ()
    not_claimed: str = ""
    """Why no proof is offered; empty if one is."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One thing that the protocol asks of a side."""

    id: str
    sides: tuple[Side, ...]
    level: str
    says: str
    proofs: Mapping[Side, Proof]

    @property
    def demanded(self) -> bool:
        """Whether a breach of it is a failure, and not only a warning."""
        return self.level in DEMANDED


@functools.cache
def requirements() -> Mapping[str, Requirement]:
    """Every requirement by its id, in the order of the protocol's chapters."""
    text = resources.files(__package__).joinpath("requirements.toml").read_text("utf-8")
    return parse(text)


def parse(text: str) -> dict[str, Requirement]:
    """The requirements of a manifest. Raises ValueError if it says something it cannot mean."""
    found: dict[str, Requirement] = {}
    for id, entry in tomllib.loads(text).items():
        unknown = entry.keys() - {"side", "level", "says", "agent", "client"}
        if unknown or entry.get("level") not in LEVELS or entry.get("side") not in SIDES:
            raise ValueError(f"{id}: {entry} is no entry of a manifest")
        sides = SIDES[entry["side"]]
        proofs = {side: _proof(entry.get(side, [])) for side in sides}
        if any(side in entry and side not in sides for side in SIDES["both"]):
            raise ValueError(f"{id}: a proof for a side that it does not concern")
        found[id] = Requirement(id, sides, entry["level"], entry["says"], proofs)
    return found


def strictest(ids: Iterable[str]) -> str:
    """The strictest level among some requirements."""
    known = requirements()
    return min((known[id].level for id in ids), key=LEVELS.index)


def _proof(entry: str | list[str]) -> Proof:
    if isinstance(entry, str):
        return Proof(not_claimed=entry)
    return Proof(tests=tuple(entry))
