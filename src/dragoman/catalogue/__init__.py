"""The catalogue of peers: one descriptor per peer, as data.

A descriptor says how to start the peer, which roles it claims, what it needs, and its quirks.
Measured facts are on the peer's card (`catalogue.card`), which `verify` writes.
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
from dragoman.catalogue.roles import ROLES, is_generalist

__all__ = [
    "ROLES",
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
    "is_generalist",
    "load_catalogue",
]
