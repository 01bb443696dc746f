"""Delegate a prompt to the best available peer, with retry, fallback and a full report.

`request` says what is wanted, `collect_facts` and `candidates` which peers can do it, `routing`
decides the order, `execution` runs the attempts, `executor_run` has another machine run them,
`journal` records them, `result` holds the outcome. Public names are imported on first use, so that
a decision alone loads no code that connects to a peer.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from dragoman.delegation.candidates import decide_for
    from dragoman.delegation.execution import delegate, delegate_request
    from dragoman.delegation.executor import Executor
    from dragoman.delegation.listener import DelegationListener
    from dragoman.delegation.request import Assigned, DelegationRequest, read_agent
    from dragoman.delegation.result import Delegation
    from dragoman.runs.run_values import CancelHandle

LATER: Final = {
    "Assigned": f"{__name__}.request",
    "DelegationListener": f"{__name__}.listener",
    "Executor": f"{__name__}.executor",
    "Delegation": f"{__name__}.result",
    "CancelHandle": "dragoman.runs.run_values",
    "DelegationRequest": f"{__name__}.request",
    "decide_for": f"{__name__}.candidates",
    "delegate": f"{__name__}.execution",
    "delegate_request": f"{__name__}.execution",
    "read_agent": f"{__name__}.request",
}

__all__ = [
    "Assigned",
    "DelegationListener",
    "Delegation",
    "CancelHandle",
    "DelegationRequest",
    "Executor",
    "decide_for",
    "delegate",
    "delegate_request",
    "read_agent",
]


def __getattr__(name: str) -> Any:
    if name not in LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(LATER[name]), name)
