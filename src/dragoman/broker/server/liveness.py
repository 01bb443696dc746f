"""Detect a hung peer: probe it when an answer is overdue, and kill it if it does not respond.

A peer is killed only if nothing was received since a request, and either its process is stopped by
a signal, or the answer is overdue and it ignores a ping as well. While a turn runs that was not
cancelled, only a stopped process is killed. `supervisor` then starts it again, as after a crash.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from dragoman.errors import DragomanError, PeerUnresponsive

if TYPE_CHECKING:
    from dragoman.broker.server.peer import PeerLink
    from dragoman.rpc.tasks import TaskOwner

log: Final = logging.getLogger("dragoman.broker")

PROBE_TIMEOUT: Final = 5.0
"""Timeout in seconds for the ping. An agent whose loop runs answers in milliseconds; one that
is loading something big may block it for a second or two."""

STOPPED_TIMEOUT: Final = 2.0
"""Seconds for which a process must be seen stopped while a response is pending. If we were
stopped together with it, it continues as soon as we do."""

FIRST_LOOK: Final = 1.0
"""Seconds after a request until the process is first checked for being stopped."""

LOOK_INTERVAL: Final = 0.25
"""Seconds between two checks during a probe. Checks are counted, not seconds: if we are stopped
ourselves for a minute, that is one check."""


class Liveness:
    """Watches a peer's pending responses and starts a probe when one is overdue."""

    def __init__(
        self,
        tasks: TaskOwner,
        *,
        is_working: Callable[[PeerLink], bool] = lambda far: False,
        probe_timeout: float = PROBE_TIMEOUT,
        stopped_timeout: float = STOPPED_TIMEOUT,
        first_look: float = FIRST_LOOK,
        look_interval: float = LOOK_INTERVAL,
    ) -> None:
        self._tasks = tasks
        self._is_working = is_working
        self._probe_timeout = probe_timeout
        self._stopped_timeout = stopped_timeout
        self._first_look = first_look
        self._look_interval = look_interval
        self._probes: dict[PeerLink, asyncio.Task[None]] = {}

    def expect(self, far: PeerLink, what: str, timeout: float | None) -> Callable[[], None]:
        """Expect a response within `timeout` seconds; with None, check nothing. `what` names the
        request in the error. The probe starts early enough to finish by then. Call the returned
        function when the response arrives, and only then: even if the caller stops waiting, the
        response is still pending."""
        if timeout is None:
            return lambda: None
        heard = far.heard
        loop = asyncio.get_running_loop()

        def look() -> None:
            if far.heard == heard and far.is_stopped:
                self.doubt(far, what, heard=heard)

        timers = (
            loop.call_later(min(self._first_look, timeout / 2), look),
            loop.call_later(
                max(0.0, timeout - self._probe_timeout),
                lambda: self.doubt(far, what, heard=heard),
            ),
        )

        def answered() -> None:
            for timer in timers:
                timer.cancel()

        return answered

    def look_later(self, far: PeerLink, what: str) -> None:
        """Expect a response that may take any time: check only once, after `FIRST_LOOK` seconds
        without a message, whether the process is stopped."""
        heard = far.heard

        def look() -> None:
            if far.heard == heard and far.is_stopped:
                self.doubt(far, what, heard=heard)

        asyncio.get_running_loop().call_later(self._first_look, look)

    def doubt(self, far: PeerLink, what: str, *, heard: int, window: float = 0.0) -> None:
        """Start a probe of the peer, unless something was received since its `heard` had this
        value, or a probe is running. The peer has `window` seconds to send anything, and at least
        the time of a probe."""
        if far.heard == heard and far.failure is None and far not in self._probes:
            window = max(window, self._probe_timeout)
            probe = self._probe(far, what, heard, window)
            self._probes[far] = self._tasks.start(probe, "probe the peer")

    async def check(self, far: PeerLink) -> None:
        """Wait for a running probe to end. Raises `PeerUnresponsive` if the peer was killed because
        it did not respond."""
        if (probe := self._probes.get(far)) is not None:
            # Takes as long as a probe does.
            await asyncio.wait([probe])
        if isinstance(far.failure, PeerUnresponsive):
            raise far.failure.fresh()

    async def _probe(self, far: PeerLink, what: str, heard: int, window: float) -> None:
        try:
            asked = False
            with contextlib.suppress(DragomanError):
                asked = far.ping()
            looks = stopped = 0
            while True:
                await asyncio.sleep(self._look_interval)
                if far.heard != heard or far.failure is not None or far.is_held:
                    return
                looks += 1
                stopped = stopped + 1 if far.is_stopped else 0
                if stopped * self._look_interval >= self._stopped_timeout:
                    why = "its process is stopped by a signal"
                    break
                if looks * self._look_interval >= window:
                    if not asked or self._is_working(far):
                        # Its dialect has no ping, or it may be single-threaded. Killing it would
                        # end the turn of another caller, which has its own budgets.
                        return
                    why = "it does not answer a ping either"
                    break
            log.warning("the peer is hung: no answer to %s, and %s; killing it", what, why)
            await far.end(PeerUnresponsive(what, why))
        finally:
            del self._probes[far]
