"""A lock is held by one, and free whatever ends its holder."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import types
from pathlib import Path

import pytest

from dragoman.broker import lock as broker_lock
from dragoman.broker.endpoint import console_is_open, consoles_folder, endpoint_of
from dragoman.broker.lock import (
    holder_of,
    is_held,
    lock_for_life,
    lock_within,
    mark_console,
    read_text,
    try_lock,
)
from dragoman.broker.spec import Folders
from dragoman.paths import Paths
from dragoman.transports.file_lock import LOCKED_BYTE, take_lock
from dragoman.transports.process.identity import own_identity
from dragoman.transports.process.stream import start_detached
from tests.aio import aio

posix = pytest.mark.skipif(sys.platform == "win32", reason="flock")


def test_one_holds_it_and_the_next_gets_it_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    assert not is_held(path)
    first = try_lock(path)
    assert first is not None and first.held
    assert is_held(path)
    assert try_lock(path) is None
    first.write(b"the first, with many words")
    first.write(b"me")
    assert read_text(path) == b"me"
    first.release()
    first.release()
    assert not first.held and not path.exists() and not is_held(path)
    assert read_text(path) == b""
    with try_lock(path) or pytest.fail("it is not free"):
        assert is_held(path)
    assert not is_held(path)


@posix
def test_the_death_of_the_holder_gives_it_free(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    hear, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        lock = try_lock(path)
        os.write(tell, b"1" if lock else b"0")
        signal.pause()
    assert os.read(hear, 1) == b"1"
    assert is_held(path)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    for fd in (hear, tell):
        os.close(fd)
    assert path.exists() and not is_held(path)
    lock = try_lock(path)
    assert lock is not None
    lock.release(remove=False)
    assert path.exists()


@posix
def test_a_file_that_was_replaced_meanwhile_is_not_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.lock"
    take = take_lock
    replaced: list[int] = []

    def take_late(fd: int, *, shared: bool = False) -> bool:
        if not replaced:
            # Its holder removes the file, and somebody else makes it anew, before we take ours.
            path.unlink()
            path.touch()
            replaced.append(fd)
        return take(fd, shared=shared)

    monkeypatch.setattr(broker_lock, "take_lock", take_late)
    lock = try_lock(path)
    assert lock is not None
    assert path.stat().st_ino == os.fstat(lock._fd).st_ino
    lock.release()


@posix
def test_the_file_of_a_successor_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    old = try_lock(path)
    assert old is not None and old.in_place
    path.unlink()
    assert not old.in_place
    new = try_lock(path)
    assert new is not None
    old.release()
    assert new.in_place and is_held(path)
    new.release()
    assert not new.in_place and not path.exists()


def test_a_lock_whose_path_cannot_be_examined_is_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.lock"
    lock = try_lock(path)
    assert lock is not None

    def denied(*_: object, **__: object) -> os.stat_result:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", denied)
        assert not lock.in_place
        lock.release()
    assert not lock.held and not is_held(path)


@posix
def test_a_link_is_not_a_lock(tmp_path: Path) -> None:
    (tmp_path / "x.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic link"):
        try_lock(tmp_path / "x.lock")
    assert not (tmp_path / "elsewhere").exists()


def test_on_windows_a_byte_far_behind_the_text_is_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: dict[tuple[int, int], int] = {}

    def locked(fd: int, mode: int, size: int) -> None:
        key = (os.fstat(fd).st_ino, os.lseek(fd, 0, os.SEEK_CUR))
        if taken.get(key, fd) != fd:
            raise PermissionError(13, "locked")
        taken[key] = fd

    fake = types.ModuleType("msvcrt")
    fake.locking = locked  # type: ignore[attr-defined]
    fake.LK_NBLCK = 2  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "msvcrt", fake)
    monkeypatch.setattr(sys, "platform", "win32")
    path = tmp_path / "x.lock"
    first = try_lock(path)
    assert first is not None
    first.write(b"me")
    assert {at for _, at in taken} == {LOCKED_BYTE}
    assert try_lock(path) is None and is_held(path)
    assert read_text(path) == b"me"
    first.release()
    assert not path.exists()


@aio
async def test_a_lock_is_waited_for_until_its_holder_releases_it(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    first = try_lock(path)
    assert first is not None
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(lock_within(path, timeout=60.0))
        await asyncio.sleep(0)
        assert not waiting.done()
        first.release()
    second = waiting.result()
    assert second is not None
    assert await lock_within(path, timeout=0.0) is None
    second.release()


@posix
def test_a_child_that_inherits_the_file_holds_the_lock_until_it_ends(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    lock = try_lock(path)
    assert lock is not None
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    pid = start_detached(["/bin/sh", "-c", 'read line <"$1"', "sh", str(gate)], stdin=lock.fileno())
    lock.release(remove=False)
    assert is_held(path)
    gate.write_text("end\n")
    os.waitpid(pid, 0)
    assert not is_held(path)


@aio
async def test_the_lock_of_a_broker_says_who_holds_it(tmp_path: Path) -> None:
    folders = Folders(state=f"{tmp_path}/s", runtime=f"{tmp_path}/r", data=f"{tmp_path}/d")
    place = endpoint_of("tool-1", folders)
    place.make_safe()
    lock = await lock_for_life(place, timeout=0.0)
    assert lock is not None
    assert await lock_for_life(place, timeout=0.0) is None
    assert holder_of(read_text(place.lock)) == own_identity()
    assert own_identity().pid == os.getpid()
    lock.release()


@pytest.mark.parametrize("text", [b"", b"{}", b"\xff", b'{"pid": "x"}', b"[" * 9000])
def test_an_empty_lock_names_no_holder(text: bytes) -> None:
    assert holder_of(text) is None


def test_a_console_is_open_as_long_as_it_holds_its_mark(tmp_path: Path) -> None:
    paths = Paths(config=tmp_path, data=tmp_path, cache=tmp_path, state=tmp_path, runtime=tmp_path)
    assert not console_is_open(tmp_path)
    first, second = mark_console(paths), mark_console(paths)
    assert first is not None and second is not None
    first.release()
    assert console_is_open(tmp_path)
    # As a kill would do.
    second.release(remove=False)
    assert not console_is_open(tmp_path)
    assert list(consoles_folder(tmp_path).iterdir()) == []
