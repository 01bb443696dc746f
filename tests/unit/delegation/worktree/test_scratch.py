"""Temporary directories for git, and those that killed processes left."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from pathlib import Path

import pytest

from dragoman.broker.lock import try_lock
from dragoman.delegation.worktree import records, scratch
from dragoman.delegation.worktree.scratch import LOCK, UNLOCKED_AGE, scratch_folder
from dragoman.errors import FileFailed
from tests.aio import aio

PATIENCE = 20.0


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def left(temporary: Path, name: str = "dragoman-copy-left", *, locked: bool = True) -> Path:
    """A directory of a process that was killed."""
    home = temporary / name
    home.mkdir(mode=0o700)
    (home / "index").write_text("x")
    if locked:
        (home / LOCK).touch()
    return home


@aio
async def test_a_scratch_folder_is_private_and_removed_at_the_end(temporary: Path) -> None:
    async with scratch_folder("copy") as folder:
        (folder / "index").write_text("x")
        (name,) = os.listdir(temporary)
        assert name.startswith("dragoman-copy-")
        home = temporary / name
        assert home.stat().st_mode & 0o077 == 0
        assert os.listdir(folder) == ["index"]
    assert os.listdir(temporary) == []


@aio
async def test_a_folder_that_cannot_be_created_is_a_file_error_with_its_path(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(temporary / "gone"))
    with pytest.raises(FileFailed, match="gone"):
        async with scratch_folder("copy"):
            pass


@aio
async def test_folders_of_killed_processes_are_removed_before_a_new_one_is_created(
    temporary: Path,
) -> None:
    left(temporary)
    left(temporary, "dragoman-diff-left")
    async with scratch_folder("copy"):
        assert len(os.listdir(temporary)) == 1


@aio
async def test_a_folder_in_use_is_kept(temporary: Path) -> None:
    async with scratch_folder("look") as first, scratch_folder("copy"):
        assert first.is_dir()


@aio
async def test_a_folder_without_a_lock_is_removed_only_when_it_is_old(temporary: Path) -> None:
    new = left(temporary, "dragoman-copy-new", locked=False)
    old = left(temporary, "dragoman-copy-old", locked=False)
    then = time.time() - UNLOCKED_AGE - 60
    os.utime(old, (then, then))
    async with scratch_folder("copy"):
        assert (new.exists(), old.exists()) == (True, False)


@aio
async def test_only_private_folders_with_our_names_are_removed(temporary: Path) -> None:
    kept = [left(temporary, name) for name in ("dragoman-other", "mine-dragoman-copy-x")]
    shared = left(temporary, "dragoman-copy-shared")
    shared.chmod(0o777)
    target = temporary / "target"
    left(temporary, target.name)
    (temporary / "dragoman-copy-link").symlink_to(target)
    (temporary / "dragoman-copy-file").write_text("x")
    async with scratch_folder("copy"):
        assert all((home / "index").exists() for home in (*kept, shared, target))
        assert (temporary / "dragoman-copy-link").is_symlink()
        assert (temporary / "dragoman-copy-file").exists()


@aio
async def test_a_folder_of_another_user_is_kept(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = left(temporary)
    user = os.getuid()
    monkeypatch.setattr("os.getuid", lambda: user + 1)
    async with scratch_folder("copy"):
        assert home.exists()


@aio
async def test_a_folder_that_another_process_sweeps_at_once_is_replaced(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def swept_at_first(path: Path) -> object:
        tried.append(path)
        if len(tried) == 1:
            raise FileNotFoundError
        return None if len(tried) == 2 else try_lock(path)

    monkeypatch.setattr(scratch, "try_lock", swept_at_first)
    async with scratch_folder("copy") as folder:
        assert folder.parent == tried[2].parent


@aio
async def test_without_locks_there_is_still_a_folder(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_locks(path: Path) -> object:
        raise OSError("no locks")

    monkeypatch.setattr(scratch, "try_lock", without_locks)
    async with scratch_folder("copy") as folder:
        assert folder.is_dir()
    assert os.listdir(temporary) == []


@aio
async def test_large_folders_are_removed_while_the_event_loop_runs(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left(temporary)
    loop = asyncio.get_running_loop()
    remove_tree = records.remove_tree
    ran: list[bool] = []

    def remove(path: Path) -> None:
        turned = threading.Event()
        loop.call_soon_threadsafe(turned.set)
        ran.append(turned.wait(PATIENCE))
        remove_tree(path)

    monkeypatch.setattr(scratch, "remove_tree", remove)
    async with scratch_folder("copy"):
        assert ran == [True]
    assert ran == [True, True]
    assert os.listdir(temporary) == []


@aio
async def test_removal_that_hangs_is_logged_and_does_not_stop_the_work(
    temporary: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(scratch, "REMOVE_TIMEOUT", 0.01)
    left(temporary)
    go_on = threading.Event()
    remove_tree = records.remove_tree

    def remove(path: Path) -> None:
        go_on.wait(PATIENCE)
        remove_tree(path)

    monkeypatch.setattr(scratch, "remove_tree", remove)
    try:
        async with scratch_folder("copy") as folder:
            assert folder.is_dir()
    finally:
        go_on.set()
    assert "abandoned temporary files could not be removed" in caplog.text


@aio
async def test_a_folder_is_removed_if_the_work_is_cancelled(temporary: Path) -> None:
    entered = asyncio.Event()

    async def work() -> None:
        async with scratch_folder("copy"):
            entered.set()
            await asyncio.Event().wait()

    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        task = group.create_task(work())
        await entered.wait()
        task.cancel()
    assert os.listdir(temporary) == []
