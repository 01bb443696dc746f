"""One caller that reads a session: at once while it keeps up, from the log when it does not."""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from dragoman.broker.protocol import POSITION
from dragoman.broker.server.event_log import EventLog
from dragoman.broker.server.event_reader import EventReader, renamed
from dragoman.rpc import Connection, End
from dragoman.transports.memory import memory_pair
from dragoman.wire.messages import Notification, Request
from dragoman.wire.peer import Noise, Stray
from tests.aio import aio
from tests.unit.broker.near import notice


class Sheet:
    """What a session is to its readers; what left the memory is on `disk`."""

    def __init__(self) -> None:
        self.log = EventLog()
        self.live: list[EventReader] = []
        self.renamed = False
        self.disk: list[bytes] = []
        self.fetched: list[tuple[int, int]] = []

    def happens(self, count: int = 1) -> None:
        for _ in range(count):
            number = self.log.next
            event = notice("s1", str(number))
            self.log.append(event)
            self.disk.append(bytes(event.params))
            for reader in list(self.live):
                if reader.connection.is_full:
                    reader.fall_behind(number)
                else:
                    reader.tell(event)

    def forget(self) -> None:
        self.log.take()
        self.log.stored = self.log.next
        self.log.trim(keep=0)

    async def fetch(self, start: int, stop: int) -> tuple[int, Sequence[bytes]]:
        self.fetched.append((start, stop))
        found = self.disk[start : min(stop, start + 10)]
        return start if found else stop, found


class Ear:
    """A caller that notes what it hears."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.names: list[str] = []
        self.changed = asyncio.Event()

    def attach(self, connection: Connection) -> None:
        pass

    def request(self, request: Request) -> None:
        raise AssertionError(request)

    def noise(self, noise: Noise | Stray) -> None:
        raise AssertionError(noise)

    def notification(self, notification: Notification) -> None:
        params = msgspec.json.decode(notification.params)
        if notification.method == POSITION:
            self.heard.append(f"at {params['next']}")
            return
        self.names.append(params["sessionId"])
        self.heard.append(params["update"]["content"]["text"])
        self.changed.set()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(5):
            while len(self.heard) < count:
                self.changed.clear()
                await self.changed.wait()


@asynccontextmanager
async def reading(
    sheet: Sheet | None = None,
) -> AsyncIterator[tuple[Sheet, EventReader, Ear]]:
    sheet, ear = sheet or Sheet(), Ear()
    session: Any = sheet
    ours, theirs = memory_pair(buffer_size=1)
    async with Connection(ours, End.AGENT) as connection, Connection(theirs, End.CLIENT, ear):
        yield sheet, EventReader(session, connection, "s1"), ear


def expected(start: int, stop: int) -> list[str]:
    return [str(number) for number in range(start, stop)]


@aio
async def test_a_reader_gets_what_happens_while_it_wants_to() -> None:
    async with reading() as (sheet, reader, ear):
        sheet.happens()
        reader.want()
        sheet.happens(2)
        reader.unwant()
        sheet.happens()
        reader.want()
        sheet.happens()
        await ear.until(3)
        assert ear.heard == ["1", "2", "4"]


@aio
async def test_a_reader_that_falls_behind_catches_up_and_goes_on() -> None:
    async with reading() as (sheet, reader, ear):
        reader.want()
        # Nothing is delivered before the loop turns, so the buffer fills up.
        sheet.happens(6000)
        assert reader.lags
        assert reader not in sheet.live
        await ear.until(6000)
        assert not reader.lags
        sheet.happens(3)
        await ear.until(6003)
        assert ear.heard == expected(0, 6003)


@aio
async def test_what_has_left_the_memory_is_fetched_without_a_gap() -> None:
    async with reading() as (sheet, reader, ear):
        sheet.happens(25)
        sheet.forget()
        sheet.happens(5)
        reader.go_back(3)
        await ear.until(27)
        assert ear.heard == expected(3, 30)
        assert sheet.fetched[0] == (3, 25)
        sheet.happens()
        await ear.until(28)
        assert ear.heard[-1] == "30"


@pytest.mark.parametrize("forgotten", [False, True])
@aio
async def test_an_event_that_is_too_long_for_the_caller_is_skipped_while_catching_up(
    forgotten: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with reading() as (sheet, reader, ear):
        sheet.happens(2)
        long = notice("s1", "x" * (reader.connection.settings.max_line_size + 1))
        sheet.log.append(long)
        sheet.disk.append(bytes(long.params))
        sheet.happens(2)
        if forgotten:
            sheet.forget()
        answered = asyncio.Event()
        reader.go_back(0)
        reader.behind(answered.set)
        async with asyncio.timeout(5):
            await answered.wait()
        await ear.until(4)
        assert ear.heard == ["0", "1", "3", "4"]
        assert not reader.lags
    assert [each.message[:40] for each in caplog.records] == [
        "could not send an update to a caller: th"
    ]


@aio
async def test_what_stands_behind_the_events_waits_for_a_reader_that_lags() -> None:
    async with reading() as (sheet, reader, ear):
        done: list[int] = []
        reader.behind(lambda: done.append(0))
        assert done == [0], "nothing to wait for"
        reader.want()
        sheet.happens(6000)
        reader.behind(lambda: done.append(1))
        sheet.happens(100)
        assert done == [0]
        await ear.until(6100)
        assert len(done) == 2


@aio
async def test_a_reader_that_leaves_while_it_lags_gets_what_waits_and_no_more_events(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with reading() as (sheet, reader, ear):
        reader.want()
        sheet.happens(6000)
        done: list[int] = []
        reader.behind(lambda: done.append(0))
        reader.behind(lambda: done.append(1))
        # Now it waits for its caller to read.
        await asyncio.sleep(0)
        reader.leave()
        assert done == [0, 1] and not reader.lags
        follower = reader._catching_up
        assert follower is not None
        await asyncio.wait([follower], timeout=5)
        assert len(ear.heard) < 6000
        assert caplog.records == []


@aio
async def test_nothing_is_done_for_a_reader_whose_connection_has_ended() -> None:
    async with reading() as (sheet, reader, _):
        reader.want()
        sheet.happens(6000)
        done: list[int] = []
        reader.behind(lambda: done.append(0))
        await reader.connection.aclose()
        reader.leave()
        assert done == []


@aio
async def test_a_reader_that_lags_gets_its_own_parts_only() -> None:
    async with reading() as (sheet, reader, ear):
        reader.want()
        sheet.happens(5000)
        assert reader.lags
        reader.unwant()
        sheet.happens(10)
        reader.want()
        sheet.happens(5)
        await ear.until(5005)
        assert ear.heard == expected(0, 5000) + expected(5010, 5015)


@aio
async def test_a_reader_whose_events_are_nowhere_is_cut_off() -> None:
    async with reading() as (sheet, reader, _):
        sheet.happens(5)
        sheet.forget()
        sheet.disk.clear()
        reader.go_back(0)
        async with asyncio.timeout(5):
            await reader.connection.wait_ended()


@aio
async def test_a_session_of_another_name_is_reported_under_the_one_that_the_caller_knows() -> None:
    async with reading() as (sheet, reader, ear):
        sheet.renamed = True
        reader.session_id = "old"
        reader.want()
        sheet.happens()
        await ear.until(1)
        sheet.forget()
        reader.go_back(0)
        await ear.until(2)
        assert ear.names == ["old", "old"], "from memory and from the disk"


def test_renaming_changes_the_name_and_nothing_else() -> None:
    params = notice("s1", "x").params
    before, after = msgspec.json.decode(params), msgspec.json.decode(renamed(params, "s2"))
    assert after == before | {"sessionId": "s2"}


@pytest.mark.parametrize("seed", range(30))
@aio
async def test_whatever_happens_nothing_is_lost_doubled_or_out_of_order(seed: int) -> None:
    chance = random.Random(seed)
    async with reading() as (sheet, reader, ear):
        wanted: list[str] = []
        wants = False
        marks: list[int] = []
        marked: list[int] = []
        stream: Any = reader.connection._stream
        other = stream._twin
        for _ in range(60):
            match chance.randrange(7):
                case 0:
                    reader.want()
                    wants = True
                case 1:
                    reader.unwant()
                    wants = False
                case 2:
                    sheet.forget()
                case 3:
                    other.pause_reading()
                case 4:
                    other.resume_reading()
                    await asyncio.sleep(0)
                case 5:
                    reader.behind(functools.partial(marks.append, len(wanted)))
                    marked.append(len(wanted))
                case _:
                    count = chance.choice((1, 3, 3000))
                    first = sheet.log.next
                    sheet.happens(count)
                    if wants:
                        wanted += expected(first, first + count)
        other.resume_reading()
        await ear.until(len(wanted))
        await reader.connection.drain()
        for _ in range(3):
            await asyncio.sleep(0)
        assert ear.heard == wanted
        assert marks == marked, "what stands behind the events comes once, and in order"


class TakenUp(Sheet):
    """A session with three events of an earlier process, and two of this one from 100 on."""

    def __init__(self) -> None:
        super().__init__()
        self.log = EventLog(100)
        self.before = [bytes(notice("s1", str(number)).params) for number in range(3)]

    async def fetch(self, start: int, stop: int) -> tuple[int, Sequence[bytes]]:
        found = self.before[start : min(stop, start + 2)]
        return start if found else stop, found


@pytest.mark.parametrize(
    ("start", "heard"),
    [
        (1, ["1", "2", "at 100", "100", "101"]),
        (3, ["at 100", "100", "101"]),
        (57, ["at 100", "100", "101"]),
        (100, ["100", "101"]),
    ],
)
@aio
async def test_an_attached_reader_learns_where_numbers_were_skipped(
    start: int, heard: list[str]
) -> None:
    async with reading(TakenUp()) as (sheet, reader, ear):
        sheet.happens()
        reader.attached = True
        reader.go_back(start)
        await ear.until(len(heard) - 1)
        sheet.happens()
        await ear.until(len(heard))
        assert ear.heard == heard


@aio
async def test_a_reader_of_the_history_gets_both_sides_of_skipped_numbers() -> None:
    async with reading(TakenUp()) as (sheet, reader, ear):
        sheet.happens()
        reader.go_back(0)
        await ear.until(4)
        assert ear.heard == ["0", "1", "2", "100"]
