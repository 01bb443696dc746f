"""The catalogue of peers: one descriptor per peer, as data.

A descriptor says how to start the peer, which roles it claims, what it needs, and its quirks.
Measured facts are on the peer's card (`catalogue.card`), which `verify` writes. The names of roles
are in `catalogue.roles`.
"""

from dragoman.catalogue.descriptor import (
    Credentials,
    Descriptor,
    Enforcement,
    Install,
    Launch,
    McpServers,
    Models,
    Quirks,
    VersionSource,
    WrongForm,
)
from dragoman.catalogue.load import Catalogue, KnownPeer, load_catalogue

__all__ = [
    "Catalogue",
    "Credentials",
    "Descriptor",
    "Enforcement",
    "Install",
    "KnownPeer",
    "Launch",
    "McpServers",
    "Models",
    "Quirks",
    "VersionSource",
    "WrongForm",
    "load_catalogue",
]
