"""A worktree is written down before it is there, and removed without git's help."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from pathlib import Path

import msgspec
import pytest

from dragoman.delegation.worktree import records
from dragoman.delegation.worktree.records import (
    RECORD,
    Tree,
    WorktreeRecord,
    make_folder,
    read_record,
    read_records,
    remove,
    remove_now,
    remove_tree,
    write_record,
)
from dragoman.transports.process.identity import own_identity
from tests.aio import aio
from tests.unit.delegation.worktree.repositories import git, make


def record(*trees: Tree) -> WorktreeRecord:
    return WorktreeRecord(id="abc", workspace="/w", owner=own_identity(), trees=trees)


def test_a_record_is_read_as_it_was_written_and_replaced_whole(tmp_path: Path) -> None:
    home = make_folder(tmp_path / "worktrees", record())
    assert list(read_records(tmp_path / "worktrees")) == [(home, record())]
    changed = record(Tree(top="/w", common_folder="/w/.git", path="/c", prefix="lib/", base="1"))
    write_record(home, changed)
    assert list(read_records(tmp_path / "worktrees")) == [(home, changed)]
    assert os.listdir(home) == [RECORD]


def test_what_is_not_a_record_is_reported_as_none(tmp_path: Path) -> None:
    assert list(read_records(tmp_path / "gone")) == []
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / RECORD).write_text('{"id": 1')
    (tmp_path / "file").touch()
    assert list(read_records(tmp_path)) == [(tmp_path / "x", None)]


def test_only_the_own_worktree_is_taken_off_the_repositorys_list(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")
    home = make_folder(tmp_path / "worktrees", record())
    git(folder, "worktree", "add", "-q", "--detach", str(home / "repo-abc"))
    git(folder, "worktree", "add", "-q", "--detach", str(tmp_path / "users"))
    # The user's is on a disk that is not mounted just now: `git worktree prune` would forget it.
    os.rename(tmp_path / "users", tmp_path / "unmounted")
    tree = Tree(top=str(folder), common_folder=str(folder / ".git"), path=str(home / "repo-abc"))
    assert remove(home, record(tree))
    assert not home.exists()
    assert os.listdir(folder / ".git" / "worktrees") == ["users"]
    os.rename(tmp_path / "unmounted", tmp_path / "users")
    git(tmp_path / "users", "status")


def test_a_worktree_that_git_had_only_begun_is_forgotten_by_its_name(tmp_path: Path) -> None:
    home = make_folder(tmp_path / "worktrees", record())
    begun = tmp_path / "git" / "worktrees" / "repo-abc"
    begun.mkdir(parents=True)
    tree = Tree(top="", common_folder=str(tmp_path / "git"), path=str(home / "repo-abc"))
    assert remove(home, record(tree))
    assert not begun.parent.exists()


def test_a_removal_can_be_done_again(tmp_path: Path) -> None:
    home = make_folder(tmp_path / "worktrees", record())
    assert remove(home, record())
    assert remove(home, record())


def test_while_the_files_are_removed_the_record_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = make_folder(tmp_path / "worktrees", record())
    (home / "tree").mkdir()
    seen = []
    monkeypatch.setattr(records, "remove_tree", lambda _: seen.append(read_record(home)))
    assert not remove(home, record())
    assert seen == [msgspec.structs.replace(record(), removing=True)]


def test_a_worktree_is_removed_even_if_the_disk_has_no_room_for_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(folder: Path, record: WorktreeRecord) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    home = make_folder(tmp_path / "worktrees", record())
    monkeypatch.setattr(records, "write_record", full)
    assert remove(home, record())
    assert not home.exists()


def test_read_only_folders_and_links_are_removed_and_links_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "x").touch()
    tree = tmp_path / "tree"
    (tree / "locked").mkdir(parents=True)
    (tree / "locked" / "x").touch()
    (tree / "link").symlink_to(precious)
    (tree / "locked").chmod(0o500)
    remove_tree(tree)
    assert not tree.exists()
    (tmp_path / "link").symlink_to(precious)
    remove_tree(tmp_path / "link")
    assert os.listdir(tmp_path) == ["precious"]
    assert os.listdir(precious) == ["x"]


@aio
async def test_a_worktree_that_is_not_removed_in_time_is_reported_and_left_to_a_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    home = make_folder(tmp_path / "worktrees", record())
    released = threading.Event()
    monkeypatch.setattr(records, "REMOVE_TIMEOUT", 0.01)
    monkeypatch.setattr(records, "remove", lambda *_: released.wait(10))
    assert not await remove_now(home, record())
    released.set()
    assert "the worktree cannot be removed" in caplog.text
    assert list(read_records(tmp_path / "worktrees")) == [(home, record())]


@aio
async def test_a_worktree_is_removed_even_if_the_caller_is_cancelled(tmp_path: Path) -> None:
    home = make_folder(tmp_path / "worktrees", record())
    async with asyncio.TaskGroup() as group:
        task = group.create_task(remove_now(home, record()))
        asyncio.get_running_loop().call_soon(task.cancel)
    assert task.cancelled()
    assert not home.exists()
