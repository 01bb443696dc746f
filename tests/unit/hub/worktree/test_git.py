"""git is run within bounds, finds its repository, and leaves the user's index alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.errors import IsolationFailed, ProgramNotFound, UsageError
from dragoman.hub.worktree import git
from tests.aio import aio
from tests.unit.hub.worktree import repositories
from tests.unit.hub.worktree.repositories import make


@aio
async def test_an_answer_has_the_output_and_a_refusal_the_reason(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")
    answer = await git.ask(("rev-parse", "--abbrev-ref", "HEAD"), cwd=folder)
    assert (answer.ok, answer.text) == (True, "main")
    with pytest.raises(IsolationFailed, match="`git cat-file` in .* failed: Not a valid object"):
        await git.demand(("cat-file", "-p", "nothing"), cwd=folder)


@aio
async def test_an_answer_that_is_too_long_or_too_late_is_cut(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")
    long = await git.ask(("cat-file", "-p", "HEAD:a.txt"), cwd=folder, limit_size=3)
    assert long.cut and not long.ok
    late = await git.ask(("-c", "alias.wait=!sleep 600", "wait"), cwd=folder, timeout=0.2)
    assert late.cut
    assert git.describe(late, 0.2) == "it did not end within 0.2 s or printed too much"


@aio
async def test_without_git_the_error_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ProgramNotFound, match="git"):
        await git.ask(("version",), cwd=tmp_path)


@aio
async def test_a_repository_is_found_from_below_and_in_a_worktree(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")
    found, _ = await git.find_repository(folder / "src")
    assert found == git.Repository(folder, folder / ".git", folder / ".git")
    repositories.git(folder, "worktree", "add", "-q", str(tmp_path / "other"))
    found, _ = await git.find_repository(tmp_path / "other")
    assert found is not None
    assert found.common_folder == folder / ".git"
    assert found.git_folder == folder / ".git" / "worktrees" / "other"
    assert await git.find_repository(tmp_path) == (
        None,
        "not a git repository (or any of the parent directories): .git",
    )


@aio
async def test_staging_reads_the_users_index_and_writes_another(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")
    (folder / "a.txt").write_text("x")
    (folder / "outside").write_text("untracked")
    (folder / "src" / "inside").write_text("untracked")
    before = (folder / ".git" / "index").read_bytes()
    repository, _ = await git.find_repository(folder)
    assert repository is not None
    env, answer = await git.stage_everything(
        repository, folder / "src", tmp_path / "index", objects=tmp_path / "objects"
    )
    assert answer.ok
    listed = await git.ask(("ls-files",), cwd=folder, env=env)
    # What is untracked elsewhere in the repository is none of our business.
    assert listed.text.split() == [".gitignore", "a.txt", "src/b.py", "src/inside"]
    assert (folder / ".git" / "index").read_bytes() == before


@aio
async def test_a_change_within_the_same_tick_as_the_index_is_seen(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")
    repository, _ = await git.find_repository(folder)
    assert repository is not None
    git.copy_index(repository, tmp_path / "index")
    original = (folder / ".git" / "index").stat().st_mtime_ns
    assert (tmp_path / "index").stat().st_mtime_ns == original


@aio
async def test_a_path_with_a_colon_in_it_works(tmp_path: Path) -> None:
    folder = make(tmp_path / 'a:b "c"')
    repository, _ = await git.find_repository(folder)
    assert repository is not None
    env, answer = await git.stage_everything(
        repository, folder, tmp_path / "index", objects=tmp_path / "objects"
    )
    assert answer.ok
    # The objects of the repository are found beside the new ones.
    assert (await git.ask(("cat-file", "-e", "HEAD"), cwd=folder, env=env)).ok


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="no folder"):
        git.real_folder(tmp_path / "file")
