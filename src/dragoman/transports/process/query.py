"""Run a program once and return its output, bounded in size and time, leaving no process behind.

Used for programs that only answer a question, such as git, ripgrep or `node --version`. The caller
must know which command lines are safe to run.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dragoman.errors import ConnectionLost, SpawnError
from dragoman.transports import spawn
from dragoman.transports.base import Stream
from dragoman.transports.process.child import ShutdownTimes
from dragoman.transports.process.stream import STDERR_TAIL_SIZE, Folder

MAX_ANSWER_SIZE: Final = 64 * 1024
"""Maximum number of bytes of output. Versions and lists of models are shorter; endless output is
cut."""

READER_TIMES: Final = ShutdownTimes(
    flush_timeout=0.0, exit_timeout=0.0, terminate_timeout=0.5, kill_timeout=2.0
)
"""Shutdown timeouts for a program that only reads: there is nothing to wait for when it is
ended."""


@dataclass(frozen=True, slots=True)
class ProgramOutput:
    """Output and exit of a program."""

    exit_code: int | None
    """The exit code; None if the program did not end within the limits, or a signal killed it."""
    output: bytes
    errors: str
    """The tail of the program's stderr."""
    cut: bool = False
    """Whether output is missing, because the program wrote too much or timed out."""

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and not self.cut

    @property
    def text(self) -> str:
        """The output as text without the newlines at its end, for answers of a single line."""
        return os.fsdecode(self.output).rstrip("\n")


class _Collector:
    """Collects output until the program ends or the limit is reached."""

    def __init__(self, limit_size: int) -> None:
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.kept = bytearray()
        self.cut = False
        self._limit_size = limit_size

    def data_received(self, data: bytes) -> None:
        if self.over.done():
            return
        self.kept += data
        if len(self.kept) > self._limit_size:
            self.cut = True
            self.over.set_result(None)

    def stream_ended(self, failure: ConnectionLost) -> None:
        if not self.over.done():
            self.over.set_result(None)


async def run_program(
    argv: Sequence[str],
    *,
    cwd: Folder,
    timeout: float,
    limit_size: int,
    env: Mapping[str, str] | None = None,
    inherit: Iterable[str] = (),
    stderr_tail_size: int = STDERR_TAIL_SIZE,
    times: ShutdownTimes = READER_TIMES,
    input: Iterable[bytes] = (),
) -> ProgramOutput:
    """Run a program until it ends, writes more than `limit_size` bytes, or `timeout` seconds have
    passed. Returns what it wrote by then. Raises `SpawnError` if it cannot be started.

    The program gets `input` on its stdin, which then stays open: it has to know where the input
    ends.
    """
    stream = await spawn(
        argv, cwd=cwd, env=env, inherit=inherit, stderr_tail_size=stderr_tail_size, times=times
    )
    collector = _Collector(limit_size)
    try:
        stream.start(collector)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                # A program that ends before it has read everything may still say why.
                with contextlib.suppress(ConnectionLost):
                    for chunk in input:
                        stream.write(chunk)
                        await stream.drain()
                await asyncio.wait([collector.over])
        cut = collector.cut or not collector.over.done()
        exit_code = stream.exit_code
    finally:
        await _close(stream)
    return ProgramOutput(exit_code, bytes(collector.kept[:limit_size]), stream.stderr_tail(), cut)


async def _close(stream: Stream) -> None:
    """End the program and wait until it has ended, even if the caller is cancelled, so that what
    the program holds, such as a lock file of git, is released. The wait is bounded."""
    cancelled: asyncio.CancelledError | None = None
    while True:
        try:
            await stream.aclose()
            break
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


async def ask_program(
    argv: Sequence[str],
    *,
    timeout: float,
    env: Mapping[str, str] | None = None,
    inherit: Iterable[str] = (),
) -> ProgramOutput | None:
    """Run a program in an empty directory, because some programs load files from the directory they
    are started in. Returns None if it could not be started.
    """
    with tempfile.TemporaryDirectory(prefix="dragoman-") as folder:
        try:
            return await run_program(
                argv,
                cwd=folder,
                timeout=timeout,
                limit_size=MAX_ANSWER_SIZE,
                env=env,
                inherit=inherit,
            )
        except SpawnError:
            return None
