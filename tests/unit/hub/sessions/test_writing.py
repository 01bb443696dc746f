"""A writer stores without making the loop wait, and its troubles stop nobody's work."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from dragoman.errors import DragomanError, StoreConflict, StoreError, StoreFull, UnknownSession
from dragoman.hub.sessions import Store, Writer, writing
from tests.aio import aio
from tests.unit.hub.sessions.stores import chunk, open_store, session

PATIENCE = 20.0
"""Seconds that a test waits for a thread before it fails."""


@aio
async def test_what_was_put_is_on_the_disk_after_a_flush(tmp_path: Path) -> None:
    one = session()
    with open_store(tmp_path) as store, open_store(tmp_path) as other:
        async with Writer(store) as writer:
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
        async with Writer(store) as writer:
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
        writer = Writer(store)
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
        async with Writer(store) as writer:
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
async def test_trouble_with_one_session_is_told_once_and_spares_the_others(
    tmp_path: Path,
) -> None:
    told: list[DragomanError] = []
    one = session()
    with open_store(tmp_path) as store:
        store.create_session(one)
        async with Writer(store, on_trouble=told.append) as writer:
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
async def test_a_disk_that_fails_ends_storing_and_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[DragomanError] = []
    one = session()
    with open_store(tmp_path) as store:
        store.create_session(one)

        def full(*args: object) -> None:
            raise StoreFull(str(store.path), "the disk is full")

        monkeypatch.setattr(store, "append", full)
        async with Writer(store, on_trouble=told.append) as writer:
            for number in range(10):
                writer.append(one.key, number, [b"{}"])
                assert not await writer.flush()
            with pytest.raises(StoreFull):
                await writer.call(lambda store: store.sessions())
            assert isinstance(writer.trouble, StoreFull)
            assert not await writer.close()
        await asyncio.sleep(0)
        assert told == [writer.trouble]


@aio
async def test_the_loop_runs_on_while_the_disk_is_slow(tmp_path: Path) -> None:
    slow, go_on = threading.Event(), threading.Event()

    def stuck(store: Store) -> None:
        slow.set()
        assert go_on.wait(PATIENCE)

    with open_store(tmp_path) as store:
        async with Writer(store) as writer:
            writer.put(stuck)
            flushed = asyncio.gather(writer.flush())
            assert await asyncio.to_thread(slow.wait, PATIENCE)
            writer.append("s-gone", 0, [b"{}"])
            assert not flushed.done()
            go_on.set()
            async with asyncio.timeout(PATIENCE):
                assert list(await flushed) == [True]


@aio
async def test_who_puts_faster_than_the_disk_takes_is_told_and_then_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "QUEUE_SIZE", 1000)
    monkeypatch.setattr(writing, "HARD_SIZE", 4000)
    go_on = threading.Event()
    told: list[DragomanError] = []
    with open_store(tmp_path) as store:
        async with Writer(store, on_trouble=told.append) as writer:
            writer.put(lambda store: go_on.wait(PATIENCE), size=900)
            assert not writer.is_full
            writer.put(lambda store: None, size=900)
            assert writer.is_full
            go_on.set()
            async with asyncio.timeout(PATIENCE):
                await writer.drain()
            assert not writer.is_full
            go_on.clear()
            writer.put(lambda store: go_on.wait(PATIENCE), size=100)
            writer.put(lambda store: None, size=5000)
            assert isinstance(writer.trouble, StoreError)
            assert "too slow" in str(writer.trouble)
            go_on.set()
        await asyncio.sleep(0)
        assert len(told) == 1


@aio
async def test_a_caller_that_gives_up_disturbs_nobody(tmp_path: Path) -> None:
    go_on = threading.Event()
    with open_store(tmp_path) as store:
        async with Writer(store) as writer:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await writer.call(lambda store: go_on.wait(PATIENCE))
            go_on.set()
            assert await writer.flush()
