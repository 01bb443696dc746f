"""Delegation: a piece of work goes to the peer that has earned it, and the result hides nothing.

The parts in the order of their work: `wishes` (what is wanted), `gathering` and `deciding` (who may
be asked), `delegation` (the course), `attempting` and `trial` (one attempt), `lessons` and `books`
(what is learned and written down), `results` (what came of it). The decision itself is made in
`dragoman.hub.routing`. What a name needs is imported when it is asked for: who only wants to know
who would be asked loads nothing that talks with a peer.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from dragoman.hub.delegating.deciding import decide_for
    from dragoman.hub.delegating.delegation import Audience, delegate
    from dragoman.hub.delegating.results import Delegation
    from dragoman.hub.delegating.stopping import Reins
    from dragoman.hub.delegating.wishes import Assigned, Wish, read_agent

LATER: Final = {
    "Assigned": "wishes",
    "Audience": "delegation",
    "Delegation": "results",
    "Reins": "stopping",
    "Wish": "wishes",
    "decide_for": "deciding",
    "delegate": "delegation",
    "read_agent": "wishes",
}

__all__ = [
    "Assigned",
    "Audience",
    "Delegation",
    "Reins",
    "Wish",
    "decide_for",
    "delegate",
    "read_agent",
]


def __getattr__(name: str) -> Any:
    if name not in LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{LATER[name]}"), name)
