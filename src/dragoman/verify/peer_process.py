"""Start or connect to the peer under verification, and observe how its process exits.

Until the handshake succeeds, the process is ended with a signal and not by closing its stdin: at
end of input, two known programs send what they have read to a model. Child processes that it leaves
behind are counted before they are killed (on Linux). `transports` starts and ends processes.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dragoman.transports import connect_unix, connect_websocket
from dragoman.transports.base import Stream
from dragoman.transports.process.child import ChildProcess, ShutdownTimes
from dragoman.transports.process.strays import find_strays
from dragoman.transports.process.stream import STDERR_TAIL_SIZE, StderrTail, start_stream


@dataclass(frozen=True, slots=True)
class ExitBehaviour:
    """How a process reacted to the end of its input."""

    exited: bool
    code: int | None = None
    signal: int | None = None
    survivors: int | None = None
    """Number of child processes left behind; None if it cannot be determined."""


class PeerProcess:
    """A stream to the peer, and the process behind it if we started one."""

    def __init__(self, stream: Stream, child: ChildProcess | None = None) -> None:
        self.stream = stream
        self.child = child
        self._survivors: int | None = None
        if child is not None:
            self._farewell = child.farewell
            # Until the handshake is done, the shutdown starts with a signal and not by closing
            # stdin.
            child.farewell = None
            told = child.on_exit

            def exited() -> None:
                if sys.platform == "linux":
                    self._survivors = len(set(find_strays(child.mark)) - {child.pid})
                if told is not None:
                    told()

            child.on_exit = exited

    def proved(self) -> None:
        """Record that the handshake succeeded: from now on the shutdown starts by closing stdin."""
        if self.child is not None:
            self.child.farewell = self._farewell

    def stderr_tail(self) -> str:
        tail = getattr(self.stream, "stderr_tail", None)
        return str(tail()).strip() if callable(tail) else ""

    async def end_input(self, timeout: float) -> ExitBehaviour:
        """Close the peer's stdin and return how its process reacts within the timeout. The caller
        must still close the stream."""
        assert self.child is not None and self._farewell is not None
        try:
            async with asyncio.timeout(timeout):
                await self._farewell()
                await self.child.wait_exited()
        except TimeoutError:
            return ExitBehaviour(exited=False)
        return ExitBehaviour(
            exited=True,
            code=self.child.exit_code,
            signal=self.child.signal,
            survivors=self._survivors,
        )


def start(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    inherit: Iterable[str],
    times: ShutdownTimes,
) -> PeerProcess:
    """Start the peer. Nothing is awaited, so that a cancel cannot lose the process."""
    tail = StderrTail(STDERR_TAIL_SIZE)
    return PeerProcess(
        *start_stream(argv, tail=tail, cwd=cwd, env=env, inherit=inherit, times=times)
    )


async def reach(address: str, *, codex: bool) -> PeerProcess:
    """Connect to a peer that is already running. `codex` says that the peer speaks the dialect
    codex, which uses WebSocket on a Unix socket too."""
    if address.startswith("unix:"):
        path = address.removeprefix("unix:").removeprefix("//")
        if codex:
            # The app-server speaks WebSocket on its Unix socket too.
            return PeerProcess(await connect_websocket("ws://localhost/", unix_path=path))
        return PeerProcess(await connect_unix(path))
    return PeerProcess(await connect_websocket(address))
