"""Serve any connected peer as an ACP v1 agent.

`Gateway` serves one peer to any number of clients, `serve` to one client; `python -m
dragoman.gateway -- CMD` does the same from the command line. The peer's requests go to the client,
and the client's to the peer. Names load lazily, so that importing `gateway.events_to_acp` or
`gateway.relay` loads neither `agent` nor `transports`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dragoman.gateway.gateway import RAW_KEY, Gateway, serve

__all__ = ["RAW_KEY", "Gateway", "serve"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dragoman.gateway import gateway

    return getattr(gateway, name)
