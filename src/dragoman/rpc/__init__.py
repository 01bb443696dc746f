"""A wire peer on a transport.

Owns everything that needs time: calls and their timeouts, handlers, queues and their limits, the
end of a connection. It knows no method's name; dialects, clients and agents do.
"""

from dragoman.rpc.calls import Call
from dragoman.rpc.connection import Connection, ConnectionSettings
from dragoman.rpc.lanes import HandlerLane, Lane, Limits
from dragoman.rpc.responder import LATER, Handlers
from dragoman.rpc.router import Router
from dragoman.wire.peer import End

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
