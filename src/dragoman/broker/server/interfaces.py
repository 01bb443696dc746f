"""Protocols between the broker process and the broker that it runs.

`BrokerHost`: what `process` provides. `BrokerServer`: what `broker` implements.
"""

from __future__ import annotations

from typing import Protocol

from dragoman.transports.base import Stream


class BrokerHost(Protocol):
    """The process around a broker."""

    def release(self) -> None:
        """Take no new caller and give the name free; who is connected stays. Idempotent."""

    def peer_started(self, pid: int) -> None:
        """A process of the peer lives: write it down, for the case that we are killed."""

    def peer_ended(self, pid: int) -> None:
        """That process is gone, with all that it left."""

    def idle_changed(self, idle: bool) -> None:
        """No turn runs or waits and no caller is connected, or that is over."""

    def keep_for(self, ttl: float) -> None:
        """From now on stay this many seconds when idle."""


class BrokerServer(Protocol):
    """A broker as its process sees it."""

    async def serve(self, stream: Stream) -> None:
        """Serve one caller until it has gone."""

    async def run(self) -> None:
        """Keep the peer until the broker is to end; then everything is closed."""

    def stop(self, *, drain: bool) -> None:
        """End `run`; with `drain` not before the turns that run or wait have ended."""
