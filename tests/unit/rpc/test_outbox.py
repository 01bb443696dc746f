"""Lines leave together, soon and in order; a reader that does not read is noticed."""

from __future__ import annotations

import asyncio

import pytest

from dragoman.errors import ConnectionBroken, ConnectionLost, Overflow
from dragoman.rpc import outbox as outbox_module
from dragoman.rpc.outbox import FLUSH_SIZE, Outbox
from dragoman.rpc.tasks import TaskOwner
from dragoman.transports.base import HIGH_WATER_SIZE
from tests.aio import aio
from tests.unit.rpc.other_side import RecordingStream, soon, turns


def make() -> tuple[RecordingStream, Outbox, list[ConnectionLost]]:
    failures: list[ConnectionLost] = []
    stream = RecordingStream()
    return stream, Outbox(stream, failures.append), failures


@aio
async def test_lines_of_one_turn_leave_in_one_write() -> None:
    stream, outbox, _ = make()
    for number in range(100):
        outbox.put(b"%d" % number)
    assert stream.writes == []
    await turns(1)
    assert stream.writes == [b"".join(b"%d\n" % number for number in range(100))]


@aio
async def test_a_lone_line_leaves_within_one_turn() -> None:
    stream, outbox, _ = make()
    outbox.put(b"one")
    await turns(1)
    assert stream.writes == [b"one\n"]
    outbox.put(b"two")
    await turns(1)
    assert stream.writes == [b"one\n", b"two\n"]


@aio
async def test_many_lines_that_are_put_at_once_leave_like_those_that_are_put_singly() -> None:
    stream, outbox, _ = make()
    outbox.put(b"one")
    outbox.put_all([])
    outbox.put_all([b"two", b"three"])
    assert stream.writes == []
    await turns(1)
    assert stream.writes == [b"one\ntwo\nthree\n"]
    outbox.put_all([b"x" * (FLUSH_SIZE // 2)] * 2)
    assert len(stream.writes) == 2


@aio
async def test_a_full_buffer_leaves_at_once() -> None:
    stream, outbox, _ = make()
    outbox.put(b"small")
    outbox.put(b"x" * (FLUSH_SIZE - len(b"small")))
    assert len(stream.writes) == 1
    outbox.put(b"next")
    await turns(1)
    assert stream.writes[1:] == [b"next\n"]


@aio
async def test_flushing_by_hand_leaves_nothing_for_the_end_of_the_turn() -> None:
    stream, outbox, _ = make()
    outbox.put(b"one")
    outbox.flush()
    assert stream.writes == [b"one\n"]
    outbox.flush()
    await turns()
    assert stream.writes == [b"one\n"]


@aio
async def test_a_stream_that_has_ended_is_not_a_failure_yet() -> None:
    # The stream tells its end itself, with a better reason, after the last answer it brought.
    stream, outbox, failures = make()
    stream.refusal = ConnectionBroken("by design")
    outbox.put(b"one")
    await turns()
    assert failures == []


@aio
async def test_too_much_unsent_is_an_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    size = HIGH_WATER_SIZE + 1000
    monkeypatch.setattr(outbox_module, "MAX_UNSENT_SIZE", size)
    stream, outbox, failures = make()
    stream.stuck = True
    outbox.put(b"x" * size)
    outbox.flush()
    assert failures == []
    outbox.put(b"")
    outbox.flush()
    (failure,) = failures
    assert isinstance(failure, Overflow)
    assert "does not read" in str(failure) and failure.blame == "peer"


@aio
async def test_one_message_alone_is_not_an_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    size = HIGH_WATER_SIZE + 1000
    monkeypatch.setattr(outbox_module, "MAX_UNSENT_SIZE", size)
    stream, outbox, failures = make()
    stream.stuck = True
    outbox.put(b"x" * 3 * size)
    outbox.flush()
    assert failures == [] and outbox.is_full


@aio
async def test_small_lines_that_stay_unsent_are_noticed_too() -> None:
    stream, outbox, _ = make()
    stream.stuck = True
    line = b"x" * 999
    while stream.unsent + 1000 <= HIGH_WATER_SIZE:
        outbox.put(line)
        outbox.flush()
        assert not outbox.crowded
    outbox.put(line)
    outbox.flush()
    assert outbox.crowded
    assert outbox.is_full
    stream.take(stream.unsent)
    assert not outbox.is_full
    assert not outbox.crowded


@aio
async def test_draining_sends_first_and_waits_for_room() -> None:
    stream, outbox, _ = make()
    stream.stuck = True
    outbox.put(b"x" * HIGH_WATER_SIZE)
    assert outbox.is_full
    tasks = TaskOwner("test")
    drained = tasks.start(outbox.drain(), "drain")
    await turns()
    assert not drained.done()
    stream.take(1)
    await soon(drained)
    assert not outbox.is_full


@aio
async def test_many_who_wait_for_room_do_not_all_send_at_once() -> None:
    stream, outbox, failures = make()
    stream.stuck = True
    size = HIGH_WATER_SIZE + 1
    outbox.put(b"x" * size)

    async def send() -> None:
        await outbox.drain()
        outbox.put(b"x" * size)

    tasks = TaskOwner("test")
    senders = [tasks.start(send(), "send") for _ in range(5)]
    await turns()
    for sent in range(1, 6):
        assert len(stream.writes) == sent
        stream.take(stream.unsent)
        await turns(10)
    await soon(asyncio.gather(*senders))
    assert stream.unsent == size + 1


@aio
async def test_what_is_put_while_something_is_handled_leaves_together_with_its_end() -> None:
    stream, outbox, _ = make()
    outbox.held = True
    outbox.put(b"one")
    outbox.put(b"two")
    await turns(1)
    assert stream.writes == []
    outbox.release(lone=False)
    assert stream.writes == [b"one\ntwo\n"]


@aio
async def test_the_first_line_after_a_lone_message_leaves_at_once_and_the_next_gather() -> None:
    stream, outbox, _ = make()
    outbox.held = True
    outbox.release(lone=True)
    outbox.put(b"one")
    assert stream.writes == [b"one\n"]
    outbox.put(b"two")
    outbox.put(b"three")
    assert stream.writes == [b"one\n"]
    await turns(1)
    assert stream.writes == [b"one\n", b"two\nthree\n"]


@aio
async def test_lines_after_a_burst_are_written_together() -> None:
    stream, outbox, _ = make()
    outbox.held = True
    outbox.release(lone=True)
    outbox.held = True
    outbox.release(lone=False)
    outbox.put(b"one")
    assert stream.writes == []
    await turns(1)
    assert stream.writes == [b"one\n"]
