"""List the running brokers of this user, show their status, stop them.

Starts no broker (`broker.client.find_or_start` does). `broker.client.reap` cleans up after dead
ones.
"""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any, Final

from dragoman.broker.client.hello import ask_broker
from dragoman.broker.endpoint import brokers_folder
from dragoman.broker.protocol import STATUS, STOP
from dragoman.broker.records import BrokerRecord, read_records
from dragoman.errors import BrokerError, BrokerUnavailable, CallError, ConnectError, ConnectionLost
from dragoman.paths import Paths
from dragoman.rpc.tasks import in_thread
from dragoman.transports.process.identity import ProcessState, kill, state_of

if TYPE_CHECKING:
    from dragoman.broker.client.reap import Reaped

STATUS_TIMEOUT: Final = 3.0
"""Seconds to wait for a broker's status before it is shown as not responding."""

STOP_TIMEOUT: Final = 15.0
"""Seconds for a broker to end if it need not wait for turns. Its peer has a few seconds to exit
before it is killed."""

LOOK_INTERVAL: Final = 0.02
"""Seconds between two checks of whether a process has ended."""


def list_brokers(paths: Paths) -> list[BrokerRecord]:
    """Return the running brokers, oldest first, including those that are draining."""
    found = [
        record
        for _, record in read_records(brokers_folder(paths.runtime))
        if record is not None and state_of(record.broker) is not ProcessState.DEAD
    ]
    return sorted(found, key=lambda record: record.started_at)


async def status_of(record: BrokerRecord) -> dict[str, Any] | None:
    """Return a broker's status, or None if it does not answer, or no longer accepts callers."""
    if record.draining:
        return None
    try:
        answer = await ask_broker(record.address, STATUS, {}, timeout=STATUS_TIMEOUT)
    except (ConnectError, ConnectionLost, CallError, BrokerError):
        return None
    return answer if isinstance(answer, dict) else None


async def stop_broker(
    record: BrokerRecord,
    *,
    drain: bool = False,
    if_idle: bool = False,
    timeout: float = STOP_TIMEOUT,
) -> bool:
    """Stop a broker. Waits until it has ended, unless `drain` is set.

    Returns False if the broker refuses, or if it is already draining and only `if_idle` is set. A
    broker that does not answer, even with `drain`, or does not end within `timeout` is ended with
    signals, if its process is proven to be the broker. Raises `BrokerUnavailable` if it cannot be
    ended, and `BrokerError` if it does not answer and `if_idle` is set.
    """
    if not record.draining:
        try:
            params = {"drain": drain, "ifIdle": if_idle}
            answer = await ask_broker(record.address, STOP, params, timeout=STATUS_TIMEOUT)
        except (ConnectError, ConnectionLost, CallError, BrokerError) as error:
            if if_idle and state_of(record.broker) is not ProcessState.DEAD:
                silent = BrokerError(
                    f"it is unknown whether the broker {record.name} is idle: {error}"
                )
                silent.may_have_run = error.may_have_run
                raise silent from error
        else:
            if not (isinstance(answer, dict) and answer.get("stopping")):
                return False
            if drain:
                return True
            if await _gone(record, timeout):
                return True
    elif drain:
        return True
    elif if_idle:
        return False  # It finishes its work.
    for number in (signal.SIGTERM, getattr(signal, "SIGKILL", signal.SIGTERM)):
        if not kill(record.broker, number):
            break
        if await _gone(record, timeout if number == signal.SIGTERM else STATUS_TIMEOUT):
            return True
    if state_of(record.broker) is ProcessState.DEAD:
        return True
    raise BrokerUnavailable(
        f"the broker {record.name} (process {record.broker.pid}) cannot be stopped"
    )


async def reap(paths: Paths) -> list[Reaped]:
    """Kill the processes that dead brokers left behind, and remove the files of these brokers."""
    from dragoman.broker.client.reap import sweep

    folder = brokers_folder(paths.runtime)
    return await in_thread(str(folder), lambda _: sweep(folder), changes_disk=True)


async def _gone(record: BrokerRecord, timeout: float) -> bool:
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + timeout
    while state_of(record.broker) is ProcessState.ALIVE:
        if loop.time() >= give_up_at:
            return False
        await asyncio.sleep(LOOK_INTERVAL)
    return True


def differences(record: BrokerRecord, other: BrokerRecord) -> tuple[str, ...]:
    """Return how two brokers of a peer differ: the names of variables, and other conditions in
    words. Empty if one of them is too old to report its terms."""
    mine, theirs = record.terms, other.terms
    if not mine or not theirs:
        # Older versions do not report their terms.
        return ()
    names = sorted(name for name in mine | theirs if mine.get(name) != theirs.get(name))
    return tuple(name if name.startswith("the ") else f"the variable {name}" for name in names)
