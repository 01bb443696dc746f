"""Register third-party dialects by name, for use with ``connect(..., dialect=name)``.

A registered dialect is used only if it is named: it is neither discovered by itself nor detected
by a handshake.
"""

from __future__ import annotations

from collections.abc import Callable

from dragoman.client.connect import OPENERS
from dragoman.client.legacy.client import DocumentOptions
from dragoman.client.legacy.open import DIALECTS
from dragoman.client.options import AUTO
from dragoman.dialects import discovery
from dragoman.dialects.legacy.base import ClientEnd
from dragoman.errors import UsageError


def register(name: str, make: Callable[[DocumentOptions], ClientEnd]) -> None:
    """Let ``connect(..., dialect=name)`` speak a dialect. `make` is called for each connection."""
    if name == AUTO or name in OPENERS:
        raise UsageError(f"there is a dialect {name!r} already")
    DIALECTS[name] = make
    # One opener serves every dialect that is described by a client's end.
    OPENERS[name] = OPENERS[discovery.ONESHOT]


def unregister(name: str) -> None:
    """Forget a dialect that was registered."""
    if name not in OPENERS or name in discovery.DIALECTS:
        raise UsageError(f"nobody registered a dialect {name!r}")
    del OPENERS[name], DIALECTS[name]
