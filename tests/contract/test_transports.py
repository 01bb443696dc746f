"""What every stream promises, proved on every kind of stream of this system."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from dragoman.errors import (
    ConnectionBroken,
    ConnectionClosed,
    ConnectionEnded,
    ConnectionLost,
    UsageError,
)
from dragoman.transports.base import HIGH_WATER_SIZE, READ_SIZE
from tests.aio import aio
from tests.contract.conftest import PATIENCE, Link, Opener, Recorder

MEBIBYTE = 1024 * 1024
TURNS = 30
"""Turns of the event loop in which something that must not happen would have happened."""


async def turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


def numbered(count: int, size: int = 20) -> list[bytes]:
    return [f"{number:0{size - 1}d}\n".encode() for number in range(count)]


async def echoed(link: Link, line: bytes) -> None:
    """Send a line and wait for it to come back."""
    size = link.heard.size + len(line)
    link.ours.write(line)
    await link.heard.until(size)


async def overfill(link: Link) -> list[bytes]:
    """Write until a far side that does not read leaves more unsent than `drain` accepts."""
    lines: list[bytes] = []
    while link.ours.unsent_size <= HIGH_WATER_SIZE:
        # Between two processes the operating system takes several mebibytes by itself.
        lines += numbered(32, MEBIBYTE // 16)
        for line in lines[-32:]:
            link.ours.write(line)
        await turns()
    return lines


@aio
async def test_lines_come_back_whole_and_in_order(open_: Opener) -> None:
    async with open_() as link:
        link.ours.start(link.heard)
        lines = numbered(3000)
        for start in range(0, len(lines), 100):
            for line in lines[start : start + 99]:
                link.ours.write(line)
            link.ours.write(b"".join(lines[start + 99 : start + 100]))
            await asyncio.sleep(0)
        assert await link.heard.until(3000 * 20) == b"".join(lines)


@aio
async def test_lines_around_the_size_of_a_read_come_back_whole(open_: Opener) -> None:
    async with open_() as link:
        link.ours.start(link.heard)
        lines = [
            bytes([65 + index % 26]) * (size - 1) + b"\n"
            for index, size in enumerate(
                [2, READ_SIZE - 1, READ_SIZE, READ_SIZE + 1, 3, 4 * READ_SIZE + 7, 2]
            )
        ]
        link.ours.write(b"".join(lines[:3]))
        for line in lines[3:]:
            link.ours.write(line)
        expected = b"".join(lines)
        assert await link.heard.until(len(expected)) == expected


@aio
async def test_four_mebibytes_go_both_ways_at_once(open_: Opener) -> None:
    async with open_() as link:
        link.ours.start(link.heard)
        lines = numbered(64, MEBIBYTE // 16)
        for line in lines:
            link.ours.write(line)
        expected = b"".join(lines)
        assert len(expected) == 4 * MEBIBYTE
        assert await link.heard.until(len(expected)) == expected
        async with asyncio.timeout(PATIENCE):
            await link.ours.drain()
        assert link.ours.unsent_size == 0


@aio
async def test_one_line_of_four_mebibytes_comes_back_whole(open_: Opener) -> None:
    async with open_() as link:
        link.ours.start(link.heard)
        [line] = numbered(1, 4 * MEBIBYTE)
        await echoed(link, line)
        assert link.heard.data == line


@aio
async def test_nothing_is_delivered_before_the_start_and_nothing_is_lost(open_: Opener) -> None:
    async with open_() as link:
        link.ours.write(b"early\n!note\n")
        await link.noted()
        await turns()
        assert link.heard.chunks == []
        link.ours.start(link.heard)
        assert await link.heard.until(6) == b"early\n"
        with pytest.raises(UsageError):
            link.ours.start(Recorder())


@aio
async def test_a_pause_stops_delivery_and_resuming_loses_nothing(open_: Opener) -> None:
    async with open_() as link:
        link.ours.start(link.heard)
        await echoed(link, b"before\n")
        link.ours.pause_reading()
        link.ours.pause_reading()
        await turns()
        link.heard.chunks.clear()
        lines = numbered(50)
        link.ours.write(b"".join(lines) + b"!note\n")
        await link.noted()
        await turns()
        assert link.heard.chunks == []
        link.ours.resume_reading()
        link.ours.resume_reading()
        await link.heard.until(7 + 50 * 20)
        assert link.heard.data == b"".join(lines)


@aio
async def test_a_pause_under_heavy_load_loses_nothing(open_: Opener) -> None:
    async with open_() as link:
        link.ours.start(link.heard)
        lines = numbered(32, MEBIBYTE // 16)
        for line in lines:
            link.ours.write(line)
            link.ours.pause_reading()
            await turns()
            link.ours.resume_reading()
            await asyncio.sleep(0)
        expected = b"".join(lines)
        assert await link.heard.until(len(expected)) == expected


@aio
async def test_a_receiver_may_pause_from_inside_a_delivery(open_: Opener) -> None:
    async with open_() as link:

        class Hesitant(Recorder):
            def data_received(self, data: bytes) -> None:
                super().data_received(data)
                link.ours.pause_reading()
                asyncio.get_running_loop().call_soon(link.ours.resume_reading)

        link.heard = Hesitant()
        link.ours.start(link.heard)
        lines = numbered(64, 4096)
        for line in lines:
            link.ours.write(line)
        expected = b"".join(lines)
        assert await link.heard.until(len(expected)) == expected


@aio
async def test_drain_waits_for_a_far_side_that_does_not_read(open_: Opener) -> None:
    async with open_() as link:
        link.ours.start(link.heard)
        await link.ours.drain()
        link.hold()
        lines = await overfill(link)
        async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
            waiting = [group.create_task(link.ours.drain()) for _ in range(2)]
            await turns()
            assert not any(task.done() for task in waiting)
            waiting[0].cancel()
            await turns()
            assert not waiting[1].done()
            link.release()
            await waiting[1]
            assert link.ours.unsent_size <= HIGH_WATER_SIZE
        expected = b"".join(lines)
        assert await link.heard.until(len(expected)) == expected


@aio
async def test_each_of_many_that_drained_finds_room(open_: Opener) -> None:
    async with open_() as link:
        link.ours.start(link.heard)
        link.hold()
        lines = await overfill(link)
        [more] = numbered(1, 2 * HIGH_WATER_SIZE)
        found: list[int] = []

        async def write_one() -> None:
            await link.ours.drain()
            found.append(link.ours.unsent_size)
            link.ours.write(more)

        async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
            for _ in range(8):
                group.create_task(write_one())
            await turns()
            assert found == []
            link.release()
        assert len(found) == 8
        assert max(found) <= HIGH_WATER_SIZE
        expected = b"".join(lines) + 8 * more
        assert await link.heard.until(len(expected)) == expected


@aio
async def test_closing_is_reported_once_and_afterwards_nothing_is_taken(open_: Opener) -> None:
    async with open_() as link:
        link.ours.start(link.heard)
        await echoed(link, b"before\n")
        await link.ours.aclose()
        assert [type(end) for end in link.heard.ends] == [ConnectionClosed]
        with pytest.raises(ConnectionClosed):
            link.ours.write(b"after\n")
        with pytest.raises(ConnectionClosed):
            await link.ours.drain()
        link.ours.pause_reading()
        link.ours.resume_reading()
        assert link.ours.unsent_size == 0
        await turns()
        assert len(link.heard.ends) == 1


@aio
async def test_what_was_written_before_the_close_arrives(open_: Opener) -> None:
    async with open_() as link:
        link.ours.start(link.heard)
        link.ours.write(b"x" * (HIGH_WATER_SIZE // 2) + b"\n")
        link.ours.write(b"!note\n")
        await link.ours.aclose()
        await link.noted()


@aio
async def test_their_end_comes_once_and_after_their_last_byte(open_: Opener) -> None:
    async with open_() as link:
        link.ours.start(link.heard)
        lines = numbered(2000)
        link.ours.write(b"".join(lines))
        await link.heard.until(1)
        link.ours.write(b"!end\n")
        failure = await link.heard.end()
        assert isinstance(failure, ConnectionEnded)
        assert link.heard.data == b"".join(lines)
        with pytest.raises(ConnectionEnded):
            link.ours.write(b"after\n")
        with pytest.raises(ConnectionEnded):
            await link.ours.drain()
        await link.ours.aclose()
        await turns()
        assert len(link.heard.ends) == 1
        with pytest.raises(ConnectionEnded):
            link.ours.write(b"after the close\n")


@aio
async def test_their_end_while_paused_waits_for_the_data_before_it(open_: Opener) -> None:
    async with open_() as link:
        link.ours.start(link.heard)
        await echoed(link, b"before\n")
        link.ours.pause_reading()
        lines = numbered(100)
        link.ours.write(b"".join(lines) + b"!note\n")
        await link.noted()
        with contextlib.suppress(ConnectionLost):
            link.ours.write(b"!end\n")
        await turns()
        assert link.heard.ends == []
        link.ours.resume_reading()
        assert isinstance(await link.heard.end(), ConnectionEnded)
        assert link.heard.data == b"before\n" + b"".join(lines)


@aio
async def test_their_end_while_we_write_is_an_error_and_no_hang(open_: Opener) -> None:
    async with open_() as link:
        link.ours.start(link.heard)
        link.ours.write(b"!end\n")
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(ConnectionLost):
                while True:
                    link.ours.write(b"x" * 65536 + b"\n")
                    await link.ours.drain()
                    await asyncio.sleep(0)
        assert isinstance(await link.heard.end(), ConnectionLost)
        await link.ours.aclose()
        assert len(link.heard.ends) == 1


@aio
async def test_a_break_is_reported_once_and_after_the_last_byte(open_: Opener) -> None:
    if open_.kind == "child on stdio":
        pytest.skip("the same stream as for any child process, which is broken in that test")
    async with open_(stuck=True) as link:
        link.ours.start(link.heard)
        await echoed(link, b"before\n")
        link.break_()
        failure = await link.heard.end()
        assert type(failure) is ConnectionBroken
        assert link.heard.data == b"before\n"
        with pytest.raises(ConnectionBroken):
            link.ours.write(b"after\n")
        with pytest.raises(ConnectionBroken):
            await link.ours.drain()
        await link.ours.aclose()
        assert len(link.heard.ends) == 1


@aio
async def test_closing_many_times_at_once_is_one_close(open_: Opener) -> None:
    async with open_() as link:
        link.ours.start(link.heard)
        await echoed(link, b"before\n")
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*(link.ours.aclose() for _ in range(5)))
            await link.ours.aclose()
        assert [type(end) for end in link.heard.ends] == [ConnectionClosed]


@pytest.mark.parametrize("cancels", [1, 2, 3])
@aio
async def test_a_cancelled_close_still_closes(open_: Opener, cancels: int) -> None:
    async with open_(stuck=True) as link:
        link.ours.start(link.heard)
        link.hold()
        link.ours.write(b"x" * MEBIBYTE + b"\n")
        async with asyncio.timeout(PATIENCE):
            async with asyncio.TaskGroup() as group:
                closing = group.create_task(link.ours.aclose())
                for _ in range(cancels):
                    await asyncio.sleep(0)
                    closing.cancel()
            if not open_.kind.startswith("child"):
                link.release()
            assert type(await link.heard.end()) is ConnectionClosed
            await link.ours.aclose()
        assert len(link.heard.ends) == 1


@aio
async def test_closing_while_others_wait_in_drain_frees_them(open_: Opener) -> None:
    async with open_(stuck=True) as link:
        link.ours.start(link.heard)
        link.hold()
        await overfill(link)

        async def drain() -> None:
            with contextlib.suppress(ConnectionLost):
                await link.ours.drain()

        async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
            waiting = group.create_task(drain())
            await turns()
            assert not waiting.done()
            await link.ours.aclose()


@aio
async def test_a_stream_that_was_never_started_closes_and_a_late_start_hears_it(
    open_: Opener,
) -> None:
    async with open_() as link:
        link.ours.write(b"never heard\n")
        await link.ours.aclose()
        link.ours.start(link.heard)
        assert type(await link.heard.end()) is ConnectionClosed
        assert link.heard.data == b""
