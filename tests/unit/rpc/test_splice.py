"""Two streams, joined."""

from __future__ import annotations

import asyncio

from dragoman.errors import ConnectionLost
from dragoman.rpc.splice import join
from dragoman.transports.base import HIGH_WATER_SIZE
from dragoman.transports.memory import memory_pair
from tests.aio import aio

TIMEOUT = 10.0


class Ear:
    """Hears what arrives at one end."""

    def __init__(self) -> None:
        self.heard = b""
        self.over = asyncio.Event()
        self.news = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.heard += data
        self.news.set()

    def stream_ended(self, failure: ConnectionLost) -> None:
        self.over.set()
        self.news.set()

    async def until(self, size: int) -> bytes:
        async with asyncio.timeout(TIMEOUT):
            while len(self.heard) < size and not self.over.is_set():
                self.news.clear()
                await self.news.wait()
        return self.heard


@aio
async def test_what_is_said_on_one_end_is_heard_on_the_other_and_one_end_ends_both() -> None:
    editor, near = memory_pair()
    far, broker = memory_pair()
    left, right = Ear(), Ear()
    editor.start(left)
    broker.start(right)
    async with asyncio.TaskGroup() as group:
        group.create_task(join(near, far))
        editor.write(b"question\n")
        assert await right.until(9) == b"question\n"
        broker.write(b"answer\n")
        assert await left.until(7) == b"answer\n"
        await editor.aclose()
        async with asyncio.timeout(TIMEOUT):
            await right.over.wait()
    await broker.aclose()


@aio
async def test_a_side_that_does_not_read_holds_the_other_back_and_loses_nothing() -> None:
    editor, near = memory_pair()
    far, broker = memory_pair()
    left, right = Ear(), Ear()
    editor.start(left)
    broker.start(right)
    broker.pause_reading()
    data = (b"x" * 1023 + b"\n") * (8 * HIGH_WATER_SIZE // 1024)
    async with asyncio.TaskGroup() as group:
        joined = group.create_task(join(near, far))
        editor.write(data)
        for _ in range(100):
            await asyncio.sleep(0)
        assert not joined.done()
        broker.resume_reading()
        assert await right.until(len(data)) == data
        await editor.aclose()
    await broker.aclose()
