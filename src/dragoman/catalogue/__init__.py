"""The catalogue: which peers there are, as data.

One descriptor per peer says how it is started, what it claims, what it needs and what it does
differently. What was measured of a peer is on its card (`dragoman.verify`).
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
