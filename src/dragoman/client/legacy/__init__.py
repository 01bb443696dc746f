"""Clients for the legacy dialects: oneshot, threads, tagged, keyed, chained.

One client serves all of them, driven by the tables in `dialects.legacy`. For oneshot and threads
there are also small typed clients with the interface of their specifications.
"""

from dragoman.client.legacy.client import DocumentClient, DocumentOptions
from dragoman.client.legacy.oneshot import OneshotClient
from dragoman.client.legacy.open import DIALECTS, open_peer, use_peer
from dragoman.client.legacy.peer import DocumentPeer, KeyedPeer
from dragoman.client.legacy.registry import register, unregister
from dragoman.client.legacy.threads import ThreadsClient

__all__ = [
    "DIALECTS",
    "DocumentClient",
    "DocumentOptions",
    "DocumentPeer",
    "KeyedPeer",
    "OneshotClient",
    "ThreadsClient",
    "open_peer",
    "register",
    "unregister",
    "use_peer",
]
