"""A writer stores without making the loop wait, and its troubles stop nobody's work."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from dragoman.errors import (
    DragomanError,
    StoreConflict,
    StoreCorrupt,
    StoreError,
    StoreFull,
    UnknownSession,
)
from dragoman.store import Store, StoreWriter, database
from dragoman.store import writer as store_writer
from tests.aio import aio
from tests.unit.client.clock import LoopClock
from tests.unit.rpc.other_side import turns, until
from tests.unit.store.stores import chunk, locked, open_store, session

PATIENCE = 20.0
"""Seconds that a test waits for a thread before it fails."""


@aio
async def test_what_was_put_is_on_the_disk_after_a_flush(tmp_path: Path) -> None:
    one = session()
    with open_store(tmp_path) as store, open_store(tmp_path) as other:
        async with StoreWriter(store) as writer:
            writer.put(lambda store: store.create_session(one))
            for number in range(100):
                writer.append(one.key, number, [chunk(str(number))], "j-1")
            assert await writer.flush()
            found = [line for _, line in other.lines(one.key)]
            assert found == [chunk(str(number)) for number in range(100)]


@aio
async def test_events_that_come_close_together_are_one_write(tmp_path: Path) -> None:
    one = session()
    with open_store(tmp_path) as store:
        store.create_session(one)
        async with StoreWriter(store) as writer:
            for number in range(50):
                writer.append(one.key, number, [chunk("x")], "j-1" if number < 25 else "j-2")
            await writer.flush()
            rows = await writer.call(
                lambda store: store._connection.execute("SELECT job, count FROM events").fetchall()
            )
        assert sum(count for _, count in rows) == 50
        assert {job for job, _ in rows} == {"j-1", "j-2"}
        assert len(rows) < 10


@aio
async def test_closing_writes_what_waits(tmp_path: Path) -> None:
    one = session()
    with open_store(tmp_path) as store:
        writer = StoreWriter(store)
        writer.start()
        writer.put(lambda store: store.create_session(one))
        assert await writer.close()
        assert store.sessions() == [one]
        assert await writer.close()
        assert await writer.flush()
        with pytest.raises(RuntimeError):
            await writer.call(lambda store: None)


@aio
async def test_a_call_returns_and_raises_what_its_operation_does(tmp_path: Path) -> None:
    one = session()
    with open_store(tmp_path) as store:
        async with StoreWriter(store) as writer:
            writer.put(lambda store: store.create_session(one))
            assert await writer.call(lambda store: store.session(one.key)) == one
            with pytest.raises(UnknownSession):
                await writer.call(lambda store: store.delete_session("s-gone"))

            def broken(store: Store) -> None:
                store.create_session(session())
                raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                await writer.call(broken)
            assert len(await writer.call(lambda store: store.sessions())) == 1
            assert writer.trouble is None


@aio
async def test_an_error_with_one_session_is_reported_once_and_spares_the_others(
    tmp_path: Path,
) -> None:
    told: list[DragomanError] = []
    one = session()
    with open_store(tmp_path) as store:
        store.create_session(one)
        async with StoreWriter(store, on_trouble=told.append) as writer:
            for number in range(3):
                writer.append("s-gone", number, [b"{}"])
                writer.append(one.key, number, [b"{}"])
                assert await writer.flush()
            writer.append(one.key, 7, [b"{}"])
            assert await writer.flush()
            writer.put(lambda store: store.update_job("j-gone", state="ended"))
            writer.put(lambda store: 1 / 0)
            assert await writer.flush()
        assert [type(error).__name__ for error in told] == [
            UnknownSession.__name__,
            StoreConflict.__name__,
            "UnknownJob",
        ]
        assert len(list(store.lines(one.key))) == 3


@aio
async def test_a_disk_that_fails_is_reported_once_and_what_can_be_read_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[DragomanError] = []
    one = session()
    with open_store(tmp_path) as store:
        store.create_session(one)

        def full(*args: object) -> None:
            raise StoreFull(str(store.path), "the disk is full")

        monkeypatch.setattr(store, "append", full)
        async with StoreWriter(store, on_trouble=told.append) as writer:
            for number in range(10):
                writer.append(one.key, number, [b"{}"])
                assert not await writer.flush()
            with pytest.raises(StoreFull):
                await writer.call(lambda store: store.update_session(one.key, title="x"))
            read = writer.call(lambda store: store.sessions(), reads=True)
            assert [each.key for each in await read] == [one.key]
            with pytest.raises(ZeroDivisionError):
                await writer.call(lambda store: 1 // 0, reads=True)
            with pytest.raises(UnknownSession):
                await writer.call(lambda store: list(store.lines("s-gone")), reads=True)
            assert isinstance(writer.trouble, StoreFull)
            assert not await writer.close()
        await asyncio.sleep(0)
        assert told == [writer.trouble]


class Failing:
    """A disk that is full while it is told to be."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = True
        self.tries = 0
        self.recovered: asyncio.Queue[int] = asyncio.Queue()
        append = store.append

        def appending(*args: Any) -> None:
            self.tries += 1
            if self.full:
                raise StoreFull(str(store.path), "the disk is full")
            append(*args)

        monkeypatch.setattr(store, "append", appending)
        monkeypatch.setattr(store_writer, "RETRY_INTERVAL", 0.01)

    async def recovery(self) -> int:
        self.full = False
        async with asyncio.timeout(PATIENCE):
            return await self.recovered.get()


@aio
async def test_what_could_not_be_stored_is_when_there_is_room_again_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[DragomanError] = []
    one, two = session(), session(peer_session_id="other")
    with open_store(tmp_path) as store:
        store.create_session(one)
        disk = Failing(store, monkeypatch)
        async with StoreWriter(
            store, on_trouble=told.append, on_recovery=disk.recovered.put_nowait
        ) as writer:
            writer.append("s-gone", 0, [b"{}"])
            writer.append(one.key, 0, [b"0"], "j-1")
            assert not await writer.flush()
            # In this order they arrive, also what was put while nothing could be written.
            writer.put(lambda store: store.create_session(two))
            writer.append(two.key, 0, [b"1"])
            writer.append(one.key, 1, [b"2", b"3"], "j-1")
            writer.put(lambda store: store.note(one.key, 3, "x", {}))
            assert await disk.recovery() == 0
            assert writer.trouble is None
            assert await writer.flush()
            assert list(store.lines(one.key)) == [(0, b"0"), (1, b"2"), (2, b"3")]
            assert list(store.lines(two.key)) == [(0, b"1")]
            assert [note.kind for note in store.notes(one.key)] == ["x"]
            disk.full = True
            writer.append(one.key, 3, [b"4"])
            assert not await writer.flush()
            await disk.recovery()
        assert [type(error) for error in told] == [StoreFull, UnknownSession, StoreFull]
        assert len(list(store.lines(one.key))) == 4


@aio
async def test_events_for_which_there_is_no_room_are_a_gap_that_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = session(), session(peer_session_id="other")
    with open_store(tmp_path) as store:
        store.create_session(one)
        store.create_session(two)
        disk = Failing(store, monkeypatch)
        monkeypatch.setattr(store_writer, "QUEUE_SIZE", 100)
        async with StoreWriter(store, on_recovery=disk.recovered.put_nowait) as writer:
            writer.append(one.key, 0, [b"x" * 60])
            assert not await writer.flush()
            for number in (1, 2, 3):
                writer.append(one.key, number, [b"y" * 60])
            writer.append(two.key, 0, [b"z" * 60, b"z"])
            # One that would fit makes no second gap.
            writer.append(one.key, 4, [b"4"])
            assert await disk.recovery() == 6
            writer.append(one.key, 5, [b"5"])
            assert await writer.flush()
        assert list(store.lines(one.key)) == [(0, b"x" * 60), (5, b"5")]
        assert list(store.lines(two.key)) == []
        gaps = [(gap.first, gap.next, gap.why) for gap in store.gaps(one.key)]
        assert gaps == [(1, 5, "the disk is full")]
        assert [(gap.first, gap.next) for gap in store.gaps(two.key)] == [(0, 2)]
        found = store.session(two.key)
        assert found is not None and found.next_event == 2


@aio
async def test_what_cannot_be_stored_to_the_end_is_counted_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one = session()
    with open_store(tmp_path) as store:
        store.create_session(one)
        disk = Failing(store, monkeypatch)
        async with StoreWriter(store) as writer:
            writer.append(one.key, 0, [b"1", b"2"])
            writer.append(one.key, 2, [b"3"], "j-1")
        assert disk.tries > 0
    assert "3 events and the results of their jobs are lost" in caplog.text


@aio
async def test_the_disk_is_tried_less_often_the_longer_it_fails_and_at_once_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = session()
    with open_store(tmp_path) as store:
        store.create_session(one)
        disk = Failing(store, monkeypatch)
        monkeypatch.setattr(store_writer, "MAX_RETRY_INTERVAL", 1000.0)
        monkeypatch.setattr(store_writer, "RETRY_INTERVAL", 1000.0)
        async with StoreWriter(store, on_recovery=disk.recovered.put_nowait) as writer:
            writer.append(one.key, 0, [b"{}"])
            assert not await writer.flush()
            writer.append(one.key, 1, [b"{}"])
            assert not await writer.flush()
            assert disk.tries == 1
            monkeypatch.setattr(store_writer, "RETRY_INTERVAL", 0.0)
            disk.full = False
            writer.retry()
            assert await disk.recovery() == 0
            assert disk.tries == 2


@aio
async def test_a_store_is_opened_as_soon_as_it_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_writer, "RETRY_INTERVAL", 0.01)
    monkeypatch.setattr(store_writer, "QUEUE_SIZE", 100)
    recovered: asyncio.Queue[int] = asyncio.Queue()
    one = session()
    (tmp_path / "state").write_text("in the way")
    with pytest.raises(StoreError) as failed:
        open_store(tmp_path)
    writer = StoreWriter(
        lambda: open_store(tmp_path), trouble=failed.value, on_recovery=recovered.put_nowait
    )
    async with writer:
        writer.put(lambda store: store.create_session(one))
        writer.append(one.key, 0, [b"x" * 101])
        assert not await writer.flush()
        with pytest.raises(StoreError):
            await writer.call(lambda store: store.sessions(), reads=True)
        assert not writer.is_open
        (tmp_path / "state").unlink()
        async with asyncio.timeout(PATIENCE):
            await recovered.get()
        assert [each.key for each in writer.store.sessions()] == [one.key]
        assert await writer.flush()
        (gap,) = writer.store.gaps(one.key)
        assert (gap.first, gap.next, gap.why) == (0, 1, failed.value.problem)
    writer.store.close()


@aio
async def test_a_file_that_no_waiting_mends_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_writer, "RETRY_INTERVAL", 0.0)
    one = session()
    with open_store(tmp_path) as store:
        store.create_session(one)
        tries = []

        def damaged(*args: object) -> None:
            tries.append(args)
            raise StoreCorrupt(str(store.path), "it is damaged")

        monkeypatch.setattr(store, "append", damaged)
        async with StoreWriter(store) as writer:
            for number in range(3):
                writer.append(one.key, number, [b"{}"])
                writer.put(lambda store: None)
                writer.retry()
                assert not await writer.flush()
                with pytest.raises(StoreCorrupt):
                    await writer.call(lambda store: store.sessions(), reads=True)
            assert not writer.is_full
        assert len(tries) == 1


@aio
async def test_the_loop_runs_on_while_the_disk_is_slow(tmp_path: Path) -> None:
    slow, go_on = threading.Event(), threading.Event()

    def stuck(store: Store) -> None:
        slow.set()
        assert go_on.wait(PATIENCE)

    with open_store(tmp_path) as store:
        async with StoreWriter(store) as writer:
            writer.put(stuck)
            flushed = asyncio.gather(writer.flush())
            assert await asyncio.to_thread(slow.wait, PATIENCE)
            writer.append("s-gone", 0, [b"{}"])
            assert not flushed.done()
            go_on.set()
            async with asyncio.timeout(PATIENCE):
                assert list(await flushed) == [True]


@aio
async def test_a_producer_faster_than_the_disk_is_warned_and_then_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_writer, "QUEUE_SIZE", 1000)
    monkeypatch.setattr(store_writer, "HARD_SIZE", 4000)
    go_on = threading.Event()
    told: list[DragomanError] = []
    with open_store(tmp_path) as store:
        async with StoreWriter(store, on_trouble=told.append) as writer:
            writer.put(lambda store: go_on.wait(PATIENCE), size=900)
            assert not writer.is_full
            writer.put(lambda store: None, size=900)
            assert writer.is_full and not writer.is_empty
            go_on.set()
            async with asyncio.timeout(PATIENCE):
                await writer.drain()
            assert not writer.is_full and writer.is_empty
            go_on.clear()
            writer.put(lambda store: go_on.wait(PATIENCE), size=100)
            writer.put(lambda store: None, size=5000)
            assert isinstance(writer.trouble, StoreError)
            assert "too slow" in str(writer.trouble)
            go_on.set()
        await asyncio.sleep(0)
        assert len(told) == 1


@aio
async def test_a_store_that_is_still_being_opened_can_be_too_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_writer, "HARD_SIZE", 4000)
    go_on = threading.Event()
    with open_store(tmp_path) as store:

        def opening() -> Store:
            assert go_on.wait(PATIENCE)
            return store

        async with StoreWriter(opening) as writer:
            writer.put(lambda store: None, size=5000)
            assert "too slow" in str(writer.trouble)
            go_on.set()


@aio
async def test_a_caller_that_gives_up_does_not_affect_others(tmp_path: Path) -> None:
    go_on = threading.Event()
    with open_store(tmp_path) as store:
        async with StoreWriter(store) as writer:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await writer.call(lambda store: go_on.wait(PATIENCE))
            go_on.set()
            assert await writer.flush()


@aio
async def test_what_only_reads_does_not_wait_for_another_process_that_writes(
    tmp_path: Path,
) -> None:
    one = session()
    with open_store(tmp_path) as store:
        store.create_session(one)
        async with StoreWriter(store) as writer:
            with locked(store.path):
                async with asyncio.timeout(database.BUSY_TIMEOUT / 2):
                    found = await writer.call(lambda store: store.session(one.key), reads=True)
            assert found is not None
            assert writer.trouble is None
            assert await writer.flush()


@aio
async def test_a_disk_that_hangs_gives_the_caller_an_error_in_bounded_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_writer, "DISK_TIMEOUT", 0.05)
    go_on = threading.Event()
    with open_store(tmp_path) as store:
        writer = StoreWriter(store)
        writer.start()
        with pytest.raises(StoreError, match="has not answered") as raised:
            await writer.call(lambda store: go_on.wait(PATIENCE))
        assert raised.value.may_have_run
        assert not await writer.flush()
        assert not await writer.close()
        assert isinstance(writer.trouble, StoreError)
        assert not writer.is_open
        go_on.set()
        await asyncio.to_thread(join_threads, "dragoman-store")


def join_threads(name: str) -> None:
    for thread in threading.enumerate():
        if thread.name == name:
            thread.join(PATIENCE)


@aio
async def test_a_disk_that_is_only_slow_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = LoopClock(monkeypatch)
    monkeypatch.setattr(store_writer, "PART_SIZE", 1)
    go_on = threading.Semaphore(0)
    with open_store(tmp_path) as store:
        async with StoreWriter(store) as writer, asyncio.TaskGroup() as tasks:
            for _ in range(6):
                writer.put(lambda store: go_on.acquire(timeout=PATIENCE))
            flushed = tasks.create_task(writer.flush())
            await turns()
            for _ in range(6):
                await clock.advance(0.8 * store_writer.DISK_TIMEOUT)
                assert not flushed.done()
                before = writer._done_size
                go_on.release()
                await until(lambda before=before: writer._done_size > before)  # type: ignore[misc]
        assert flushed.result()


@aio
async def test_a_caller_that_stops_waiting_for_a_slow_disk_is_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(store_writer, "SLOW_TIME", 0.01)
    go_on = threading.Event()
    with open_store(tmp_path) as store:
        async with StoreWriter(store) as writer:
            writer.put(lambda store: go_on.wait(PATIENCE))
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await writer.flush()
            go_on.set()
    assert "gave up waiting for the disk" in caplog.text
