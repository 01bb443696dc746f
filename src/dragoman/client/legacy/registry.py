"""Register third-party dialects by name, for use with ``connect(..., dialect=name)``.

A dialect is registered in this process by `register`, or by an installed package as an entry point
of the group ``dragoman.dialects``. It is used only if an option or a descriptor names it, and is
never detected automatically.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final

from dragoman.client.connect import OPENERS
from dragoman.client.folders import INSTALLED
from dragoman.client.legacy.client import DocumentOptions
from dragoman.client.legacy.open import DIALECTS
from dragoman.client.options import AUTO
from dragoman.dialects import discovery
from dragoman.dialects.legacy.base import ClientEnd
from dragoman.errors import UsageError
from dragoman.errors.usage import BROKEN_CODE

GROUP: Final = "dragoman.dialects"


def register(name: str, make: Callable[[DocumentOptions], ClientEnd]) -> None:
    """Register a dialect for ``connect(..., dialect=name)``. `make` is called for each connection,
    to create its client end. Raises `UsageError` if the name is taken."""
    if name == AUTO or name in OPENERS:
        raise UsageError(f"the dialect {name!r} already exists")
    DIALECTS[name] = make
    # One opener serves every dialect that is described by its client end.
    OPENERS[name] = OPENERS[discovery.ONESHOT]


def unregister(name: str) -> None:
    """Undo `register`. Raises `UsageError` if the dialect is built in or not registered."""
    if name not in OPENERS or name in discovery.DIALECTS:
        raise UsageError(f"the dialect {name!r} is built in or not registered")
    del OPENERS[name], DIALECTS[name]


def is_registered(name: str) -> bool:
    """Return whether there is a dialect of this name: built in, registered in this process, or of
    an installed package.

    The package is not imported.
    """
    return name in OPENERS or _entry_of(name) is not None


def load_registered(name: str) -> bool:
    """Register the dialect of this name from an installed package. Returns False if there is none.
    Raises `UsageError` if the package does not load, or does not provide a client end."""
    entry = _entry_of(name)
    if entry is None:
        return False
    try:
        made = entry.load()
    except BROKEN_CODE as error:
        raise UsageError(
            f"the dialect {name!r} of {_package(entry)} cannot be loaded: {error}"
        ) from (error)
    if isinstance(made, type) and issubclass(made, ClientEnd):
        end = made
        register(name, lambda options: end())
    elif callable(made):
        register(name, made)
    else:
        raise UsageError(
            f"the dialect {name!r} of {_package(entry)} is neither a subclass of ClientEnd nor a "
            "function that returns an instance of one"
        )
    return True


def _entry_of(name: object) -> Any:
    """Return the entry point of a dialect, or None. An entry point in the working directory is
    ignored unless it is installed there: a project's code must not run just because someone works
    in it."""
    from importlib.metadata import entry_points

    here = os.path.realpath(os.getcwd())
    for entry in entry_points(group=GROUP, name=str(name)):
        folder = getattr(entry.dist, "_path", None)
        place = os.path.realpath(folder) if folder is not None else ""
        inside = place.startswith(here + os.sep)
        if not inside or INSTALLED & set(place.split(os.sep)):
            return entry
    return None


def _package(entry: Any) -> str:
    return entry.value if entry.dist is None else f"the package {entry.dist.name}"
