"""A program that is run for its output: ripgrep, git.

Owns the run: output handed over as it comes, an end when enough has been seen, when time is up or
when the turn is cancelled, and nothing left of the program afterwards. It does not know what the
output means. Processes are started by `dragoman.transports`, as everywhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dragoman.errors import ConnectionLost
from dragoman.rpc.tasks import finish
from dragoman.transports import spawn
from dragoman.transports.process.child import ShutdownTimes

RUN_TIMEOUT: Final = 45.0
"""Seconds for one program. A search through 50,000 files takes less than one; a dead network mount
does not keep the user waiting for ever."""

TIMES: Final = ShutdownTimes(
    flush_timeout=0.0, exit_timeout=0.0, terminate_timeout=0.5, kill_timeout=2.0
)
"""These programs only read, so there is nothing to wait for when one is ended."""

OnOutput = Callable[[bytes], bool]
"""Gets output as it comes, and says whether more is wanted."""


@dataclass(frozen=True, slots=True)
class Ran:
    """How it went. The exit code is None if it was ended before its time."""

    exit_code: int | None
    complaint: str
    """The end of what it wrote to stderr."""
    cut: bool
    """Whether there would have been more: enough was seen, or the time was up."""


class _Listener:
    """Takes what a program writes until it ends, or until there is enough."""

    def __init__(self, on_output: OnOutput) -> None:
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.cut = False
        self._on_output = on_output

    def data_received(self, data: bytes) -> None:
        if self.over.done():
            return
        wanted = False
        try:
            wanted = self._on_output(data)
        finally:
            if not wanted:
                self.cut = True
                self.over.set_result(None)

    def stream_ended(self, failure: ConnectionLost) -> None:
        if not self.over.done():
            self.over.set_result(None)


async def run(
    argv: Sequence[str],
    *,
    cwd: str,
    on_output: OnOutput,
    env: Mapping[str, str] | None = None,
    timeout: float = RUN_TIMEOUT,
) -> Ran:
    """Run a program to its end, or until enough was seen. `SpawnError` if it cannot start."""
    stream = await spawn(argv, cwd=cwd, env=env, times=TIMES)
    listener = _Listener(on_output)
    try:
        stream.start(listener)
        await asyncio.wait([listener.over], timeout=timeout)
        if not listener.over.done():
            listener.cut = True
        exit_code = stream.exit_code
    finally:
        await finish(stream.aclose())
    return Ran(exit_code, stream.stderr_tail()[-2000:], listener.cut)


async def collect(
    argv: Sequence[str], *, cwd: str, limit_size: int, env: Mapping[str, str] | None = None
) -> tuple[Ran, bytes]:
    """Run a program and keep its output, up to a size."""
    kept = bytearray()

    def keep(data: bytes) -> bool:
        kept.extend(data)
        return len(kept) <= limit_size

    ran = await run(argv, cwd=cwd, on_output=keep, env=env)
    return ran, bytes(kept[:limit_size])
