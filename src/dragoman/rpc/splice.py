"""Copy bytes in both directions between two streams until one of them ends.

Applies back-pressure: reading pauses while the other side does not read. `cli.broker_stdio` uses
it to connect an editor's stdio to a broker's socket.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from dragoman.errors import ConnectionLost
from dragoman.rpc.tasks import TaskOwner
from dragoman.transports.base import HIGH_WATER_SIZE, Stream


class _Copy:
    """Writes to one stream what arrives on another."""

    def __init__(
        self, source: Stream, target: Stream, tasks: TaskOwner, over: asyncio.Event
    ) -> None:
        self._source = source
        self._target = target
        self._tasks = tasks
        self._over = over
        self._waiting = False

    def data_received(self, data: bytes) -> None:
        try:
            self._target.write(data)
        except ConnectionLost:
            self._over.set()
            return
        if self._target.unsent_size > HIGH_WATER_SIZE and not self._waiting:
            self._waiting = True
            self._source.pause_reading()
            self._tasks.start(self._go_on(), "wait until the other side reads")

    def stream_ended(self, failure: ConnectionLost) -> None:
        self._over.set()

    async def _go_on(self) -> None:
        # As long as the other side takes: it is what holds this side back.
        with suppress(ConnectionLost):
            await self._target.drain()
        self._waiting = False
        self._source.resume_reading()


async def join(near: Stream, far: Stream) -> None:
    """Copy in both directions until one of the two ends; then both are closed."""
    over = asyncio.Event()
    tasks = TaskOwner("joining two streams")
    try:
        far.start(_Copy(far, near, tasks, over))
        near.start(_Copy(near, far, tasks, over))
        await over.wait()
    finally:
        try:
            await tasks.aclose()
        finally:
            try:
                await near.aclose()
            finally:
                await far.aclose()
