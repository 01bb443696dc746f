"""Clients for the dialects that exist in documents: oneshot, threads, tagged, keyed, chained.

Owns one client for all of them, driven by what `dragoman.dialects` says about each, and the small
typed clients that two of the documents describe. It does not know a method's name.
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
