from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest

from dragoman.client.permissions import Question
from dragoman.dialects.acp.v1 import ToolCallLocation, ToolCallUpdate
from dragoman.policy import Approver, Policy, approver
from dragoman.rpc.tasks import Stopped
from dragoman.runs import changed_files
from dragoman.runs.changed_files import (
    HASHED_FILE_SIZE,
    ChangeWatch,
    ViolationWatch,
    same,
    walk,
)
from dragoman.verify.environment import make_repository
from tests.aio import aio


@aio
async def test_files_that_were_made_changed_or_removed_are_reported(tmp_path: Path) -> None:
    for name in ("kept.txt", "changed.txt", "removed.txt"):
        (tmp_path / name).write_text("before")
    before = await ChangeWatch.take(tmp_path)
    assert await before.changed() == ()
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "made.txt").write_text("x")
    (tmp_path / "changed.txt").write_text("after it")
    (tmp_path / "removed.txt").unlink()
    assert await before.changed() == ("changed.txt", "d/made.txt", "removed.txt")


@aio
async def test_what_git_ignores_and_what_git_keeps_is_left_out(tmp_path: Path) -> None:
    await make_repository(tmp_path)
    (tmp_path / ".gitignore").write_text("cache/\n")
    before = await ChangeWatch.take(tmp_path)
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "x").write_text("x")
    (tmp_path / ".git" / "note").write_text("x")
    (tmp_path / "made.txt").write_text("x")
    assert await before.changed() == ("made.txt",)


@pytest.mark.skipif(sys.platform == "win32", reason="named pipes of POSIX")
@aio
async def test_files_that_git_does_not_judge_in_time_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changed_files, "IGNORED_TIMEOUT", 0.5)
    await make_repository(tmp_path)
    before = await ChangeWatch.take(tmp_path)
    # git waits for a writer of the pipe, at every check anew.
    os.mkfifo(tmp_path / ".gitignore")
    (tmp_path / "made.txt").write_text("x")
    assert await before.changed() == (".gitignore", "made.txt")


@aio
async def test_what_dragoman_writes_in_its_own_directories_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "home" / ".state"
    (state / "worktrees" / "w").mkdir(parents=True)
    monkeypatch.setenv("DRAGOMAN_STATE_HOME", str(state))
    home = await ChangeWatch.take(tmp_path / "home")
    inside = await ChangeWatch.take(state / "worktrees" / "w")
    (state / "sessions.db-wal").touch()
    (state / "worktrees" / "w" / "a.txt").touch()
    (tmp_path / "home" / "b.txt").touch()
    assert await home.changed() == ("b.txt",)
    assert await inside.changed() == ("a.txt",), "a worktree for a delegation"


@aio
async def test_a_file_beyond_what_is_looked_at_is_not_called_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changed_files, "MAX_FILES", 1)
    (tmp_path / "a").write_text("x")
    (tmp_path / "b").write_text("x")
    before = await ChangeWatch.take(tmp_path)
    (tmp_path / "a").unlink()
    assert await before.changed() == ("a",)


NEVER = threading.Event()


def test_every_file_and_link_is_marked_and_nothing_of_git(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").touch()
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c").write_text("x")
    os.symlink("/etc", tmp_path / "link")
    marks = walk(tmp_path, NEVER)
    assert marks.complete
    assert sorted(marks.files) == ["a/b/c", "link"]
    assert marks.files["link"].digest == b"/etc"


def test_shallow_files_come_first_where_there_are_too_many(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "deep").touch()
    (tmp_path / "z").touch()
    marks = walk(tmp_path, NEVER, max_entries=1)
    assert list(marks.files) == ["z"]
    assert not marks.complete


def test_a_touch_is_not_a_change_and_a_new_mode_is(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text("x")
    before = walk(tmp_path, NEVER).files["f"]
    os.utime(file, (1, 1))
    assert same(before, walk(tmp_path, NEVER).files["f"])
    file.chmod(0o755)
    assert not same(before, walk(tmp_path, NEVER).files["f"])


def test_a_file_too_large_to_read_is_judged_by_its_times(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(bytes(HASHED_FILE_SIZE + 1))
    before = walk(tmp_path, NEVER).files["f"]
    assert before.digest == b""
    assert same(before, walk(tmp_path, NEVER).files["f"])
    os.utime(file, (1, 1))
    assert not same(before, walk(tmp_path, NEVER).files["f"])


def test_no_more_is_read_than_was_said(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_text("four")
    marks = walk(tmp_path, NEVER, hashed_size=8)
    assert [bool(mark.digest) for mark in marks.files.values()] == [True, True, False]


def test_a_fifo_does_not_hold_the_walk_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert walk(tmp_path, NEVER).files["pipe"].digest == b""


def test_names_limit_the_walk_and_missing_ones_are_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    (tmp_path / "b").touch()
    assert list(walk(tmp_path, NEVER, names=["b", "gone"]).files) == ["b"]


def test_an_abandoned_walk_stops(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    stop = threading.Event()
    stop.set()
    with pytest.raises(Stopped):
        walk(tmp_path, stop)


def test_a_walk_of_many_directories_without_files_ends_at_its_limit(tmp_path: Path) -> None:
    for name in "abcd":
        (tmp_path / name / "below").mkdir(parents=True)
    (tmp_path / "d" / "below" / "file").touch()
    assert not walk(tmp_path, NEVER, max_entries=5).complete
    found = walk(tmp_path, NEVER, max_entries=9)
    assert found.complete and list(found.files) == ["d/below/file"]


def test_an_abandoned_walk_stops_in_directories_without_files(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    (tmp_path / "empty").mkdir()
    with pytest.raises(Stopped):
        walk(tmp_path, stop)


@aio
async def test_no_violation_is_claimed_if_an_answer_of_the_turn_is_no_longer_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(approver, "MAX_RULINGS", 4)
    permit = Approver(Policy(preset="approve-all"), peer="p", workspace=str(tmp_path))
    edit, read = _request("edit", "made.txt"), _request("read", "other.txt")
    turns = [([read] * 4, ("made.txt",)), ([edit], ()), ([edit, *[read] * 6], ())]
    for number, (requests, expected) in enumerate(turns):
        watch = await ViolationWatch.take(tmp_path, permit)
        for each in requests:
            await permit(each)
            assert len(permit.rulings) <= 4
        (tmp_path / "made.txt").write_text(f"{number}")
        assert await watch.violations() == expected


def _request(kind: str, path: str) -> Question:
    call = ToolCallUpdate(tool_call_id="1", kind=kind, locations=[ToolCallLocation(path=path)])
    return Question("s", "1", kind, kind, (), call)
