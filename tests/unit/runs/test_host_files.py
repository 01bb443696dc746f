"""Files of the remote side of `--host`: ids that are names, and how long files are kept."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest

from dragoman.broker.lock import try_lock
from dragoman.errors import UsageError
from dragoman.runs.host_files import KEPT_AGE, is_id, make_folder, working_directory


def test_an_id_cannot_name_another_file() -> None:
    assert is_id("j-0123456789") and is_id("abcd")
    for text in ("", "abc", "../x-1", "a/b-cd", "a.b.c.d", "j-1234\n", "x" * 65):
        assert not is_id(text)


def test_old_files_are_removed_and_the_others_stay(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "jobs"
    make_folder(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    old, new = folder / "old", folder / "new"
    for file in (old, new):
        file.touch()
    then = time.time() - KEPT_AGE - 1
    os.utime(old, (then, then))
    make_folder(folder)
    assert list(folder.iterdir()) == [new]


def test_the_files_of_a_command_that_still_runs_are_kept(tmp_path: Path) -> None:
    folder = tmp_path / "commands"
    make_folder(folder)
    lock = try_lock(folder / "j-long.running")
    assert lock is not None
    (folder / "j-long.out").touch()
    then = time.time() - KEPT_AGE - 1
    for file in folder.iterdir():
        os.utime(file, (then, then))
    make_folder(folder)
    assert {file.name for file in folder.iterdir()} == {"j-long.out", "j-long.running"}
    lock.release(remove=False)
    make_folder(folder)
    assert not list(folder.iterdir())


def test_a_directory_is_relative_to_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "work").mkdir()
    assert working_directory("") == tmp_path
    assert working_directory("work") == working_directory("~/work") == tmp_path / "work"
    assert working_directory("/") == Path("/")
    with pytest.raises(UsageError, match="/nowhere is not a directory on the host: correct --cwd"):
        working_directory("nowhere")
    for wrong in ("~no-such-user", "x" * 5000):
        with pytest.raises(UsageError, match="not a directory on the host"):
            working_directory(wrong)
