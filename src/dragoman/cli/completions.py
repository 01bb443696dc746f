"""Values that shell completion offers: peers, models, modes, jobs, sessions, brokers and others.

Each function returns the values that start with a word, and none if they cannot be read: a shell
shows no errors. No agent is started. `prompt_options` names these functions without importing this
module, which a plain `run` does not need.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

COMPLETED: Final = 50
"""Maximum number of jobs and sessions offered by shell completion."""


def complete_peer(incomplete: str) -> list[str]:
    """Return peer names that start with `incomplete`, for shell completion."""
    from dragoman.catalogue import load_catalogue
    from dragoman.config import find_paths, load_config
    from dragoman.errors import DragomanError

    try:
        config = load_config(Path.cwd(), find_paths(), strict=False)
        names = load_catalogue(config).names
    except (DragomanError, OSError):
        return []
    return [name for name in names if name.startswith(incomplete)]


def complete_job(incomplete: str) -> list[str]:
    """Return the ids that start with `incomplete` of the latest jobs, and `LAST` if that starts
    with it."""
    from dragoman.errors import DragomanError
    from dragoman.runs.sessions import LAST
    from dragoman.store.open import open_store

    try:
        with open_store(read_only=True) as store:
            found = store.job_ids(incomplete, limit=COMPLETED)
    except (DragomanError, OSError):
        found = []
    return [*found, *([LAST] if LAST.startswith(incomplete) else [])]


def complete_session(incomplete: str) -> list[str]:
    """Return the names and keys of this project's sessions that start with `incomplete`."""
    from dragoman.errors import DragomanError
    from dragoman.store import root_of
    from dragoman.store.open import open_store

    try:
        with open_store(read_only=True) as store:
            records = store.sessions(root=str(root_of(Path.cwd())), limit=COMPLETED)
    except (DragomanError, OSError, UnicodeEncodeError):
        # The last one: the path of the project is not UTF-8 text, so it has no sessions.
        return []
    words = [word for each in records for word in (each.name, each.key) if word]
    return [word for word in dict.fromkeys(words) if word.startswith(incomplete)]


def complete_setting(incomplete: str) -> list[str]:
    """Return the keys of settings that start with `incomplete`. The keys that are possible for each
    peer are included only after ``peer.``."""
    from dragoman.config import find_paths, load_config
    from dragoman.config.schema import DelegationLimits, PeerSettings
    from dragoman.errors import DragomanError

    try:
        config = load_config(Path.cwd(), find_paths(), strict=False)
        keys = {key for key, _, _ in config.values()}
    except (DragomanError, OSError):
        return []
    if incomplete.startswith("peer."):
        own = [name for name in PeerSettings.__struct_fields__ if name != "limits"]
        own += [f"limits.{name}" for name in DelegationLimits.__struct_fields__]
        keys |= {f"peer.{peer}.{name}" for peer in complete_peer("") for name in own}
    return sorted(key for key in keys if key.startswith(incomplete))


def complete_role(incomplete: str) -> list[str]:
    """Return claimed roles that start with `incomplete`."""
    from dragoman.catalogue import load_catalogue
    from dragoman.config import find_paths, load_config
    from dragoman.errors import DragomanError

    try:
        catalogue = load_catalogue(load_config(Path.cwd(), find_paths(), strict=False))
        roles = sorted({role for name in catalogue.names for role in catalogue.get(name).roles})
    except (DragomanError, OSError):
        return []
    return [role for role in roles if role.startswith(incomplete)]


def complete_model(ctx: Any, incomplete: str) -> list[str]:
    """Return the models that start with `incomplete`, of the peer that the command line names or,
    if it names none, of all peers. Only models known from cards and descriptors are listed: no peer
    is started."""
    return _known_of_peer(ctx, incomplete, "models")


def complete_mode(ctx: Any, incomplete: str) -> list[str]:
    """Return the modes that start with `incomplete`, of the peer that the command line names or, if
    it names none, of all peers."""
    return _known_of_peer(ctx, incomplete, "modes")


def _known_of_peer(ctx: Any, incomplete: str, what: str) -> list[str]:
    from dragoman.errors import DragomanError
    from dragoman.runs.context import load_context

    try:
        place = load_context()
        # An option without its value ends the parsing; the words before it are kept.
        given = (ctx.params.get("peer"), ctx.params.get("name"), *ctx.args)
        named = [word for word in given if word in place.catalogue]
        names = named[:1] or place.catalogue.names
        found: list[str] = []
        for name in names:
            card, known = place.cards().latest(name), place.catalogue.get(name)
            measured = None if card is None else getattr(card.facts, what)
            claimed = known.tiers.values() if what == "models" else known.enforcement.modes
            found += measured or claimed
    except (DragomanError, OSError):
        return []
    return [word for word in dict.fromkeys(found) if word.startswith(incomplete)]


def complete_broker(incomplete: str) -> list[str]:
    """Return matching names of running brokers and their peers."""
    from dragoman.broker.client.brokers import list_brokers
    from dragoman.errors import DragomanError
    from dragoman.paths import find_paths

    try:
        brokers = list_brokers(find_paths())
    except (DragomanError, OSError):
        return []
    words = [*(each.peer for each in brokers), *(each.name for each in brokers)]
    return [word for word in dict.fromkeys(words) if word.startswith(incomplete)]


def complete_variable(incomplete: str) -> list[str]:
    """Return matching names of environment variables."""
    return sorted(name for name in os.environ if name.startswith(incomplete))


def complete_dialect(incomplete: str) -> list[str]:
    """Return matching names of dialects."""
    from dragoman.dialects.discovery import DIALECTS

    return [name for name in DIALECTS if name.startswith(incomplete)]
