"""Byte streams behind one interface: child processes, stdio, sockets, WebSockets, memory.

This package touches processes, sockets and the event loop, and imports nothing of dragoman but
`errors`. It does not know what a message is; `dragoman.rpc` does. The names below are imported on
first use, so that a program loads only the transport it uses.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dragoman.transports.base import Receiver, Stream
    from dragoman.transports.listener import Listener, listen_unix
    from dragoman.transports.memory import memory_pair
    from dragoman.transports.process.stream import spawn
    from dragoman.transports.sockets import connect_unix
    from dragoman.transports.stdio import open_stdio
    from dragoman.transports.websocket import connect_websocket, listen_websocket

__all__ = [
    "Listener",
    "Receiver",
    "Stream",
    "connect_unix",
    "connect_websocket",
    "listen_unix",
    "listen_websocket",
    "memory_pair",
    "open_stdio",
    "spawn",
]

_HOMES = {
    "Listener": "listener",
    "Receiver": "base",
    "Stream": "base",
    "connect_unix": "sockets",
    "connect_websocket": "websocket",
    "listen_unix": "listener",
    "listen_websocket": "websocket",
    "memory_pair": "memory",
    "open_stdio": "stdio",
    "spawn": "process.stream",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
