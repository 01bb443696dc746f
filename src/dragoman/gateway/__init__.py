"""Serve any connected agent as an official ACP v1 agent.

Owns the way from a `Peer` to an editor: `Gateway` serves one peer to any number of clients, `serve`
is the short way for one. ``python -m dragoman.gateway -- CMD`` is the same as a program. It decides
nothing: what the peer asks goes to the client, and what the client asks goes to the peer.

The names are loaded when they are asked for: who only wants the words of `gateway.to_acp` or the routes
of `gateway.relay` needs no agent and no transport.
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
