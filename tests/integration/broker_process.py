"""Brokers for tests as real processes, reached over their real sockets.

Owns the start through the way that callers go, the callers, and the end: no process is left, and
what the broker wrote into its log is shown when a test fails.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from dragoman.broker.client.find_or_start import ensure
from dragoman.broker.endpoint import endpoint_of
from dragoman.broker.spec import BrokerSpec, endpoint_name
from dragoman.errors import ConnectionLost, DragomanError
from dragoman.rpc import Connection, End
from dragoman.transports import connect_unix
from tests.integration.broker_stage import TIMEOUT, TestCaller


class BrokerUnderTest:
    """A broker in a process of its own."""

    def __init__(self, spec: BrokerSpec, pid: int) -> None:
        self.spec = spec
        self.endpoint = endpoint_of(endpoint_name(spec), spec.paths)
        self.pid = pid

    @asynccontextmanager
    async def caller(self, *, greet: bool = True) -> AsyncIterator[TestCaller]:
        stream = await connect_unix(self.endpoint.address, timeout=TIMEOUT)
        caller = TestCaller(lambda handlers: Connection(stream, End.CLIENT, handlers))
        caller.connection.start()
        try:
            if greet:
                await caller.greet()
            yield caller
        finally:
            await caller.connection.aclose()

    @property
    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def log(self) -> str:
        with suppress(OSError):
            return Path(self.endpoint.log).read_text()[-3000:]
        return ""

    async def end(self) -> None:
        """End it, kindly first."""
        with suppress(DragomanError):
            async with self.caller(greet=False) as caller:
                caller.connection.begin("_dragoman/stop", {"drain": False}, settle=_nobody)
                with suppress(TimeoutError):
                    async with asyncio.timeout(TIMEOUT):
                        await caller.connection.wait_ended()
        if not await gone(self.pid):
            os.kill(self.pid, signal.SIGKILL)
            assert await gone(self.pid)


def _nobody(*_: object) -> None:
    """Stands for whoever would want the answer."""


def lives(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")


async def gone(pid: int, timeout: float = 10.0) -> bool:
    """Wait for the end of a process that is not our child."""
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout):
            while lives(pid):  # noqa: ASYNC110 - nobody tells of the end of somebody else's child
                await asyncio.sleep(0.01)
    return not lives(pid)


@asynccontextmanager
async def broker_process(spec: BrokerSpec) -> AsyncIterator[BrokerUnderTest]:
    """A broker for as long as the block lasts."""
    broker = await start(spec)
    try:
        yield broker
    except BaseException:
        print(broker.log())  # noqa: T201 - pytest shows it beside the failure
        raise
    finally:
        await broker.end()


async def start(spec: BrokerSpec) -> BrokerUnderTest:
    reached = await ensure(spec)
    await reached.connection.aclose()
    return BrokerUnderTest(spec, reached.greeting.pid)


__all__ = ["BrokerUnderTest", "ConnectionLost", "broker_process", "gone", "lives", "start"]
