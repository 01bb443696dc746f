"""Idle timeout of a broker, and the limit on idle brokers per user.

A broker that becomes idle asks the others for their status and, if there are too many, asks those
idle longest to stop. A broker that has work or callers refuses.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dragoman.broker.client.hello import ask_broker
from dragoman.broker.protocol import STATUS, STOP
from dragoman.broker.records import BrokerRecord, read_records
from dragoman.errors import BrokerError, CallError, ConnectError, ConnectionLost
from dragoman.rpc.tasks import together
from dragoman.transports.process.identity import ProcessState, state_of

LOOK_TIMEOUT: Final = 2.0
"""Timeout in seconds for the status of another broker. A slow broker is busy, so it is not idle."""

GREETING_TIME: Final = 5.0
"""Minimum number of seconds that a broker stays after the hello of a caller, which may shorten the
idle timeout: the caller's next request must find it. On a busy machine they are a second apart."""

log = logging.getLogger(__name__)


class IdleClock:
    """Idle timer: calls the callback `over` when the broker has been idle for `ttl` seconds."""

    def __init__(self, ttl: float, over: Callable[[], None]) -> None:
        self.ttl = ttl
        """The idle timeout in seconds."""
        self._over = over
        self._loop = asyncio.get_running_loop()
        self._since: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def idle_for(self) -> float | None:
        """Idle time in seconds by the loop's monotonic clock; None if the broker is not idle."""
        return None if self._since is None else self._loop.time() - self._since

    def start(self) -> None:
        """Start the timer, because the broker is idle. No effect if it already runs."""
        if self._since is None:
            self._since = self._loop.time()
            self._wind()

    def stop(self) -> None:
        """Stop the timer, because the broker works or ends."""
        self._since = None
        self._wind()

    def keep_for(self, ttl: float) -> None:
        """Set the idle timeout that a caller asks for. Even if the broker was already idle for
        longer, it stays for `GREETING_TIME`, so that this caller can still use it."""
        self.ttl = ttl
        self._wind(at_least=GREETING_TIME)

    def _wind(self, at_least: float = 0.0) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._since is not None:
            over_at = max(self._since + self.ttl, self._loop.time() + at_least)
            self._timer = self._loop.call_at(over_at, self._over)


@dataclass(frozen=True, slots=True)
class _Idle:
    record: BrokerRecord
    since: float
    """When the other broker became idle, by our loop's clock, because each broker is asked at a
    different moment."""


async def trim(folder: Path, *, own_pid: int, max_idle: int) -> list[str]:
    """If more than `max_idle` brokers are idle, ask those idle longest to stop.

    Called by a broker that has just become idle, which counts as one of them. Returns the names of
    those that agreed to stop.
    """
    others = [
        record
        for _, record in read_records(folder)
        if record is not None
        and not record.draining
        and record.broker.pid != own_pid
        and state_of(record.broker) is ProcessState.ALIVE
    ]
    if len(others) < max_idle:
        return []
    looked = await together(*(_look(record) for record in others))
    idle = sorted((one for one in looked if one is not None), key=lambda one: -one.since)
    stopped: list[str] = []
    # This broker is the most recent one, whatever the others report.
    for one in idle[max(0, max_idle - 1) :]:
        answer = await _ask(one.record, STOP, {"drain": True, "ifIdle": True})
        if isinstance(answer, dict) and answer.get("stopping"):
            log.info("the broker %s stops: more than %d are idle", one.record.name, max_idle)
            stopped.append(one.record.name)
    return stopped


async def _look(record: BrokerRecord) -> _Idle | None:
    status = await _ask(record, STATUS, {})
    idle_for = status.get("idleFor") if isinstance(status, dict) else None
    if not isinstance(idle_for, int | float) or isinstance(idle_for, bool):
        return None
    return _Idle(record, asyncio.get_running_loop().time() - idle_for)


async def _ask(record: BrokerRecord, method: str, params: Any) -> Any:
    try:
        return await ask_broker(record.address, method, params, timeout=LOOK_TIMEOUT)
    except (ConnectError, ConnectionLost, CallError, BrokerError) as error:
        log.debug("the broker %s does not answer: %s", record.name, error)
        return None
