"""Open the user's session store, with a redactor for the user's secrets.

`store.store` has the tables.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from dragoman.config.secrets import redactor
from dragoman.paths import find_paths
from dragoman.store.store import Store, store_path

if TYPE_CHECKING:
    from dragoman.paths import Paths


def open_store(
    *,
    read_only: bool = False,
    paths: Paths | None = None,
    credentials: Iterable[str] = (),
    handed: Iterable[str] = (),
    workspace: str | os.PathLike[str] = ".",
    environ: Mapping[str, str] | None = None,
) -> Store:
    """The store, for use as ``with``. Raises `StoreError`.

    Redacts the values of the variables named in `credentials` and of all variables with
    secret-looking names from everything that is written; also those of the variables `handed` to an
    agent, unless they are short or are paths in its `workspace` or elsewhere.
    """
    paths = paths or find_paths()
    if read_only:
        return Store.open(store_path(paths.state), read_only=True)
    redact = redactor(credentials, environ, handed=handed, workspace=workspace)
    return Store.open(store_path(paths.state), redact)


def open_told(on_notice: Callable[[str], None], *, paths: Paths | None = None) -> Store:
    """Open the store to write. If it was damaged and set aside, reports that to `on_notice`."""
    store = open_store(paths=paths)
    if store.replaced:
        on_notice(f"{store.path}: {store.replaced}")
    return store


def replace_damaged(*, paths: Paths | None = None) -> str:
    """Set the damaged store aside; returns the sentence that reports it."""
    with open_store(paths=paths) as store:
        if not store.replaced:
            store.replace()
        return f"{store.path}: {store.replaced}"
