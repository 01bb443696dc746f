"""Serve any connected agent as an official ACP v1 agent.

Owns the way from a `Peer` to an editor: `Bridge` serves one peer to any number of clients, `serve`
is the short way for one. ``python -m dragoman.bridge -- CMD`` is the same as a program. It decides
nothing: what the peer asks goes to the client, and what the client asks goes to the peer.
"""

from dragoman.bridge.bridge import RAW_KEY, Bridge, serve

__all__ = ["RAW_KEY", "Bridge", "serve"]
