"""Limit on connections to a broker, derived from the file descriptor limit of the process.

When there are too many, the oldest connection without a handshake is chosen to be closed. Without
the limit, a broker that runs out of descriptors would not answer and would count as hung. `broker`
closes the connection.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from dragoman.broker.server.caller import Caller

MAX_CALLERS: Final = 1000
"""Callers at once, where there are descriptors enough: each costs some memory as well."""

MIN_CALLERS: Final = 32
"""Callers at once, however few descriptors there are."""

RESERVED: Final = 64
"""Descriptors for everything else: the peer, the store, files and terminals."""

PER_CALLER: Final = 2
"""Descriptors of one caller."""

SPARE: Final = 16
"""Places that are kept for those who have just come: whoever says hello is to be answered."""


def most_connections() -> int:
    """How many connections there is room for."""
    if sys.platform == "win32":
        return MAX_CALLERS
    import resource

    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed == resource.RLIM_INFINITY:
        return MAX_CALLERS
    return min(MAX_CALLERS, max(MIN_CALLERS, (allowed - RESERVED) // PER_CALLER))


def is_full(callers: Iterable[Caller]) -> bool:
    """Whether there are so many callers that one more cannot be greeted."""
    return sum(1 for each in callers if each.greeted) >= most_connections() - SPARE


def one_too_many(callers: Iterable[Caller]) -> Caller | None:
    """Who has to go, of callers in the order in which they came: the first that has not greeted,
    if there are too many of them; None if all can stay."""
    everybody = list(callers)
    if len(everybody) <= MIN_CALLERS or len(everybody) <= most_connections():
        return None
    return next((each for each in everybody if not each.greeted), None)


__all__ = ["is_full", "most_connections", "one_too_many"]
