"""Which worktrees a sweep removes, and which it leaves alone."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from dragoman.broker.lock import try_lock
from dragoman.delegation.worktree import records
from dragoman.delegation.worktree import sweep as sweep_module
from dragoman.delegation.worktree.isolation import Isolation
from dragoman.delegation.worktree.records import (
    Tree,
    WorktreeRecord,
    make_folder,
    read_records,
    write_record,
)
from dragoman.delegation.worktree.sweep import LOCK, Swept, sweep
from dragoman.transports.process.identity import ProcessIdentity, own_identity
from tests.aio import aio
from tests.unit.delegation.worktree.repositories import make

OWN = own_identity()
DEAD = ProcessIdentity(pid=OWN.pid, started="1", boot=OWN.boot, namespace=OWN.namespace)
"""Our number, as somebody had it before us."""


def left(folder: Path, owner: ProcessIdentity, *trees: Tree, id: str = "x") -> Path:
    return make_folder(folder, WorktreeRecord(id=id, workspace="/w", owner=owner, trees=trees))


async def swept_in(folder: Path) -> list[Swept]:
    swept: list[Swept] = []
    await sweep(folder, swept.append)
    return swept


@aio
async def test_only_what_dead_processes_left_is_removed(tmp_path: Path) -> None:
    dead = left(tmp_path / "w", DEAD, id="dead")
    alive = left(tmp_path / "w", OWN, id="alive")
    unknown = left(tmp_path / "w", ProcessIdentity(pid=1, started="", boot=""), id="unknown")
    swept = await swept_in(tmp_path / "w")
    assert [(one.id, one.workspace, one.patch) for one in swept] == [("dead", "/w", None)]
    assert not dead.exists()
    assert alive.exists() and unknown.exists()


@aio
async def test_work_of_a_dead_process_is_kept_as_a_patch(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")
    async with Isolation(folder, folder=tmp_path / "w") as isolation:
        (isolation.workspace / "a.txt").write_text("done\n")
        home, record = next(read_records(tmp_path / "w"))
        assert record is not None
        write_record(home, msgspec.structs.replace(record, owner=DEAD))
        swept = await swept_in(tmp_path / "w")
        assert not home.exists()
    assert [one.patch for one in swept] == [tmp_path / "patches" / f"{isolation.id}.patch"]
    assert swept[0].patch is not None and b"+done" in swept[0].patch.read_bytes()


@aio
async def test_work_of_a_dead_process_stays_while_temporary_files_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make(tmp_path / "repo")
    async with Isolation(folder, folder=tmp_path / "w") as isolation:
        (isolation.workspace / "a.txt").write_text("done\n")
        home, record = next(read_records(tmp_path / "w"))
        assert record is not None
        write_record(home, msgspec.structs.replace(record, owner=DEAD))
        with monkeypatch.context() as patch:
            patch.setattr(tempfile, "tempdir", str(tmp_path / "full"))
            assert await swept_in(tmp_path / "w") == []
        assert home.exists()
        (swept,) = await swept_in(tmp_path / "w")
        assert swept.patch is not None and b"+done" in swept.patch.read_bytes()


@aio
async def test_a_sweep_that_is_cancelled_has_reported_the_patches_that_it_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left(tmp_path / "w", DEAD, id="1")
    left(tmp_path / "w", DEAD, id="2")
    patches = iter([b"first"])

    async def read(trees: Sequence[Tree]) -> bytes:
        for patch in patches:
            return patch
        asyncio.get_running_loop().call_soon(sweeping.cancel)
        await asyncio.Event().wait()
        raise AssertionError("it must not come so far")

    monkeypatch.setattr(sweep_module, "patch_of", read)
    swept: list[Swept] = []
    async with asyncio.TaskGroup() as group:
        sweeping = group.create_task(sweep(tmp_path / "w", swept.append))
    assert sweeping.cancelled()
    assert [one.patch for one in swept] == [tmp_path / "patches" / "1.patch"]
    assert os.listdir(tmp_path / "w") == ["2"]


@aio
async def test_a_sweep_that_is_cancelled_during_a_removal_has_reported_the_patch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = left(tmp_path / "w", DEAD)
    remove = records.remove

    async def read(trees: Sequence[Tree]) -> bytes:
        return b"changes"

    def cancelled(folder: Path, record: WorktreeRecord) -> bool:
        loop.call_soon_threadsafe(sweeping.cancel)
        return remove(folder, record)

    monkeypatch.setattr(sweep_module, "patch_of", read)
    monkeypatch.setattr(records, "remove", cancelled)
    loop = asyncio.get_running_loop()
    swept: list[Swept] = []
    async with asyncio.TaskGroup() as group:
        sweeping = group.create_task(sweep(tmp_path / "w", swept.append))
    assert not home.exists()
    assert [one.patch for one in swept] == [tmp_path / "patches" / "x.patch"]


@aio
async def test_a_removal_that_cannot_be_completed_is_repeated_and_its_patch_reported_at_most_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def read(trees: Sequence[Tree]) -> bytes:
        return b"changes"

    home = left(tmp_path / "w", DEAD)
    (home / "tree").mkdir()
    monkeypatch.setattr(sweep_module, "patch_of", read)
    with monkeypatch.context() as patch:
        patch.setattr(records, "remove_tree", lambda path: None)
        first, second, third = [await swept_in(tmp_path / "w") for _ in range(3)]
        assert first == second == [Swept("x", "/w", tmp_path / "patches" / "x.patch")]
        assert third == [] and home.exists()
    assert [record.levelname for record in caplog.records].count("WARNING") == 1
    assert await swept_in(tmp_path / "w") == []
    assert not home.exists()


@aio
async def test_a_copy_whose_repository_is_gone_is_removed(tmp_path: Path) -> None:
    tree = Tree(top="/gone", common_folder="/gone/.git", path=str(tmp_path / "gone"), base="1")
    home = left(tmp_path / "w", DEAD, tree)
    (home / "tree").mkdir()
    assert [one.id for one in await swept_in(tmp_path / "w")] == ["x"]
    assert not home.exists()


@aio
async def test_a_copy_that_cannot_be_read_is_left_even_if_a_repository_in_it_was_removed(
    tmp_path: Path,
) -> None:
    path = make(tmp_path / "copy")
    outer = Tree(top="", common_folder=str(tmp_path), path=str(path), base="nonsense")
    inner = Tree(top="", common_folder="/gone", path=str(path / "gone"), prefix="gone/", base="1")
    home = left(tmp_path / "w", DEAD, outer, inner)
    assert await swept_in(tmp_path / "w") == []
    assert home.exists() and path.exists()


@aio
async def test_a_copy_that_cannot_be_read_is_left_rather_than_lost_and_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = make(tmp_path / "copy")
    tree = Tree(top="", common_folder=str(tmp_path), path=str(path), base="nonsense")
    home = left(tmp_path / "w", DEAD, tree)
    assert await swept_in(tmp_path / "w") == []
    assert await swept_in(tmp_path / "w") == []
    assert home.exists() and path.exists()
    assert [record.levelname for record in caplog.records].count("WARNING") == 1


@aio
async def test_litter_without_a_record_is_removed_when_it_is_old(tmp_path: Path) -> None:
    (tmp_path / ".new-old").mkdir()
    (tmp_path / ".new-fresh").mkdir()
    (tmp_path / "strange").mkdir()
    for name in (".new-old", "strange"):
        os.utime(tmp_path / name, (1, 1))
    assert await swept_in(tmp_path) == []
    assert sorted(os.listdir(tmp_path)) == [".new-fresh", "strange"]


@aio
async def test_one_sweeps_at_a_time(tmp_path: Path) -> None:
    home = left(tmp_path / "w", DEAD)
    lock = try_lock(tmp_path / "w" / LOCK)
    assert lock is not None
    with lock:
        assert await swept_in(tmp_path / "w") == []
    assert home.exists()
    assert len(await swept_in(tmp_path / "w")) == 1


@aio
async def test_nothing_to_sweep_is_nothing_to_say(tmp_path: Path) -> None:
    assert await swept_in(tmp_path / "gone") == []
    assert not (tmp_path / "gone").exists()
