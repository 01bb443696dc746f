"""Delegation: a piece of work goes to the peer that has earned it, and the result hides nothing.

The parts in the order of their work: `delegation.request` (what is wanted), `delegation.facts` and `delegation.candidates` (who may
be asked), `delegation` (the course), `delegation.attempt` and `delegation.peer_run` (one attempt), `delegation.learning` and `delegation.journal`
(what is learned and written down), `results` (what came of it). The decision itself is made in
`dragoman.delegation.routing`. What a name needs is imported when it is asked for: who only wants to know
who would be asked loads nothing that talks with a peer.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from dragoman.delegation.cancel import CancelHandle
    from dragoman.delegation.candidates import decide_for
    from dragoman.delegation.execution import DelegationListener, delegate
    from dragoman.delegation.request import Assigned, DelegationRequest, read_agent
    from dragoman.delegation.results import Delegation

LATER: Final = {
    "Assigned": "request",
    "DelegationListener": "execution",
    "Delegation": "results",
    "CancelHandle": "cancel",
    "DelegationRequest": "request",
    "decide_for": "candidates",
    "delegate": "execution",
    "read_agent": "request",
}

__all__ = [
    "Assigned",
    "DelegationListener",
    "Delegation",
    "CancelHandle",
    "DelegationRequest",
    "decide_for",
    "delegate",
    "read_agent",
]


def __getattr__(name: str) -> Any:
    if name not in LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{LATER[name]}"), name)
