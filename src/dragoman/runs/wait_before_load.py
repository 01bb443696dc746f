"""Wait before loading a stored session at peers that would lose it (quirk `loads_next_minute`).

`catalogue.descriptor` computes how long. There is no wait if a broker's peer still has the
session open. After a restart of its peer the broker itself waits (`broker.server.sessions`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.catalogue import descriptor

if TYPE_CHECKING:
    from dragoman.store import SessionRecord


def loses_early(peer: str, cwd: Path) -> bool:
    """Return whether a peer is known to lose a session that is loaded too early."""
    from dragoman.runs.context import load_context

    catalogue = load_context(cwd).catalogue
    return peer in catalogue and catalogue.get(peer).quirks.loads_next_minute


async def wait_over(
    record: SessionRecord,
    *,
    broker: str | None = None,
    on_notice: Callable[[str], None] | None = None,
) -> None:
    """Wait until a stored session can be loaded without being lost; usually no wait is needed.

    `broker` is the name of the broker through which it will be opened; None means a process of our
    own. There is no wait for a session that was never used here: its record does not say when the
    peer created it.
    """
    seconds = descriptor.load_delay(record.created_at, time.time())
    if not seconds or record.updated_at <= record.created_at:
        return
    if not loses_early(record.peer, Path(record.cwd)):
        return
    if broker is not None and await _has_it(broker, record):
        return
    if on_notice is not None:
        on_notice(
            f"{record.peer} loses a session that is loaded in the clock minute in which it was "
            f"created; waiting {seconds:.0f} s until that minute is over"
        )
    await asyncio.sleep(seconds)


async def _has_it(broker: str, record: SessionRecord) -> bool:
    """Return whether a broker's current peer process has a session open."""
    from dragoman.broker.client.sessions import sessions_in
    from dragoman.paths import find_paths

    told = await sessions_in(broker, find_paths())
    return any(each.get("key") == record.key and each.get("live") for each in told)
