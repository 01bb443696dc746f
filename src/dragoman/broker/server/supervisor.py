"""Keep the peer running: start it, and restart it with backoff when it dies.

After several deaths in a row, or a failed start, it stays down until a caller needs it. `peer`
starts the process; `broker` handles the consequences.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Final, TypeAlias

from dragoman.broker.server.peer import PeerLink
from dragoman.errors import DragomanError

if TYPE_CHECKING:
    from dragoman.broker.server.broker import Broker

FIRST_DELAY: Final = 0.2
"""Maximum delay in seconds before the first restart of a peer that died. It is short, because most
crashes do not repeat."""

MAX_DELAY: Final = 30.0
"""Maximum delay in seconds before a restart, which limits the load from a peer that keeps dying."""

MAX_RETRY_DELAY: Final = 1.0
"""Maximum delay in seconds between two starts requested by callers: a user who has just fixed the
problem does not want to wait."""

STEADY_TIME: Final = 30.0
"""Seconds of running after which a peer counts as healthy, and earlier deaths are forgotten."""

MAX_UNASKED: Final = 3
"""Maximum number of automatic restarts in a row. When the peer dies once more, it stays down until
a caller needs it."""

Open: TypeAlias = Callable[[int], AbstractAsyncContextManager[PeerLink]]


def delay_after(deaths: int, chance: float) -> float:
    """Return the seconds to wait before a restart after this many deaths in a row; `chance` is a
    random number between 0 and 1.

    Half of the delay is random, so that brokers whose peers die for the same reason do not all
    restart them at the same moment.
    """
    longest = min(MAX_DELAY, FIRST_DELAY * 2.0 ** min(deaths - 1, 20))
    return float(longest * (0.5 + 0.5 * chance))


class PeerSupervisor:
    """Keeps one peer running."""

    def __init__(self, open: Open, broker: Broker) -> None:
        self._open = open
        self._broker = broker
        self._wanted = asyncio.Event()
        self.starts = 0
        """Number of starts."""

    def want(self) -> None:
        """Called when a caller needs the peer now."""
        self._wanted.set()

    async def run(self) -> None:
        """Keep the peer running until cancelled. The peer has ended when this returns."""
        loop = asyncio.get_running_loop()
        deaths = 0
        while True:
            self.starts += 1
            try:
                async with self._open(self.starts) as far:
                    up_at = loop.time()
                    self._broker.peer_up(far)
                    self._wanted.clear()
                    failure = await far.wait_ended()
                    # Reported before the rest of the process is cleaned up, which may take seconds.
                    self._broker.peer_down(far, failure)
            except DragomanError as error:
                deaths += 1
                self._broker.peer_unstartable(error)
                # It would fail again for the same reason, so retry only on request. Those who
                # waited for this start have its error.
                self._wanted.clear()
                again_at = loop.time() + min(MAX_RETRY_DELAY, delay_after(deaths, random.random()))
                await self._wanted.wait()
                await asyncio.sleep(again_at - loop.time())
                self._broker.peer_coming()
                continue
            deaths = 1 if loop.time() - up_at >= STEADY_TIME else deaths + 1
            if deaths > MAX_UNASKED and not self._broker.is_wanted():
                await self._wanted.wait()
            await asyncio.sleep(delay_after(deaths, random.random()))
