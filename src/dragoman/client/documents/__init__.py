"""Clients for the dialects that exist in documents: oneshot, threads, tagged, keyed, chained.

Owns one client for all of them, driven by what `dragoman.dialects` says about each, and the small
typed clients that two of the documents describe. It does not know a method's name.
"""

from dragoman.client.documents.client import DocumentClient, DocumentOptions
from dragoman.client.documents.oneshot import OneshotClient
from dragoman.client.documents.opening import DIALECTS, open_peer, use_peer
from dragoman.client.documents.peer import DocumentPeer, KeyedPeer
from dragoman.client.documents.registry import register, unregister
from dragoman.client.documents.threads import ThreadsClient

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
