"""Limit on connections to a broker, derived from the file descriptor limit of the process.

When there are too many, the oldest connection that has not sent `initialize` is chosen to be
closed, and `broker` closes it. Without the limit, a broker that runs out of descriptors would not
answer and would count as hung.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from dragoman.broker.server.caller import Caller

MAX_CALLERS: Final = 1000
"""Maximum number of connections, if there are enough descriptors: each costs memory as well."""

MIN_CALLERS: Final = 32
"""Number of connections that are always allowed, however few descriptors there are."""

RESERVED: Final = 64
"""Descriptors reserved for everything else: the peer, the store, files and terminals."""

PER_CALLER: Final = 2
"""Descriptors per caller."""

SPARE: Final = 16
"""Number of slots kept free for new connections, so that each hello is answered."""


def most_connections() -> int:
    """Return the maximum number of connections."""
    if sys.platform == "win32":
        return MAX_CALLERS
    import resource

    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed == resource.RLIM_INFINITY:
        return MAX_CALLERS
    return min(MAX_CALLERS, max(MIN_CALLERS, (allowed - RESERVED) // PER_CALLER))


def is_full(callers: Iterable[Caller]) -> bool:
    """Return whether the callers that have sent `initialize` leave no room for one more."""
    return sum(1 for each in callers if each.greeted) >= most_connections() - SPARE


def one_too_many(callers: Iterable[Caller]) -> Caller | None:
    """Return the connection to close, from `callers` in order of arrival: the oldest that has not
    sent `initialize`. Returns None if the limit is not exceeded, or if all have sent it."""
    everybody = list(callers)
    if len(everybody) <= MIN_CALLERS or len(everybody) <= most_connections():
        return None
    return next((each for each in everybody if not each.greeted), None)
