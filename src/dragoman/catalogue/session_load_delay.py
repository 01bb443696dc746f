"""Compute the delay before a new session may be loaded again.

Some peers lose a session that another of their processes loads within the same minute of the clock
(the quirk `loads_next_minute`). Pure: the time is an argument. `runs.wait_before_load` and
`broker.server.sessions` wait.
"""

from __future__ import annotations

from typing import Final

MINUTE: Final = 60.0

MARGIN: Final = 0.5
"""Seconds after the minute: the peer reads its own clock, and starts after us."""


def remaining(began_at: float, now: float) -> float:
    """Seconds until the clock shows another minute than the one in which the session began."""
    over_at = (began_at + MARGIN) // MINUTE * MINUTE + MINUTE + MARGIN
    # A clock that was set back gives no information.
    return max(0.0, over_at - now) if began_at <= now else 0.0
