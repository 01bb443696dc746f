"""Descriptors that cannot be polled. What both kinds of pipes do alike is in `test_pipes`."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

from dragoman.transports.base import READ_SIZE
from dragoman.transports.pipes import KeepAlive, open_read_pipe, open_write_pipe
from dragoman.transports.threaded_pipes import ThreadedReadPipe, ThreadedWritePipe
from tests.aio import aio
from tests.unit.transports.test_pipes import TIMEOUT, Reading, ignore, nothing_left, turns

__all__ = ["nothing_left"]


@aio
async def test_a_threaded_read_that_fails_ends_with_the_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    reading = Reading()
    pipe = ThreadedReadPipe(writer, reading.data, reading.end)
    pipe.start()
    await reading.until_end()
    assert [error and error.errno for error in reading.ends] == [errno.EBADF]


@aio
async def test_a_regular_file_is_read_to_its_end(tmp_path: Path) -> None:
    text = os.urandom(3 * READ_SIZE + 17)
    (tmp_path / "file").write_bytes(text)
    reading = Reading()
    pipe = open_read_pipe(os.open(tmp_path / "file", os.O_RDONLY), reading.data, reading.end)
    assert isinstance(pipe, ThreadedReadPipe)
    pipe.start()
    await reading.until_end()
    assert reading.bytes == text


@aio
async def test_a_reading_thread_is_never_far_ahead_of_a_slow_consumer(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * (64 * READ_SIZE))
    fd = os.open(tmp_path / "file", os.O_RDONLY)
    reading = Reading()
    pipe = open_read_pipe(fd, reading.data, reading.end)
    pipe.pause()
    pipe.start()
    await turns(50)
    assert os.lseek(fd, 0, os.SEEK_CUR) <= 8 * READ_SIZE
    pipe.resume()
    await reading.until_end()
    assert len(reading.bytes) == 64 * READ_SIZE


def test_a_thread_outlives_its_loop_without_complaint() -> None:
    reader, writer = os.pipe()

    async def main() -> None:
        reading = Reading()
        open_read_pipe(reader, reading.data, reading.end, threaded=True).start()

    asyncio.run(main())
    os.write(writer, b"nobody listens")
    os.close(writer)


@aio
async def test_a_regular_file_is_written_behind_a_thread(tmp_path: Path) -> None:
    fd = os.open(tmp_path / "file", os.O_CREAT | os.O_WRONLY)
    pipe = open_write_pipe(fd, ignore)
    assert isinstance(pipe, ThreadedWritePipe)
    pipe.write(b"one ")
    pipe.write(b"two")
    async with asyncio.timeout(TIMEOUT):
        await pipe.aclose(TIMEOUT)
    assert (tmp_path / "file").read_bytes() == b"one two"


@aio
async def test_a_keep_alive_is_written_even_while_the_loop_is_blocked() -> None:
    reader, writer = os.pipe()
    pipe = open_write_pipe(writer, ignore, keep_alive=KeepAlive(0.01, b"\n"))
    assert isinstance(pipe, ThreadedWritePipe)
    pipe.write(b"message\n")
    # A blocking read: the loop does nothing meanwhile.
    with os.fdopen(reader, "rb", buffering=0) as file:
        assert [file.readline() for _ in range(4)] == [b"message\n", b"\n", b"\n", b"\n"]
    await pipe.aclose(TIMEOUT)


@aio
async def test_a_keep_alive_is_never_within_a_message() -> None:
    reader, writer = os.pipe()
    pipe = open_write_pipe(writer, ignore, keep_alive=KeepAlive(0.001, b"\n"))
    # Longer than what fits into the pipe, so that each write blocks for a while.
    messages = [bytes([number]) * 300_000 + b"\n" for number in (1, 2, 3)]
    with os.fdopen(reader, "rb") as file:
        for message in messages:
            pipe.write(message)
            while (line := await asyncio.to_thread(file.readline)) == b"\n":
                pass
            assert line == message
    await pipe.aclose(TIMEOUT)
