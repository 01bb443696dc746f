"""The changes of a workspace since its last commit."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.delegation.worktree import uncommitted as module
from dragoman.delegation.worktree.patch_files import files_in
from dragoman.delegation.worktree.uncommitted import uncommitted
from dragoman.errors import UsageError
from tests.aio import aio
from tests.unit.delegation.worktree.repositories import git, make


@aio
async def test_staged_changed_and_untracked_files_are_in_the_patch_and_ignored_ones_are_not(
    tmp_path: Path,
) -> None:
    folder = make(tmp_path / "repo")
    (folder / "a.txt").write_text("changed\n")
    (folder / "staged").write_text("staged\n")
    git(folder, "add", "staged")
    (folder / "untracked").write_text("untracked\n")
    (folder / ".env").write_text("SECRET=1\n")
    before = git(folder, "status", "--porcelain", "--ignored"), git(folder, "count-objects")
    patch, complete = await uncommitted(folder)
    assert complete
    assert [file.path for file in files_in(patch)] == ["a.txt", "staged", "untracked"]
    # Neither the index nor the objects have changed.
    assert before == (
        git(folder, "status", "--porcelain", "--ignored"),
        git(folder, "count-objects"),
    )


@aio
async def test_a_repository_without_commits_is_compared_with_an_empty_tree(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo", commit=False)
    patch, _ = await uncommitted(folder)
    assert "src/b.py" in [file.path for file in files_in(patch)]


@aio
async def test_a_directory_without_git_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not in a git repository"):
        await uncommitted(tmp_path)


@aio
async def test_a_patch_over_the_size_limit_ends_with_a_complete_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make(tmp_path / "repo")
    (folder / "a.txt").write_text("changed\n")
    (folder / "large").write_text("line\n" * 5000)
    monkeypatch.setattr(module, "MAX_SIZE", 5000)
    patch, complete = await uncommitted(folder)
    assert not complete
    assert [file.path for file in files_in(patch)] == ["a.txt"]
