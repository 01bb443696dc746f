"""Wait for a change, or for the time to try again after a failure.

`live_state`, `peer_watch` and `fleet_watch` read something when it has changed. If that fails, the
next change may not come for a long time, so they try again with growing delays.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import Final

from dragoman.delegation.health import backoff

_rng: Final = random.Random()


async def changed_or_due(changed: asyncio.Event, failed: int) -> None:
    """Wait until `changed` is set, or until a retry is due. `failed` is the number of failures in a
    row; if it is 0, no retry is due."""
    with suppress(TimeoutError):
        async with asyncio.timeout(delay_after(failed) if failed else None):
            await changed.wait()


def delay_after(failed: int) -> float:
    """Return the seconds until a retry is due after this many failures in a row."""
    return backoff(failed, _rng)
