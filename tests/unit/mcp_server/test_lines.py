"""What arrives on a stream, as lines."""

from __future__ import annotations

import asyncio
import os

import pytest

from dragoman.mcp_server import lines as module
from dragoman.mcp_server.lines import HIGH_WATER, Lines
from dragoman.transports.duplex import DuplexStream
from dragoman.transports.memory import memory_pair
from tests.aio import aio


@aio
async def test_every_line_is_reported_at_once_and_kept_until_it_is_taken() -> None:
    near, far = memory_pair()
    told: asyncio.Queue[bytes] = asyncio.Queue()
    lines = Lines(far, told.put_nowait)
    near.write(b"one\ntw")
    near.write(b"o\n")
    async with asyncio.timeout(5):
        assert [await told.get(), await told.get()] == [b"one", b"two"]
        assert await lines.next() == [b"one", b"two"]
        await near.aclose()
        assert await lines.next() is None
    assert lines.gone
    await far.aclose()


@aio
async def test_a_client_is_held_back_if_its_lines_are_not_taken() -> None:
    near, far = memory_pair()
    held = asyncio.Event()
    count = 0

    def tell(line: bytes) -> None:
        nonlocal count
        count += 1
        if count > HIGH_WATER:
            held.set()

    lines = Lines(far, tell)
    for _ in range(100):
        near.write(b"x" * 9_000 + b"\n")
    async with asyncio.timeout(5):
        await held.wait()
        assert near.unsent_size > 0 and count < 100
        taken = 0
        while taken < 100:
            taken += len(await lines.next() or ())
    assert taken == count == 100
    await near.aclose()
    await far.aclose()


@aio
async def test_the_end_of_the_input_gives_the_last_line_and_is_not_the_end_of_the_client() -> None:
    read_fd, theirs = os.pipe()
    out, write_fd = os.pipe()
    stream = DuplexStream(read_fd, write_fd)
    lines = Lines(stream)
    os.write(theirs, b"the last")
    os.close(theirs)
    async with asyncio.timeout(5):
        assert await lines.next() == [b"the last"]
        while await lines.next() is not None:
            pass
    assert not lines.gone
    gone: list[bool] = []
    lines.on_gone = lambda: gone.append(True)
    await stream.aclose()
    assert lines.gone and gone == [True]
    os.close(out)


@aio
async def test_a_line_that_is_too_long_is_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "MAX_LINE_SIZE", 10)
    near, far = memory_pair()
    lines = Lines(far)
    near.write(b"x" * 20)
    async with asyncio.timeout(5):
        assert await lines.next() is None
    assert lines.gone and len(caplog.messages) == 1
    await near.aclose()
    await far.aclose()
