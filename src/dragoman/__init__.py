"""The interpreter between coding agents: drive any of them, or be one.

The public names, each loaded from its package when it is first used, so that `import dragoman`
costs next to nothing and loads no event loop. The packages and the rules between them are in
ARCHITECTURE.md.
"""

from dragoman.version import __version__ as __version__

TYPE_CHECKING = False  # The same name in `typing` would be the dearest import of this module.
if TYPE_CHECKING:
    from dragoman.agent import Agent
    from dragoman.client.acp import ClientOptions, open_agent
    from dragoman.errors import (
        CallError,
        CallTimeout,
        ConnectionLost,
        DragomanError,
        ProcessExited,
        RemoteError,
        UsageError,
    )
    from dragoman.rpc import Connection, End, Router
    from dragoman.runs.connect import connect, connect_sync
    from dragoman.transports import (
        Stream,
        connect_unix,
        connect_websocket,
        listen_unix,
        listen_websocket,
        memory_pair,
        open_stdio,
        spawn,
    )

__all__ = [
    "Agent",
    "CallError",
    "CallTimeout",
    "ClientOptions",
    "Connection",
    "ConnectionLost",
    "DragomanError",
    "End",
    "ProcessExited",
    "RemoteError",
    "Router",
    "Stream",
    "UsageError",
    "connect",
    "connect_sync",
    "connect_unix",
    "connect_websocket",
    "listen_unix",
    "listen_websocket",
    "memory_pair",
    "open_agent",
    "open_stdio",
    "spawn",
]

_HOMES = {
    "dragoman.agent": ("Agent",),
    "dragoman.client.acp": ("ClientOptions", "open_agent"),
    "dragoman.errors": (
        "CallError",
        "CallTimeout",
        "ConnectionLost",
        "DragomanError",
        "ProcessExited",
        "RemoteError",
        "UsageError",
    ),
    "dragoman.runs.connect": ("connect", "connect_sync"),
    "dragoman.rpc": ("Connection", "End", "Router"),
    "dragoman.transports": (
        "Stream",
        "connect_unix",
        "connect_websocket",
        "listen_unix",
        "listen_websocket",
        "memory_pair",
        "open_stdio",
        "spawn",
    ),
}


def __getattr__(name: str) -> object:
    for home, names in _HOMES.items():
        if name in names:
            from importlib import import_module

            value: object = getattr(import_module(home), name)
            # Found once, it is an ordinary attribute: the next use does not come here.
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
