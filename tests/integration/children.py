"""What the tests with real child processes share: a receiver to wait on, and ways to watch a pid.

Children are small Python programs given as text. They are started with -I -S, because a test shall
not depend on what is installed, and start faster so.
"""

from __future__ import annotations

import asyncio
import os
import select
import sys
import textwrap
from collections.abc import Callable

from dragoman.errors import ConnectionLost
from dragoman.transports.process.child import ShutdownTimes
from dragoman.transports.process.warden import is_zombie

TIMEOUT = 20.0
"""Seconds until a wait is a failure. Generous, because the machine may be busy with other tests."""

QUICK = ShutdownTimes(flush_timeout=0.2, exit_timeout=0.1, terminate_timeout=0.2, kill_timeout=5.0)
"""For children that do not end by themselves."""


def python(program: str, *arguments: str) -> list[str]:
    """The command for a program given as text."""
    return [sys.executable, "-I", "-S", "-c", textwrap.dedent(program), *arguments]


class Inbox:
    """A receiver that keeps everything, and that can be waited on."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.failures: list[ConnectionLost] = []
        self._changed = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        assert data
        assert not self.failures, "data after the end"
        self.chunks.append(data)
        self._changed.set()

    def stream_ended(self, failure: ConnectionLost) -> None:
        self.failures.append(failure)
        self._changed.set()

    @property
    def bytes(self) -> bytes:
        return b"".join(self.chunks)

    @property
    def lines(self) -> list[str]:
        return self.bytes.decode().splitlines()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(TIMEOUT):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def line(self, number: int = 0) -> str:
        """Wait for a whole line, without what the stream may end with."""
        await self.until(lambda: self.bytes.count(b"\n") > number or bool(self.failures))
        return self.lines[number]

    async def end(self) -> ConnectionLost:
        """Wait for the end of the stream, which must come exactly once."""
        await self.until(lambda: bool(self.failures))
        assert len(self.failures) == 1
        return self.failures[0]


def wait_dead(pid: int) -> None:
    """Block until a process is dead, reaped or not."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        assert poll.poll(TIMEOUT * 1000), f"process {pid} does not die"
    finally:
        os.close(fd)


def is_dead(pid: int) -> bool:
    """Whether a process is dead now."""
    return is_zombie(pid)
