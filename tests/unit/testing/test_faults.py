"""Each fault strikes where it says, in its direction, and nothing else is changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.errors import (
    ConnectionBroken,
    ConnectionClosed,
    ConnectionEnded,
    ConnectionLost,
    UsageError,
)
from dragoman.testing.faults import (
    Cut,
    Fault,
    FaultyStream,
    Garbage,
    HalfClosed,
    Rechunk,
    Silent,
    Slow,
)
from dragoman.transports.base import HIGH_WATER_SIZE
from dragoman.transports.memory import BUFFER_SIZE, MemoryStream, memory_pair
from tests.aio import aio

LINE = b"0123456789\n"


class Recorder:
    def __init__(self, on_data: Callable[[bytes], None] | None = None) -> None:
        self.chunks: list[bytes] = []
        self.ends: list[ConnectionLost] = []
        self.on_data = on_data

    @property
    def data(self) -> bytes:
        return b"".join(self.chunks)

    def data_received(self, data: bytes) -> None:
        assert data
        assert not self.ends
        self.chunks.append(data)
        if self.on_data is not None:
            self.on_data(data)

    def stream_ended(self, failure: ConnectionLost) -> None:
        self.ends.append(failure)


class Scene:
    """A faulty stream that is ours, the plain twin of the stream inside it, and who listens."""

    def __init__(self, *faults: Fault) -> None:
        inner, self.theirs = memory_pair()
        self.inner: MemoryStream = inner
        self.ours = FaultyStream(inner, faults)
        self.here, self.there = Recorder(), Recorder()
        self.ours.start(self.here)
        self.theirs.start(self.there)


async def turns(count: int = 40) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@aio
async def test_without_faults_both_directions_pass_unchanged() -> None:
    scene = Scene()
    scene.ours.write(LINE)
    scene.theirs.write(LINE * 2)
    await turns()
    assert (scene.here.data, scene.there.data) == (LINE * 2, LINE)
    await scene.ours.aclose()
    await turns()
    assert [type(end) for end in scene.here.ends] == [ConnectionClosed]
    assert [type(end) for end in scene.there.ends] == [ConnectionEnded]


@aio
async def test_slow_delivers_a_few_bytes_per_turn_in_order() -> None:
    scene = Scene(Slow(size=4))
    scene.theirs.write(LINE)
    scene.theirs.close()
    await turns()
    assert scene.here.chunks == [b"0123", b"4567", b"89\n"]
    assert [type(end) for end in scene.here.ends] == [ConnectionEnded]


@aio
async def test_slow_leaves_a_turn_of_the_loop_between_two_pieces() -> None:
    scene = Scene(Slow())
    turn = 0
    seen: list[int] = []
    scene.here.on_data = lambda data: seen.append(turn)
    scene.theirs.write(LINE)
    for turn in range(40):  # noqa: B007 - the recorder reads it
        await asyncio.sleep(0)
    assert len(seen) == len(set(seen)) == len(LINE)


@aio
async def test_slow_outbound_counts_as_unsent_and_drain_waits_for_it() -> None:
    scene = Scene(Slow(size=HIGH_WATER_SIZE, direction="outbound"))
    scene.ours.write(b"x" * (3 * HIGH_WATER_SIZE))
    assert scene.ours.unsent_size == 3 * HIGH_WATER_SIZE
    async with asyncio.timeout(5):
        await scene.ours.drain()
    await turns()
    assert len(scene.there.data) == 3 * HIGH_WATER_SIZE
    assert scene.ours.unsent_size == 0


@aio
async def test_closing_sends_at_once_what_was_still_to_be_sent_slowly() -> None:
    scene = Scene(Slow(direction="outbound"))
    scene.ours.write(LINE)
    await scene.ours.aclose()
    await turns()
    assert scene.there.data == LINE
    assert [type(end) for end in scene.there.ends] == [ConnectionEnded]


@aio
async def test_a_slow_write_that_fails_later_is_reported_to_the_next_writer() -> None:
    scene = Scene(Slow(direction="outbound"))
    scene.ours.write(LINE)
    scene.inner.break_link()
    await turns(2)
    with pytest.raises(ConnectionBroken):
        scene.ours.write(LINE)
    await turns()
    assert [type(end) for end in scene.here.ends] == [ConnectionBroken]


@pytest.mark.parametrize("at", [0, 1, 7, len(LINE), len(LINE) + 3])
@pytest.mark.parametrize(
    ("failure", "expected"),
    [("ended", ConnectionEnded), ("broken", ConnectionBroken), ("closed", ConnectionClosed)],
)
@aio
async def test_cut_inbound_delivers_exactly_the_bytes_before_it(
    at: int, failure: str, expected: type[ConnectionLost]
) -> None:
    scene = Scene(Cut(at=at, failure=failure))  # type: ignore[arg-type]
    scene.theirs.write(LINE)
    scene.theirs.write(LINE)
    await turns()
    assert scene.here.data == (LINE * 2)[:at]
    assert [type(end) for end in scene.here.ends] == [expected]
    with pytest.raises(expected):
        scene.ours.write(LINE)
    with pytest.raises(expected):
        await scene.ours.drain()
    assert [type(end) for end in scene.there.ends] == [ConnectionEnded]
    await scene.ours.aclose()
    assert len(scene.here.ends) == 1


@pytest.mark.parametrize("at", [0, 5, len(LINE)])
@aio
async def test_cut_outbound_sends_exactly_the_bytes_before_it(at: int) -> None:
    scene = Scene(Cut(at=at, failure="broken", direction="outbound"))
    scene.ours.write(LINE)
    assert scene.here.ends == []
    with pytest.raises(ConnectionBroken):
        scene.ours.write(LINE)
    await turns()
    assert scene.there.data == LINE[:at]
    assert [type(end) for end in scene.here.ends] == [ConnectionBroken]
    assert [type(end) for end in scene.there.ends] == [ConnectionEnded]


@pytest.mark.parametrize("at", [0, 4, len(LINE)])
@aio
async def test_garbage_appears_at_its_byte_once_and_the_rest_follows(at: int) -> None:
    inbound, outbound = Garbage(at=at, data=b"##"), Garbage(at=at, data=b"!!", direction="outbound")
    scene = Scene(inbound, outbound)
    for _ in range(2):
        scene.ours.write(LINE)
        scene.theirs.write(LINE)
    await turns()
    twice = LINE * 2
    assert scene.here.data == twice[:at] + b"##" + twice[at:]
    assert scene.there.data == twice[:at] + b"!!" + twice[at:]


@aio
async def test_garbage_at_byte_0_comes_without_waiting_for_a_first_byte() -> None:
    scene = Scene(Slow(), Garbage(at=0, data=b"##"))
    await turns()
    assert scene.here.data == b"##"


@aio
async def test_silent_takes_everything_and_passes_nothing_from_its_byte_on() -> None:
    scene = Scene(Silent(at=3), Silent(direction="outbound"))
    scene.ours.write(LINE)
    scene.theirs.write(LINE)
    scene.theirs.write(LINE)
    await turns()
    assert (scene.here.data, scene.there.data) == (LINE[:3], b"")
    assert scene.ours.unsent_size == 0
    assert scene.here.ends == []
    scene.theirs.close()
    await turns()
    assert [type(end) for end in scene.here.ends] == [ConnectionEnded]


@aio
async def test_half_closed_ends_their_side_and_still_takes_what_we_write() -> None:
    scene = Scene(HalfClosed(at=2))
    scene.theirs.write(LINE)
    await turns()
    assert scene.here.data == LINE[:2]
    assert [type(end) for end in scene.here.ends] == [ConnectionEnded]
    scene.ours.write(LINE)
    await scene.ours.drain()
    await turns()
    assert scene.there.data == LINE
    await scene.ours.aclose()
    assert len(scene.here.ends) == 1


@aio
async def test_faults_work_one_after_the_other_in_the_order_given() -> None:
    scene = Scene(Garbage(at=2, data=b"##"), Cut(at=5), Slow(size=2))
    scene.theirs.write(LINE)
    await turns()
    assert scene.here.chunks == [b"01", b"##", b"2"]
    assert [type(end) for end in scene.here.ends] == [ConnectionEnded]


@aio
async def test_a_pause_holds_slow_bytes_and_the_end_and_loses_nothing() -> None:
    scene = Scene(Slow(size=4))
    scene.here.on_data = lambda data: scene.ours.pause_reading()
    scene.theirs.write(LINE)
    scene.theirs.close()
    await turns()
    assert scene.here.chunks == [b"0123"]
    scene.ours.resume_reading()
    await turns()
    assert scene.here.chunks == [b"0123", b"4567"]
    scene.here.on_data = None
    scene.ours.resume_reading()
    await turns()
    assert scene.here.data == LINE
    assert [type(end) for end in scene.here.ends] == [ConnectionEnded]


@aio
async def test_a_pause_inside_a_delivery_holds_the_other_pieces_of_the_same_chunk() -> None:
    scene = Scene(Rechunk(cut=lambda data: [data[:1], data[1:]]))
    scene.here.on_data = lambda data: scene.ours.pause_reading()
    scene.theirs.write(LINE)
    await turns()
    assert scene.here.chunks == [b"0"]
    scene.ours.resume_reading()
    await turns()
    assert scene.here.data == LINE


@aio
async def test_a_slow_reader_holds_the_writer_of_the_other_side_back() -> None:
    scene = Scene(Slow(size=64 * 1024))
    total = 4 * (HIGH_WATER_SIZE + BUFFER_SIZE)
    scene.theirs.write(b"x" * total)
    scene.theirs.write(b"y" * total)
    await turns(2)
    assert scene.theirs.unsent_size > 0
    await turns(100)
    assert len(scene.here.data) == 2 * total


@aio
async def test_a_second_start_is_refused_and_a_late_one_hears_the_end() -> None:
    scene = Scene()
    with pytest.raises(UsageError):
        scene.ours.start(Recorder())
    late = FaultyStream(memory_pair()[0], [])
    await late.aclose()
    heard = Recorder()
    late.start(heard)
    await turns()
    assert [type(end) for end in heard.ends] == [ConnectionClosed]


def test_any_rechunking_keeps_the_bytes() -> None:
    with asyncio.Runner() as runner:

        @given(data=st.binary(min_size=1, max_size=60), cuts=st.lists(st.integers(0, 60)))
        def check(data: bytes, cuts: list[int]) -> None:
            def cut(chunk: bytes) -> list[bytes]:
                places = sorted({0, *(c for c in cuts if c < len(chunk)), len(chunk)})
                return [chunk[a:b] for a, b in zip(places, places[1:], strict=False)]

            async def pass_through() -> None:
                scene = Scene(Rechunk(cut=cut), Rechunk(cut=cut, direction="outbound"))
                scene.theirs.write(data)
                scene.ours.write(data)
                await turns(4)
                assert scene.here.chunks == cut(data)
                assert scene.there.data == data

            runner.run(pass_through())

        check()
