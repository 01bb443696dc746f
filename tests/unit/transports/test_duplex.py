"""Two pipes as one stream: what happens when one direction ends or breaks before the other."""

from __future__ import annotations

import asyncio
import os
import socket

import pytest

from dragoman.errors import (
    ConnectionBroken,
    ConnectionClosed,
    ConnectionEnded,
    ConnectionLost,
    UsageError,
)
from dragoman.transports import duplex
from dragoman.transports.base import HIGH_WATER_SIZE
from dragoman.transports.duplex import DuplexStream
from tests.aio import aio


class Recorder:
    def __init__(self) -> None:
        self.data = b""
        self.ends: list[ConnectionLost] = []
        self.arrived = asyncio.Event()
        self.ended = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        assert not self.ends
        self.data += data
        self.arrived.set()

    def stream_ended(self, failure: ConnectionLost) -> None:
        self.ends.append(failure)
        self.ended.set()


class Pipes:
    """A stream of ours over two pipes, and their two ends as plain descriptors."""

    def __init__(self) -> None:
        read_fd, self.in_fd = os.pipe()
        self.out_fd, write_fd = os.pipe()
        self.stream = DuplexStream(read_fd, write_fd)
        self.heard = Recorder()

    async def aclose(self) -> None:
        await self.stream.aclose()
        for fd in (self.in_fd, self.out_fd):
            try:
                os.close(fd)
            except OSError:
                continue


def open_fds() -> int:
    return len(os.listdir("/proc/self/fd"))


@aio
async def test_nothing_is_delivered_before_the_start() -> None:
    pipes = Pipes()
    os.write(pipes.in_fd, b"early\n")
    await asyncio.sleep(0)
    assert pipes.heard.data == b""
    pipes.stream.start(pipes.heard)
    async with asyncio.timeout(5):
        await pipes.heard.arrived.wait()
    assert pipes.heard.data == b"early\n"
    with pytest.raises(UsageError):
        pipes.stream.start(pipes.heard)
    await pipes.aclose()


@aio
async def test_a_write_error_lets_their_last_words_and_their_end_come_first() -> None:
    pipes = Pipes()
    os.close(pipes.out_fd)
    os.write(pipes.in_fd, b"last words\n")
    with pytest.raises(ConnectionBroken):
        pipes.stream.write(b"x\n")
    os.close(pipes.in_fd)
    pipes.stream.start(pipes.heard)
    async with asyncio.timeout(5):
        await pipes.heard.ended.wait()
    assert pipes.heard.data == b"last words\n"
    assert [type(end) for end in pipes.heard.ends] == [ConnectionEnded]
    await pipes.aclose()


@aio
async def test_a_write_error_ends_the_stream_as_broken_if_their_end_does_not_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(duplex, "BROKEN_TIMEOUT", 0.01)
    pipes = Pipes()
    pipes.stream.start(pipes.heard)
    os.close(pipes.out_fd)
    with pytest.raises(ConnectionBroken):
        pipes.stream.write(b"x\n")
    async with asyncio.timeout(5):
        await pipes.heard.ended.wait()
    assert [type(end) for end in pipes.heard.ends] == [ConnectionBroken]
    await pipes.aclose()
    assert len(pipes.heard.ends) == 1


@aio
async def test_a_paused_stream_is_not_ended_as_broken_over_what_it_has_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(duplex, "BROKEN_TIMEOUT", 0.0)
    pipes = Pipes()
    pipes.stream.start(pipes.heard)
    pipes.stream.pause_reading()
    os.close(pipes.out_fd)
    os.write(pipes.in_fd, b"last words\n")
    os.close(pipes.in_fd)
    with pytest.raises(ConnectionBroken):
        pipes.stream.write(b"x\n")
    for _ in range(10):
        await asyncio.sleep(0)
    assert pipes.heard.ends == []
    pipes.stream.resume_reading()
    async with asyncio.timeout(5):
        await pipes.heard.ended.wait()
    assert pipes.heard.data == b"last words\n"
    await pipes.aclose()


@aio
async def test_a_stream_not_started_yet_keeps_their_last_words_after_a_write_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(duplex, "BROKEN_TIMEOUT", 0.0)
    pipes = Pipes()
    os.close(pipes.out_fd)
    with pytest.raises(ConnectionBroken):
        pipes.stream.write(b"x\n")
    for _ in range(10):
        await asyncio.sleep(0)
    os.write(pipes.in_fd, b"last words\n")
    os.close(pipes.in_fd)
    pipes.stream.start(pipes.heard)
    async with asyncio.timeout(5):
        await pipes.heard.ended.wait()
    assert pipes.heard.data == b"last words\n"
    await pipes.aclose()


@aio
async def test_drain_tells_of_a_write_error_although_nothing_is_unsent() -> None:
    pipes = Pipes()
    pipes.stream.start(pipes.heard)
    os.close(pipes.out_fd)
    with pytest.raises(ConnectionBroken):
        pipes.stream.write(b"x\n")
    with pytest.raises(ConnectionBroken):
        await pipes.stream.drain()
    await pipes.aclose()


@aio
async def test_their_end_wakes_a_writer_that_waits_for_room() -> None:
    pipes = Pipes()
    pipes.stream.start(pipes.heard)
    pipes.stream.write(b"x" * (HIGH_WATER_SIZE + 2 * 1024 * 1024))

    async def drain() -> None:
        with pytest.raises(ConnectionEnded):
            await pipes.stream.drain()

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        waiting = group.create_task(drain())
        await asyncio.sleep(0)
        assert not waiting.done()
        os.close(pipes.in_fd)
    with pytest.raises(ConnectionEnded):
        pipes.stream.write(b"more\n")
    os.close(pipes.out_fd)
    await pipes.aclose()


@aio
async def test_closing_sends_what_was_written_while_dropping_what_arrives() -> None:
    ours, theirs = socket.socketpair()
    stream = DuplexStream(os.dup(ours.fileno()), ours.detach())
    heard = Recorder()
    stream.start(heard)
    stream.pause_reading()
    size = 1024 * 1024
    stream.write(b"x" * size)

    def other_side() -> int:
        # It reads only after it has got rid of its own bytes, so both buffers are full at first.
        theirs.sendall(b"y" * size)
        got = 0
        while data := theirs.recv(65536):
            got += len(data)
        return got

    reading = asyncio.get_running_loop().run_in_executor(None, other_side)
    async with asyncio.timeout(10):
        await stream.aclose()
        assert await reading == size
    theirs.close()
    assert heard.data == b""
    assert [type(end) for end in heard.ends] == [ConnectionClosed]


@aio
async def test_closing_gives_up_on_a_reader_that_does_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(duplex, "FLUSH_TIMEOUT", 0.01)
    before = open_fds()
    pipes = Pipes()
    pipes.stream.start(pipes.heard)
    pipes.stream.write(b"x" * (2 * 1024 * 1024))
    async with asyncio.timeout(5):
        await pipes.aclose()
    assert pipes.stream.unsent_size == 0
    assert open_fds() == before


@aio
async def test_a_cancelled_close_lets_go_at_once_and_frees_the_others_who_wait() -> None:
    before = open_fds()
    pipes = Pipes()
    pipes.stream.start(pipes.heard)
    pipes.stream.write(b"x" * (2 * 1024 * 1024))
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        first = group.create_task(pipes.stream.aclose())
        second = group.create_task(pipes.stream.aclose())
        await asyncio.sleep(0)
        assert not second.done()
        with pytest.raises(ConnectionClosed):
            pipes.stream.write(b"no\n")
        assert pipes.heard.ends == []
        first.cancel()
    assert [type(end) for end in pipes.heard.ends] == [ConnectionClosed]
    await pipes.aclose()
    assert open_fds() == before


@aio
async def test_a_socket_closed_with_bytes_unread_counts_as_ended_by_them() -> None:
    ours, theirs = socket.socketpair()
    stream = DuplexStream(os.dup(ours.fileno()), ours.detach())
    heard = Recorder()
    stream.write(b"never read\n")
    theirs.sendall(b"last words\n")
    theirs.close()
    stream.start(heard)
    async with asyncio.timeout(5):
        await heard.ended.wait()
    assert heard.data == b"last words\n"
    assert [type(end) for end in heard.ends] == [ConnectionEnded]
    await stream.aclose()


@aio
async def test_a_peer_that_closed_its_output_is_still_answered_if_requested() -> None:
    pipes = Pipes()
    over = asyncio.Event()
    pipes.stream.on_input_end = over.set
    pipes.stream.start(pipes.heard)
    os.write(pipes.in_fd, b"ask\n")
    os.close(pipes.in_fd)
    async with asyncio.timeout(5):
        await over.wait()
    assert (pipes.heard.data, pipes.heard.ends) == (b"ask\n", [])
    pipes.stream.write(b"answer\n")
    await pipes.stream.drain()
    assert os.read(pipes.out_fd, 100) == b"answer\n"
    await pipes.aclose()
    assert [type(end) for end in pipes.heard.ends] == [ConnectionClosed]


@aio
async def test_a_peer_that_left_after_its_input_ended_ends_the_stream_without_a_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(duplex, "BROKEN_TIMEOUT", 0.01)
    pipes = Pipes()
    over = asyncio.Event()
    pipes.stream.on_input_end = over.set
    pipes.stream.start(pipes.heard)
    os.close(pipes.in_fd)
    async with asyncio.timeout(5):
        await over.wait()
        os.close(pipes.out_fd)
        await pipes.heard.ended.wait()
    assert [type(end) for end in pipes.heard.ends] == [ConnectionBroken]
    await pipes.aclose()
