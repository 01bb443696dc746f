"""The session store with real processes: killed, racing, without space, without permission.

No confirmed event is lost, none is stored twice, the file can be opened, and the message says what
to do.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from pathlib import Path

import pytest

from dragoman.broker.error_codec import revive
from dragoman.errors import (
    DragomanError,
    RemoteError,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    UnknownSession,
)
from dragoman.store import SessionRecord, Store, StoreWriter, database, store_path
from dragoman.store.damage import aside_of
from tests.aio import aio
from tests.faults.children import (
    CHILD_TIMEOUT,
    child,
    go,
    heard,
    last_words,
    private_mounts,
    run,
    small_disk,
)
from tests.integration.broker_stage import stage, stored

PRELUDE = """
import asyncio, itertools, json, os, resource, sys
from pathlib import Path
from dragoman.errors import *
from dragoman.store import *

path = Path(sys.argv[1])

def tell(**told):
    print(json.dumps(told), flush=True)

def session(key):
    return SessionRecord(key=key, peer="p", root="/r", peer_session_id=key, cwd="/r",
                         created_at=1.0, updated_at=1.0)

def line(number):
    return b'{"n":%d,"fill":"%b"}' % (number, b"x" * (number * 37 % 900))
"""

APPENDING = """
tell(go=True)
store = Store.open(path)
if store.session("s-one") is None:
    store.create_session(session("s-one"))

async def main():
    async with StoreWriter(store) as writer:
        number = store.session("s-one").next_event
        while True:
            for _ in range(number % 7 + 1):
                writer.append("s-one", number, [line(number)])
                number += 1
            assert await writer.flush()
            tell(confirmed=number)

asyncio.run(main())
"""


def line(number: int) -> bytes:
    return b'{"n":%d,"fill":"%b"}' % (number, b"x" * (number * 37 % 900))


def session(key: str) -> SessionRecord:
    return SessionRecord(
        key=key,
        peer="p",
        root="/r",
        peer_session_id=key,
        cwd="/r",
        created_at=1.0,
        updated_at=1.0,
    )


def check(path: Path, confirmed: int) -> int:
    """Check that nothing is lost or duplicated, and return the number of events."""
    with Store.open(path) as store:
        found = store.session("s-one")
        stored = found.next_event if found else 0
        assert stored >= confirmed
        if found:
            assert list(store.lines("s-one")) == [(n, line(n)) for n in range(stored)]
        with store.transaction() as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    return stored


@pytest.mark.parametrize("seed", range(2))
def test_a_writer_killed_at_any_moment_loses_nothing_that_was_confirmed(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    path = tmp_path / "sessions.db"
    confirmed = 0
    # The first dies while it creates the file, the others sooner or later.
    for lived in (0, 0, 1, chance.randrange(2, 10), chance.randrange(10, 40)):
        with child(PRELUDE + APPENDING, path) as process:
            told = heard(process)
            assert told == {"go": True}
            for _ in range(lived):
                told = heard(process)
            process.kill()
            confirmed = last_words(process, told).get("confirmed", confirmed)
            assert process.wait(CHILD_TIMEOUT) == -signal.SIGKILL
        stored = check(path, confirmed)
        # They were written a few at a time, so only the last few can be stored without a
        # confirmation.
        assert stored <= confirmed + 7
        confirmed = stored


RACING = """
sys.stdin.readline()
store = Store.open(path)
mine = f"s-{sys.argv[2]}"
store.create_session(session(mine))
try:
    store.create_session(session("s-one"))
except StoreConflict:
    pass
won = 0
for number in range(60):
    store.append(mine, number, [line(number)])
    # All write into one session, too, and take the next number from each other.
    while True:
        following = store.session("s-one").next_event
        try:
            store.append("s-one", following, [line(following)])
        except StoreConflict:
            continue
        won += 1
        break
tell(won=won)
"""


def test_processes_that_open_a_new_file_at_once_and_write_at_once_lose_nothing(
    tmp_path: Path,
) -> None:
    path = tmp_path / "sessions.db"
    with contextlib.ExitStack() as stack:
        racing = [stack.enter_context(child(PRELUDE + RACING, path, f"racer{n}")) for n in range(4)]
        go(racing)
        for process in racing:
            assert heard(process) == {"won": 60}
            assert process.wait(CHILD_TIMEOUT) == 0
    assert check(path, 240) == 240
    with Store.open(path) as store:
        for n in range(4):
            assert list(store.lines(f"s-racer{n}")) == [(m, line(m)) for m in range(60)]


FILLING = """
store = Store.open(path)
store.create_session(session("s-one"))
told = []

async def main():
    recovered = asyncio.Event()
    async with StoreWriter(
        store, on_trouble=told.append, on_recovery=lambda left_out: recovered.set()
    ) as writer:
        for number in itertools.count():
            writer.append("s-one", number, [line(number) * 20])
            if not await writer.flush():
                break
            confirmed = number + 1
        trouble = writer.trouble
        # Whoever works on is not disturbed.
        for number in range(confirmed + 1, confirmed + 4):
            writer.append("s-one", number, [line(number) * 20])
            assert not await writer.flush()
        assert told == [trouble]
        kept = [number for number, data in store.lines("s-one") if data == line(number) * 20]
        assert kept == list(range(confirmed))
        make_room()
        # By itself it goes on, and with what could not be stored before.
        await asyncio.wait_for(recovered.wait(), 40)
        writer.append("s-one", confirmed + 4, [line(confirmed + 4) * 20])
        assert await writer.flush(), writer.trouble
    assert told == [trouble]
    kept = [number for number, data in store.lines("s-one") if data == line(number) * 20]
    assert kept == list(range(confirmed + 5))
    tell(kind=type(trouble).__name__, message=str(trouble), confirmed=confirmed)

asyncio.run(main())
"""


def test_a_full_disk_is_reported_once_and_costs_nothing_once_there_is_room(tmp_path: Path) -> None:
    inside = small_disk(tmp_path, size="2m", used="900k")
    room = "def make_room():\n    path.with_name('x').unlink()\n"
    told = run(PRELUDE + room + FILLING, tmp_path / "sessions.db", inside=inside)
    assert told["kind"] == "StoreFull"
    assert "the disk is full; free some disk space" in told["message"]
    assert told["confirmed"] > 10


def test_a_quota_of_the_user_is_reported_like_a_full_disk(tmp_path: Path) -> None:
    limit = """
resource.setrlimit(resource.RLIMIT_FSIZE, (900_000, resource.RLIM_INFINITY))
def make_room():
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
"""
    told = run(PRELUDE + limit + FILLING, tmp_path / "sessions.db")
    assert told["kind"] == "StoreError"
    assert "over quota" in told["message"]
    assert told["confirmed"] > 10


def test_a_read_only_folder_is_refused_with_advice_and_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    with Store.open(path) as store:
        store.create_session(session("s-one"))
        store.append("s-one", 0, [line(0)])
    script = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
    inside = (*private_mounts(), "sh", "-c", script, str(tmp_path))
    program = """
try:
    Store.open(path)
except StoreRefused as error:
    message = str(error)
with Store.open(path, read_only=True) as store:
    tell(message=message, lines=[data.decode() for _, data in store.lines("s-one")])
"""
    told = run(PRELUDE + program, path, inside=inside)
    assert "set DRAGOMAN_STATE_HOME to another" in told["message"]
    assert told["lines"] == [line(0).decode()]


def test_what_a_killed_process_left_in_the_log_is_read_from_a_read_only_folder(
    tmp_path: Path,
) -> None:
    path = tmp_path / "sessions.db"
    with child(PRELUDE + APPENDING, path) as process:
        heard(process)
        confirmed = heard(process)["confirmed"]
        process.kill()
        process.communicate()
    assert path.with_name("sessions.db-wal").stat().st_size
    script = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
    inside = (*private_mounts(), "sh", "-c", script, str(tmp_path))
    program = """
with Store.open(path, read_only=True) as store:
    tell(count=len(list(store.lines("s-one"))))
"""
    assert run(PRELUDE + program, path, inside=inside)["count"] >= confirmed


def test_a_folder_that_cannot_be_made_is_refused_with_advice(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="DRAGOMAN_STATE_HOME"):
        Store.open(Path("/proc/nowhere/sessions.db"))


@aio
async def test_a_damaged_file_is_reported_once_and_set_aside_and_a_new_one_takes_what_comes(
    tmp_path: Path,
) -> None:
    path = tmp_path / "sessions.db"
    with Store.open(path) as store:
        store.create_session(session("s-one"))
        store.append("s-one", 0, [line(n) for n in range(2000)])
    data = bytearray(path.read_bytes())
    size = int.from_bytes(data[16:18], "big")
    # The first page stays, so that the file can be opened.
    data[size:] = b"\xa5" * (len(data) - size)
    path.write_bytes(data)
    told: list[DragomanError] = []
    with Store.open(path) as store:
        async with StoreWriter(store, on_trouble=told.append) as writer:
            writer.append("s-one", 2000, [b"{}"])
            assert await writer.flush()
            # The new store does not have that session.
            assert [type(error) for error in told] == [StoreCorrupt, UnknownSession]
            assert "a new one was created" in str(told[0])
            writer.put(lambda store: store.create_session(session("s-two")))
            writer.append("s-two", 0, [b"{}"])
        assert [number for number, _ in store.lines("s-two")] == [0]
    (aside,) = aside_of(path)
    assert aside.read_bytes()[size:] == data[size:]


def test_a_file_that_was_cut_off_is_called_damaged(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    with Store.open(path) as store:
        store.create_session(session("s-one"))
        store.append("s-one", 0, [line(n) for n in range(2000)])
    os.truncate(path, path.stat().st_size // 3)
    with pytest.raises(StoreCorrupt), Store.open(path, read_only=True) as store:
        list(store.lines("s-one"))


def test_a_file_that_is_deleted_while_it_is_open_affects_only_itself(
    tmp_path: Path,
) -> None:
    path = tmp_path / "sessions.db"
    with Store.open(path) as store:
        store.create_session(session("s-one"))
        for name in ("sessions.db", "sessions.db-wal", "sessions.db-shm"):
            path.with_name(name).unlink()
        with contextlib.suppress(StoreError):
            store.append("s-one", 0, [line(0)])
        with Store.open(path) as other:
            other.create_session(session("s-one"))
            other.append("s-one", 0, [line(0)])
    assert check(path, 1) == 1


HOLDING = """
import sqlite3
with sqlite3.connect(path, isolation_level=None) as held:
    held.execute("PRAGMA locking_mode = EXCLUSIVE")
    held.execute("BEGIN EXCLUSIVE")
    tell(held=True)
    sys.stdin.readline()
"""


@aio
async def test_a_session_that_is_resumed_while_the_store_is_held_is_refused_and_not_stored_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_TIMEOUT", 0.1)
    flags = ("--resume", "--state", str(tmp_path / "agent"))
    async with stage(tmp_path, *flags) as at, at.caller() as caller:
        about = {"sessionId": await caller.new(tmp_path), "cwd": str(tmp_path)}
    path = store_path(tmp_path / "state")
    with child(PRELUDE + HOLDING, path) as holder:
        assert heard(holder) == {"held": True}
        async with stage(tmp_path, *flags) as at, at.caller() as caller:
            with pytest.raises(RemoteError, match="another process has held it") as refused:
                await caller.call("session/resume", about)
            error = revive(refused.value.data)
            assert isinstance(error, StoreBusy)
            assert (error.retryable, error.may_have_run) == (True, False)
            go([holder])
            assert await asyncio.to_thread(holder.wait, CHILD_TIMEOUT) == 0
            async with asyncio.timeout(CHILD_TIMEOUT):
                while True:
                    try:
                        await caller.call("session/resume", about)
                    except RemoteError:
                        # The broker opens the store again after an interval.
                        await asyncio.sleep(0.05)
                    else:
                        break
            await caller.prompting(about["sessionId"], "say hello")
    (only,) = stored(tmp_path)
    assert only["record"].peer_session_id == about["sessionId"]
    assert only["lines"]
