"""Choose the peer if none is named.

The setting `default_peer`; else the only enabled peer; else the one used last.
"""

from __future__ import annotations

from dragoman.catalogue import Catalogue
from dragoman.config import Config
from dragoman.errors import StoreError, UsageError
from dragoman.paths import Paths
from dragoman.store.open import open_store


def default_peer(
    config: Config, catalogue: Catalogue, paths: Paths, *, word: str | None = None
) -> tuple[str, str]:
    """The peer and the reason for it. `word` was given in place of a peer's name and is not one.

    Raises `UsageError` if there is none.
    """
    settings = config.settings
    if settings.default_peer:
        return settings.default_peer, "default_peer"
    if len(settings.enabled_peers) == 1:
        return settings.enabled_peers[0], "the only enabled peer"
    if (last := _last_used(paths)) in catalogue.names:
        return last, "the last one used"
    wrong = f"{word!r} is not a peer: " if word is not None and len(word.split()) == 1 else ""
    raise UsageError(
        f"{wrong}name a peer, or set a default: `dragoman peers` lists the peers, "
        "`dragoman config set default_peer NAME` sets it"
    )


def _last_used(paths: Paths) -> str:
    """The peer of the latest job; empty if there is none or it cannot be read."""
    try:
        with open_store(read_only=True, paths=paths) as store:
            return next((job.peer for job in store.jobs(limit=1)), "")
    except StoreError:
        return ""
