"""JSON-RPC connections over a transport.

Everything that involves time: calls and their timeouts, handlers, queues and their limits, the end
of a connection. Only dialects, clients and agents know method names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dragoman.rpc.calls import Call
from dragoman.rpc.connection import Connection, ConnectionSettings
from dragoman.rpc.lanes import HandlerLane, Lane, Limits
from dragoman.rpc.responder import LATER, Handlers
from dragoman.wire.peer import End

if TYPE_CHECKING:
    from dragoman.rpc.router import Router

__all__ = [
    "LATER",
    "Call",
    "Connection",
    "End",
    "HandlerLane",
    "Handlers",
    "Lane",
    "Limits",
    "Router",
    "ConnectionSettings",
]


def __getattr__(name: str) -> Any:
    if name != "Router":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Not at the top: dragoman's clients and agents have their own handlers.
    from dragoman.rpc.router import Router

    return Router
