"""Open the user's session store, with a redactor for the user's secrets.

`store.store` has the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from dragoman.config.secrets import redactor
from dragoman.paths import find_paths
from dragoman.store.damage import identity_of
from dragoman.store.store import Store, store_path

if TYPE_CHECKING:
    from dragoman.paths import Paths


def open_store(
    *,
    read_only: bool = False,
    paths: Paths | None = None,
    credentials: Iterable[str] = (),
    environ: Mapping[str, str] | None = None,
) -> Store:
    """Open the user's session store, to be used in a `with` block. Raises `StoreError`.

    Everything that is written is redacted: the values of variables named in `credentials`, and of
    all variables with secret-looking names.
    """
    paths = paths or find_paths()
    if read_only:
        return Store.open(store_path(paths.state), read_only=True)
    redact = redactor(credentials, environ)
    return Store.open(store_path(paths.state), redact)


def open_told(on_notice: Callable[[str], None]) -> Store:
    """Open the user's session store for writing. If it was damaged and set aside, `on_notice` is
    called with a message that says so."""
    store = open_store()
    if store.replaced:
        on_notice(f"{store.path}: {store.replaced}")
    return store


def replace_damaged(damaged: tuple[int, int] | None) -> str:
    """Set the damaged store aside and create a new one, unless another process has done that.
    `damaged` is the identity of the damaged file. Returns a message that reports it."""
    with open_store() as store:
        if not store.replaced and identity_of(store.path) == damaged:
            store.replace()
        return f"{store.path}: {store.replaced or 'it was damaged, and a new one was created'}"
