"""Run a program for its output: bounded in size and time, ended when the turn is cancelled.

Processes are started by `dragoman.transports`, as everywhere; nothing is left of the program
afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from dragoman.errors import ConnectionLost
from dragoman.rpc.tasks import finish
from dragoman.transports import spawn
from dragoman.transports.process.child import ShutdownTimes

TIMES: Final = ShutdownTimes(
    flush_timeout=0.0, exit_timeout=0.0, terminate_timeout=0.5, kill_timeout=2.0
)
"""These programs only read, so there is nothing to wait for when one is ended."""


class Ran(NamedTuple):
    """What a program wrote. The exit code is None if it was ended before its time."""

    exit_code: int | None
    output: bytes
    cut: bool
    """Whether there would have been more: it wrote too much, or the time was up."""


class _Listener:
    """Takes what a program writes until it ends, or until there is enough."""

    def __init__(self, limit_size: int) -> None:
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.output = bytearray()
        self._limit_size = limit_size

    def data_received(self, data: bytes) -> None:
        self.output += data
        if len(self.output) > self._limit_size:
            self.stream_ended(None)

    def stream_ended(self, failure: ConnectionLost | None) -> None:
        if not self.over.done():
            self.over.set_result(None)


async def run(argv: Sequence[str], *, cwd: str, limit_size: int, timeout: float) -> Ran:
    """Run a program to its end, within the limits. `SpawnError` if it cannot start."""
    stream = await spawn(argv, cwd=cwd, times=TIMES)
    listener = _Listener(limit_size)
    try:
        stream.start(listener)
        await asyncio.wait([listener.over], timeout=timeout)
        cut = len(listener.output) > limit_size or not listener.over.done()
        exit_code = stream.exit_code
    finally:
        await finish(stream.aclose())
    return Ran(exit_code, bytes(listener.output[:limit_size]), cut)
