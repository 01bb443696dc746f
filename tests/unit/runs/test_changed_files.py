from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.runs import changed_files
from dragoman.runs.changed_files import ChangeWatch
from dragoman.verify.environment import make_repository
from tests.aio import aio


@aio
async def test_files_that_were_made_changed_or_removed_are_told(tmp_path: Path) -> None:
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
