"""The pair in memory; what every stream promises is proved in the contract suite."""

from __future__ import annotations

import asyncio

import pytest

from dragoman.errors import (
    ConnectionBroken,
    ConnectionClosed,
    ConnectionEnded,
    ConnectionLost,
    UsageError,
)
from dragoman.transports.base import HIGH_WATER_SIZE, READ_SIZE
from dragoman.transports.memory import BUFFER_SIZE, line_pair, memory_pair
from tests.aio import aio

TURNS = 10
"""More turns of the loop than any delivery here needs."""


class Recorder:
    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.ends: list[ConnectionLost] = []

    def data_received(self, data: bytes) -> None:
        assert not self.ends
        self.chunks.append(data)

    def stream_ended(self, failure: ConnectionLost) -> None:
        self.ends.append(failure)


async def turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


@aio
async def test_a_write_is_delivered_in_a_later_turn_and_small_writes_arrive_together() -> None:
    ours, theirs = memory_pair()
    heard = Recorder()
    theirs.start(heard)
    ours.write(b"one\n")
    ours.write(b"two\n")
    assert heard.chunks == []
    await turns()
    assert heard.chunks == [b"one\ntwo\n"]


@aio
async def test_what_was_written_before_the_start_is_kept() -> None:
    ours, theirs = memory_pair()
    ours.write(b"early\n")
    await turns()
    heard = Recorder()
    theirs.start(heard)
    await turns()
    assert heard.chunks == [b"early\n"]


@aio
async def test_one_turn_delivers_about_one_read_and_keeps_big_writes_whole() -> None:
    ours, theirs = memory_pair()
    heard = Recorder()
    theirs.start(heard)
    ours.write(b"a" * (READ_SIZE - 1))
    ours.write(b"bb")
    ours.write(b"c" * (READ_SIZE * 2))
    await turns()
    assert [len(chunk) for chunk in heard.chunks] == [READ_SIZE - 1, 2, READ_SIZE * 2]


@aio
async def test_a_paused_reader_holds_the_writer_in_drain_until_it_resumes() -> None:
    ours, theirs = memory_pair()
    heard = Recorder()
    theirs.start(heard)
    theirs.pause_reading()
    ours.write(b"x" * (BUFFER_SIZE + HIGH_WATER_SIZE))
    assert ours.unsent_size == HIGH_WATER_SIZE
    async with asyncio.timeout(5):
        await ours.drain()
    ours.write(b"y")
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(ours.drain())
        await turns()
        assert not waiting.done()
        assert heard.chunks == []
        theirs.resume_reading()
        async with asyncio.timeout(5):
            await waiting
    await turns()
    assert ours.unsent_size == 0
    assert sum(map(len, heard.chunks)) == BUFFER_SIZE + HIGH_WATER_SIZE + 1


@aio
async def test_a_pause_holds_a_delivery_that_was_on_its_way() -> None:
    ours, theirs = memory_pair()
    heard = Recorder()
    theirs.start(heard)
    ours.write(b"on its way\n")
    theirs.pause_reading()
    await turns()
    assert heard.chunks == []
    theirs.resume_reading()
    await turns()
    assert heard.chunks == [b"on its way\n"]


@aio
async def test_the_end_waits_behind_the_data_and_the_pause() -> None:
    ours, theirs = memory_pair()
    heard = Recorder()
    theirs.start(heard)
    theirs.pause_reading()
    ours.write(b"last\n")
    ours.close()
    await turns()
    assert (heard.chunks, heard.ends) == ([], [])
    theirs.write(b"nobody reads this\n")
    assert theirs.unsent_size == 0
    theirs.resume_reading()
    await turns()
    assert heard.chunks == [b"last\n"]
    assert [type(end) for end in heard.ends] == [ConnectionEnded]
    with pytest.raises(ConnectionEnded):
        theirs.write(b"too late\n")


@aio
async def test_a_broken_link_refuses_writes_at_once_and_fails_both_ends_after_their_data() -> None:
    ours, theirs = memory_pair()
    here, there = Recorder(), Recorder()
    ours.start(here)
    theirs.start(there)
    ours.write(b"arrived\n")
    ours.break_link("the cable was cut")
    with pytest.raises(ConnectionBroken, match="cable"):
        ours.write(b"more\n")
    with pytest.raises(ConnectionBroken):
        await theirs.drain()
    await turns()
    assert there.chunks == [b"arrived\n"]
    assert [type(end) for end in here.ends + there.ends] == [ConnectionBroken, ConnectionBroken]


@aio
async def test_a_writer_waiting_in_drain_gets_the_error_of_a_broken_link() -> None:
    ours, theirs = memory_pair()
    ours.start(Recorder())
    ours.write(b"x" * (BUFFER_SIZE + HIGH_WATER_SIZE + 1))

    async def drain() -> None:
        with pytest.raises(ConnectionBroken):
            await ours.drain()

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        group.create_task(drain())
        await turns()
        theirs.break_link()


@aio
async def test_a_stream_started_after_its_close_still_hears_its_end() -> None:
    ours, _theirs = memory_pair()
    await ours.aclose()
    heard = Recorder()
    ours.start(heard)
    await turns()
    assert [type(end) for end in heard.ends] == [ConnectionClosed]


@aio
async def test_a_second_start_is_refused() -> None:
    ours, _theirs = memory_pair()
    ours.start(Recorder())
    with pytest.raises(UsageError):
        ours.start(Recorder())


@aio
async def test_lines_stay_apart_and_are_the_same_objects() -> None:
    ours, theirs = line_pair()
    heard = Recorder()
    theirs.start(heard)
    lines = [b"one", b"two"]
    ours.write_lines(lines, 6)
    ours.write(b"three\nfour\n")
    await turns()
    came: list[object] = list(heard.chunks)
    assert came == [lines, [b"three", b"four"]]
    assert came[0] is lines
    assert ours.unsent_size == 0
