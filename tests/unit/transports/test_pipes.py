from __future__ import annotations

import asyncio
import errno
import fcntl
import gc
import os
import pty
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dragoman.errors import ConnectionBroken, ConnectionClosed
from dragoman.transports import pipes
from dragoman.transports.base import HIGH_WATER_SIZE, READ_SIZE
from dragoman.transports.pipes import (
    MAX_READ_SIZE,
    PIPE_SIZE,
    READS_PER_CALLBACK,
    AnyReadPipe,
    AnyWritePipe,
    ReadPipe,
    WritePipe,
    needs_thread,
    open_read_pipe,
    open_write_pipe,
)
from tests.aio import aio
from tests.unit.rpc.other_side import until

TIMEOUT = 10.0

both = pytest.mark.parametrize("threaded", [False, True], ids=["polled", "threaded"])


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    before = set(os.listdir("/proc/self/fd"))
    yield
    for thread in threading.enumerate():
        if thread.name.startswith("dragoman-"):
            thread.join(TIMEOUT)
            assert not thread.is_alive(), f"{thread.name} was left behind"
    assert set(os.listdir("/proc/self/fd")) <= before


class Reading:
    """What a reading end delivered, and events to wait for."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.ends: list[OSError | None] = []
        self.changed = asyncio.Event()

    def data(self, data: bytes) -> None:
        assert data, "an empty delivery"
        assert not self.ends, "data after the end"
        self.chunks.append(data)
        self.changed.set()

    def end(self, error: OSError | None) -> None:
        self.ends.append(error)
        self.changed.set()

    @property
    def bytes(self) -> bytes:
        return b"".join(self.chunks)

    async def until(self, condition: Callable[[Reading], bool]) -> None:
        async with asyncio.timeout(TIMEOUT):
            while not condition(self):
                self.changed.clear()
                await self.changed.wait()

    async def until_end(self) -> None:
        await self.until(lambda reading: bool(reading.ends))


def ignore(error: OSError) -> None:
    raise AssertionError(f"unexpected: {error}")


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def fill(fd: int) -> int:
    """Write into a pipe until it takes no more, and leave it blocking as it was."""
    os.set_blocking(fd, False)
    size = 0
    while True:
        try:
            size += os.write(fd, b"f" * 65536)
        except BlockingIOError:
            os.set_blocking(fd, True)
            return size


# -- reading --------------------------------------------------------------------------------------


@both
@aio
async def test_what_is_written_arrives_and_the_end_is_reported_once(threaded: bool) -> None:
    reader, writer = os.pipe()
    reading = Reading()
    pipe = open_read_pipe(reader, reading.data, reading.end, threaded=threaded)
    os.write(writer, b"one")
    await turns(3)
    assert reading.chunks == [], "delivered before start"
    pipe.start()
    await reading.until(lambda r: r.bytes == b"one")
    os.write(writer, b"two")
    os.close(writer)
    await reading.until_end()
    assert reading.bytes == b"onetwo"
    await turns(3)
    assert reading.ends == [None]
    assert pipe.closed
    pipe.close()


@both
@aio
async def test_nothing_arrives_while_paused_and_nothing_is_lost(threaded: bool) -> None:
    reader, writer = os.pipe()
    reading = Reading()
    pipe = open_read_pipe(reader, reading.data, reading.end, threaded=threaded)
    pipe.pause()
    pipe.start()
    os.write(writer, b"early")
    await turns(5)
    assert reading.chunks == []
    pipe.resume()
    pipe.resume()
    await reading.until(lambda r: r.bytes == b"early")
    pipe.pause()
    pipe.pause()
    os.write(writer, b" late")
    os.close(writer)
    await turns(5)
    assert reading.bytes == b"early"
    assert reading.ends == []
    pipe.resume()
    await reading.until_end()
    assert reading.bytes == b"early late"
    pipe.pause()
    pipe.resume()


@both
@aio
async def test_a_pause_out_of_the_delivery_holds_back_the_next(threaded: bool) -> None:
    reader, writer = os.pipe()
    reading = Reading()
    pipe: AnyReadPipe

    def data(chunk: bytes) -> None:
        reading.data(chunk)
        pipe.pause()

    pipe = open_read_pipe(reader, data, reading.end, threaded=threaded)
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4 * READ_SIZE)
    os.write(writer, b"x" * (3 * READ_SIZE))
    pipe.start()
    await reading.until(lambda r: bool(r.chunks))
    await turns(5)
    assert len(reading.chunks) == 1
    os.close(writer)
    pipe.on_data = reading.data
    pipe.resume()
    await reading.until_end()
    assert len(reading.bytes) == 3 * READ_SIZE


@both
@aio
async def test_close_out_of_the_delivery_ends_it_without_a_word(threaded: bool) -> None:
    reader, writer = os.pipe()
    reading = Reading()
    pipe: AnyReadPipe

    def data(chunk: bytes) -> None:
        reading.data(chunk)
        pipe.close()

    pipe = open_read_pipe(reader, data, reading.end, threaded=threaded)
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4 * READ_SIZE)
    os.write(writer, b"x" * (3 * READ_SIZE))
    pipe.start()
    await reading.until(lambda r: bool(r.chunks))
    os.close(writer)
    await turns(5)
    assert len(reading.chunks) == 1
    assert reading.ends == []
    pipe.close()


@both
@aio
async def test_a_pipe_that_was_never_started_can_be_closed(threaded: bool) -> None:
    reader, writer = os.pipe()
    pipe = open_read_pipe(reader, Reading().data, Reading().end, threaded=threaded)
    pipe.close()
    pipe.close()
    assert pipe.closed
    with pytest.raises(BrokenPipeError):
        os.write(writer, b"x")
    os.close(writer)


@both
@aio
async def test_what_is_there_is_delivered_at_once_on_demand(threaded: bool) -> None:
    reader, writer = os.pipe()
    reading = Reading()
    pipe = open_read_pipe(reader, reading.data, reading.end, threaded=threaded)
    pipe.pause()
    pipe.start()
    os.write(writer, b"a rest")
    pipe.deliver_available(1024)
    assert reading.chunks == [], "a pause holds it"
    await turns(2)
    if threaded:
        # The thread hands it over when it runs; a first delivery shows that it did.
        pipe.resume()
        await reading.until(lambda r: bool(r.chunks))
    else:
        pipe.resume()
        pipe.deliver_available(1024)
    assert reading.bytes == b"a rest"
    os.close(writer)
    await reading.until_end()


@aio
async def test_delivery_on_demand_stops_at_its_limit_and_at_the_end() -> None:
    reader, writer = os.pipe()
    reading = Reading()
    pipe = ReadPipe(reader, reading.data, reading.end)
    pipe.start()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 1024 * 1024)
    os.write(writer, b"x" * (1024 * 1024))
    pipe.deliver_available(READ_SIZE)
    assert len(reading.bytes) == READ_SIZE
    os.close(writer)
    pipe.deliver_available(10 * 1024 * 1024)
    assert len(reading.bytes) == 1024 * 1024
    assert reading.ends == [None]


@aio
async def test_reads_grow_while_they_are_full_and_shrink_after(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # More than any time: nothing depends on the clock.
    monkeypatch.setattr(pipes, "GROW_TIMEOUT", 1e9)
    reader, writer = os.pipe()
    reading = Reading()
    pipe = ReadPipe(reader, reading.data, reading.end)
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, MAX_READ_SIZE)
    os.write(writer, b"x" * MAX_READ_SIZE)
    pipe.start()
    await reading.until(lambda r: len(r.bytes) == MAX_READ_SIZE)
    sizes = [len(chunk) for chunk in reading.chunks]
    assert sizes[:4] == [READ_SIZE, 2 * READ_SIZE, 4 * READ_SIZE, 8 * READ_SIZE]
    os.write(writer, b"y" * 10)
    await reading.until(lambda r: r.bytes.endswith(b"y" * 10))
    reading.chunks.clear()
    os.write(writer, b"z" * (3 * READ_SIZE))
    await reading.until(lambda r: len(r.bytes) == 3 * READ_SIZE)
    assert len(reading.chunks[0]) == READ_SIZE
    pipe.close()
    os.close(writer)


@aio
async def test_a_flood_lets_others_have_their_turn() -> None:
    reader, writer = os.pipe()
    reading = Reading()
    pipe = ReadPipe(reader, reading.data, reading.end)
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 1024 * 1024)
    os.set_blocking(writer, False)

    def data(chunk: bytes) -> None:
        reading.data(chunk)
        os.write(writer, b"x" * (1024 * 1024))  # never empty: the flood goes on forever

    pipe.on_data = data
    os.write(writer, b"x" * (1024 * 1024))
    pipe.start()
    await reading.until(lambda r: bool(r.chunks))
    await turns(3)
    assert len(reading.chunks) <= 5 * READS_PER_CALLBACK
    pipe.close()
    os.close(writer)


@pytest.mark.parametrize(
    ("grow_timeout", "slow_timeout"),
    [(1e9, 1e9), (-1.0, 1e9), (-1.0, -1.0)],
    ids=["fast", "many small messages", "slow"],
)
@aio
async def test_who_is_slow_to_take_full_reads_gets_small_ones_and_then_a_turn_apart(
    grow_timeout: float, slow_timeout: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Less than any time is slow, more than any time is fast: nothing depends on the clock.
    monkeypatch.setattr(pipes, "GROW_TIMEOUT", grow_timeout)
    monkeypatch.setattr(pipes, "SLOW_TIMEOUT", slow_timeout)
    loop = asyncio.get_running_loop()
    reader, writer = os.pipe()
    size = fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 16 * READ_SIZE)
    turn = 0
    chunks: list[tuple[int, int]] = []

    def next_turn() -> None:
        nonlocal turn
        turn += 1
        ticking[0] = loop.call_soon(next_turn)

    ticking = [loop.call_soon(next_turn)]
    reading = Reading()
    pipe = ReadPipe(reader, lambda data: chunks.append((turn, len(data))), reading.end)
    os.write(writer, b"x" * size)
    os.close(writer)
    pipe.start()
    await reading.until_end()
    ticking[0].cancel()
    assert sum(size for _, size in chunks) == size
    if grow_timeout < 0:
        assert {size for _, size in chunks} == {READ_SIZE}
    else:
        assert max(size for _, size in chunks) > READ_SIZE
    if slow_timeout < 0:
        assert len({turn for turn, _ in chunks}) == len(chunks)
    else:
        assert len({turn for turn, _ in chunks}) < len(chunks)


@aio
async def test_a_read_that_fails_ends_with_the_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    reading = Reading()
    pipe = ReadPipe(writer, reading.data, reading.end)
    pipe.start()
    await reading.until_end()
    assert [error and error.errno for error in reading.ends] == [errno.EBADF]


@both
@aio
async def test_a_terminal_whose_other_side_is_gone_is_at_its_end(threaded: bool) -> None:
    ours, theirs = pty.openpty()
    reading = Reading()
    pipe = open_read_pipe(ours, reading.data, reading.end, threaded=threaded)
    os.write(theirs, b"bye")
    pipe.start()
    await reading.until(lambda r: r.bytes == b"bye")
    os.close(theirs)
    await reading.until_end()
    assert reading.ends == [None]


def test_a_pipe_that_was_forgotten_says_so_and_is_closed() -> None:
    reader, writer = os.pipe()

    async def main() -> None:
        ReadPipe(reader, Reading().data, Reading().end)
        WritePipe(writer, ignore)

    with pytest.warns(ResourceWarning, match="was not closed"):
        asyncio.run(main())
        gc.collect()
    with pytest.raises(OSError):
        os.fstat(writer)


# -- writing --------------------------------------------------------------------------------------


def open_pair(threaded: bool) -> tuple[int, AnyWritePipe, list[OSError]]:
    reader, writer = os.pipe()
    broken: list[OSError] = []
    return reader, open_write_pipe(writer, broken.append, threaded=threaded), broken


@aio
async def test_a_short_write_is_sent_at_once() -> None:
    reader, pipe, _ = open_pair(False)
    pipe.write(b"at once")
    assert pipe.unsent_size == 0
    assert os.read(reader, 100) == b"at once"
    pipe.close()
    pipe.close()
    assert pipe.closed
    assert os.read(reader, 100) == b""
    os.close(reader)


@both
@aio
async def test_what_the_pipe_does_not_take_is_sent_later_in_order(threaded: bool) -> None:
    reader, pipe, broken = open_pair(threaded)
    long = os.urandom(3 * 1024 * 1024)
    short = [b"%d\n" % number for number in range(1000)]
    pipe.write(long)
    for line in short:
        pipe.write(line)
    pipe.write(b"")
    assert pipe.unsent_size > 2 * 1024 * 1024
    reading = Reading()
    source = ReadPipe(reader, reading.data, reading.end)
    source.start()
    async with asyncio.timeout(TIMEOUT):
        await pipe.drain()
        assert pipe.unsent_size <= HIGH_WATER_SIZE
        await pipe.aclose(TIMEOUT)
    await reading.until_end()
    assert reading.bytes == long + b"".join(short)
    assert pipe.unsent_size == 0
    assert broken == []


@both
@aio
async def test_drain_does_not_wait_below_the_mark(threaded: bool) -> None:
    reader, pipe, _ = open_pair(threaded)
    pipe.write(b"x" * (HIGH_WATER_SIZE - 1))
    await pipe.drain()
    if not threaded:
        assert pipe.unsent_size > 0
    reading = Reading()
    source = ReadPipe(reader, reading.data, reading.end)
    source.start()
    await pipe.aclose(TIMEOUT)
    await reading.until_end()


@both
@aio
async def test_a_lost_reader_is_reported_once_and_every_use_raises(threaded: bool) -> None:
    reader, pipe, broken = open_pair(threaded)
    pipe.write(b"x" * (4 * 1024 * 1024))
    waiting = [asyncio.get_running_loop().create_task(pipe.drain()) for _ in range(2)]
    await turns(2)
    os.close(reader)
    async with asyncio.timeout(TIMEOUT):
        failures = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(failure) for failure in failures] == [ConnectionBroken, ConnectionBroken]
    assert pipe.unsent_size == 0
    with pytest.raises(ConnectionBroken):
        pipe.write(b"more")
    with pytest.raises(ConnectionBroken):
        await pipe.drain()
    await turns(3)
    assert [error.errno for error in broken] == [errno.EPIPE]
    await pipe.aclose(TIMEOUT)


@aio
async def test_a_write_that_fails_at_once_raises_and_tells_later() -> None:
    reader, pipe, broken = open_pair(False)
    os.close(reader)
    with pytest.raises(ConnectionBroken):
        pipe.write(b"x")
    assert broken == [], "told from inside write"
    await turns(2)
    assert len(broken) == 1
    pipe.close()


@aio
async def test_a_pipe_closed_before_the_news_spreads_keeps_quiet() -> None:
    reader, pipe, broken = open_pair(False)
    os.close(reader)
    with pytest.raises(ConnectionBroken):
        pipe.write(b"x")
    pipe.close()
    await turns(2)
    assert broken == []


@both
@aio
async def test_close_wakes_those_who_drain(threaded: bool) -> None:
    reader, pipe, _ = open_pair(threaded)
    pipe.write(b"x" * (4 * 1024 * 1024))
    waiting = asyncio.get_running_loop().create_task(pipe.drain())
    await turns(2)
    pipe.close()
    assert pipe.unsent_size == 0
    async with asyncio.timeout(TIMEOUT):
        with pytest.raises(ConnectionClosed):
            await waiting
    with pytest.raises(ConnectionClosed):
        pipe.write(b"more")
    os.close(reader)


@both
@aio
async def test_a_reader_that_does_not_read_does_not_hold_up_the_close(threaded: bool) -> None:
    reader, pipe, _ = open_pair(threaded)
    pipe.write(b"x" * (4 * 1024 * 1024))
    async with asyncio.timeout(TIMEOUT):
        await pipe.aclose(0.01)
    assert pipe.closed
    os.close(reader)


@both
@aio
async def test_a_cancelled_drain_leaves_the_rest_in_order(threaded: bool) -> None:
    reader, pipe, _ = open_pair(threaded)
    pipe.write(b"x" * (2 * 1024 * 1024))
    waiting = asyncio.get_running_loop().create_task(pipe.drain())
    await turns(2)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    reading = Reading()
    source = ReadPipe(reader, reading.data, reading.end)
    source.start()
    async with asyncio.timeout(TIMEOUT):
        await pipe.aclose(TIMEOUT)
    await reading.until_end()
    assert len(reading.bytes) == 2 * 1024 * 1024


@both
@aio
async def test_a_cancelled_close_still_closes(threaded: bool) -> None:
    reader, pipe, _ = open_pair(threaded)
    pipe.write(b"x" * (4 * 1024 * 1024))
    closing = asyncio.get_running_loop().create_task(pipe.aclose(TIMEOUT))
    await turns(2)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert pipe.closed
    os.close(reader)


@both
@aio
async def test_a_writing_end_that_was_never_used_closes_its_descriptor(threaded: bool) -> None:
    reader, pipe, _ = open_pair(threaded)
    await pipe.aclose(TIMEOUT)
    assert os.read(reader, 1) == b""
    os.close(reader)


@aio
async def test_a_socket_serves_both_directions() -> None:
    left, right = socket.socketpair()
    reading = Reading()
    right.setblocking(False)
    source = open_read_pipe(right.detach(), reading.data, reading.end)
    pipe = open_write_pipe(left.detach(), ignore)
    assert isinstance(source, ReadPipe)
    assert isinstance(pipe, WritePipe)
    source.start()
    data = os.urandom(2 * 1024 * 1024)
    pipe.write(data)
    async with asyncio.timeout(TIMEOUT):
        await pipe.aclose(TIMEOUT)
    await reading.until_end()
    assert reading.bytes == data


@aio
async def test_a_shared_descriptor_gets_its_blocking_mode_back() -> None:
    reader, writer = os.pipe()
    shared_reader, shared_writer = os.dup(reader), os.dup(writer)
    source = ReadPipe(reader, Reading().data, Reading().end)
    source.start()
    pipe = WritePipe(writer, ignore)
    assert not os.get_blocking(shared_reader)
    assert not os.get_blocking(shared_writer)
    source.close()
    pipe.close()
    assert os.get_blocking(shared_reader)
    assert os.get_blocking(shared_writer)
    os.close(shared_reader)
    os.close(shared_writer)


@pytest.mark.skipif(sys.platform != "linux", reason="pipes have a size of their own only on Linux")
@aio
async def test_only_a_pipe_that_was_full_is_enlarged() -> None:
    reader, writer = os.pipe()
    pipe = WritePipe(writer, ignore)
    usual = fcntl.fcntl(writer, fcntl.F_GETPIPE_SZ)
    pipe.write(b"short")
    assert fcntl.fcntl(writer, fcntl.F_GETPIPE_SZ) == usual
    pipe.write(b"x" * (4 * 1024 * 1024))
    assert fcntl.fcntl(writer, fcntl.F_GETPIPE_SZ) == PIPE_SIZE
    pipe.close()
    os.close(reader)


@aio
async def test_a_full_pipe_at_the_first_write_loses_nothing() -> None:
    reader, writer = os.pipe()
    filled = fill(writer)
    pipe = WritePipe(writer, ignore)
    pipe.write(b"after")
    reading = Reading()
    source = ReadPipe(reader, reading.data, reading.end)
    source.start()
    await reading.until(lambda r: len(r.bytes) == filled + 5)
    assert reading.bytes.endswith(b"fafter")
    pipe.close()
    await reading.until_end()


# -- choosing -------------------------------------------------------------------------------------


def test_only_what_can_be_polled_is_polled(tmp_path: Path) -> None:
    left, right = socket.socketpair()
    reader, writer = os.pipe()
    ours, theirs = pty.openpty()
    null = os.open(os.devnull, os.O_RDWR)
    file = os.open(tmp_path / "file", os.O_CREAT | os.O_RDWR)
    answers = [needs_thread(fd) for fd in (left.fileno(), reader, writer, ours, theirs, null, file)]
    assert answers == [False, False, False, False, False, True, True]
    left.close()
    right.close()
    for fd in (reader, writer, ours, theirs, null, file):
        os.close(fd)


@aio
async def test_a_watched_end_that_is_only_half_closed_is_not_broken() -> None:
    ours, theirs = socket.socketpair()
    broken: list[OSError] = []
    pipe = WritePipe(ours.detach(), broken.append)
    pipe.watch()
    theirs.shutdown(socket.SHUT_WR)
    await until(lambda: not pipe._watching)
    pipe.write(b"still here\n")
    assert theirs.recv(100) == b"still here\n"
    assert broken == []
    theirs.close()
    pipe.close()


@pytest.mark.parametrize("kind", ["pipe", "socket"])
@aio
async def test_a_watched_end_breaks_when_its_reader_goes(kind: str) -> None:
    if kind == "pipe":
        theirs, ours = os.pipe()
    else:
        one, two = socket.socketpair()
        theirs, ours = one.detach(), two.detach()
    broken: asyncio.Queue[OSError] = asyncio.Queue()
    pipe = WritePipe(ours, broken.put_nowait)
    pipe.watch()
    pipe.watch()
    os.close(theirs)
    async with asyncio.timeout(TIMEOUT):
        assert (await broken.get()).errno == errno.EPIPE
    with pytest.raises(ConnectionBroken):
        pipe.write(b"x")
    pipe.close()
