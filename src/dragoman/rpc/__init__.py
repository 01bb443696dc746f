"""A wire peer on a transport.

Owns everything that needs time: calls and their timeouts, handlers, queues and their limits, the
end of a connection. It knows no method's name; dialects, clients and agents do.
"""

from dragoman.rpc.calls import Call
from dragoman.rpc.connection import Connection
from dragoman.rpc.handlers import Handlers
from dragoman.rpc.lanes import HandlerLane, Lane, Limits
from dragoman.rpc.responder import LATER
from dragoman.rpc.router import Router
from dragoman.rpc.settings import ConnectionSettings
from dragoman.rpc.trace import Trace
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
    "Trace",
]
