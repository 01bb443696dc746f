"""Patches over several repositories, kept in files, applied whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dragoman.delegation.worktree import patch as worktree_patch
from dragoman.delegation.worktree.isolation import Isolation
from dragoman.delegation.worktree.patch import (
    Conflict,
    FileStat,
    capture,
    keep_patch,
    patch_of,
    stat_of,
)
from dragoman.delegation.worktree.records import Tree
from dragoman.errors import FileFailed, IsolationFailed
from dragoman.runs import git
from dragoman.transports.process.query import ProgramOutput
from tests.aio import aio
from tests.unit.delegation.worktree.repositories import make, tree


@aio
async def test_a_conflict_is_reported_by_its_file_and_nothing_is_changed(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")
    async with Isolation(folder, folder=tmp_path / "worktrees") as isolation:
        work = isolation.workspace
        (work / "a.txt").write_text("theirs\n")
        (work / "new").write_text("theirs\n")
        (work / "src" / "b.py").write_text("b = 2\n")
        (work / "fine").write_text("theirs\n")
        (folder / "a.txt").write_text("mine\n")
        (folder / "new").write_text("mine\n")
        (folder / "src" / "b.py").unlink()
        before = tree(folder)
        applied = await isolation.apply()
        patch = await isolation.patch()
    assert not applied.ok
    assert tree(folder) == before
    assert {one.path: one.why for one in applied.conflicts} == {
        "a.txt": "patch does not apply",
        "new": "already exists in working directory",
        "src/b.py": "No such file or directory",
    }
    assert (tmp_path / "patches" / f"{isolation.id}.patch").read_bytes() == patch
    assert applied.kept == str(tmp_path / "patches" / f"{isolation.id}.patch")


@aio
async def test_the_diffstat_counts_lines_and_names_binary_files(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")
    async with Isolation(folder, folder=tmp_path / "worktrees") as isolation:
        (isolation.workspace / "a.txt").write_text((folder / "a.txt").read_text() + "one\ntwo\n")
        (isolation.workspace / "b n.bin").write_bytes(b"\0\1\2")
        kept = await isolation.save()
    assert kept is not None
    assert await stat_of(kept) == (FileStat("a.txt", 2, 0), FileStat("b n.bin", None, None))
    kept.write_text("no patch")
    assert await stat_of(kept) == ()


@aio
async def test_a_patch_was_applied_although_its_file_cannot_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make(tmp_path / "repo")

    unlink = os.unlink

    def refused(path: str | Path, **options: Any) -> None:
        if str(path).endswith(".patch"):
            raise PermissionError(path)
        unlink(path, **options)

    async with Isolation(folder, folder=tmp_path / "worktrees") as isolation:
        (isolation.workspace / "a.txt").write_text("done")
        with monkeypatch.context() as context:
            context.setattr("dragoman.delegation.worktree.patch.os.unlink", refused)
            assert (await isolation.apply()).ok
    assert (folder / "a.txt").read_text() == "done"


@aio
async def test_a_patch_whose_deletion_git_could_not_carry_out_is_kept_and_not_applied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make(tmp_path / "repo")
    ask = git.ask

    async def unremoved(args: Sequence[str], **options: Any) -> ProgramOutput:
        answer = await ask(args, **options)
        if args[0] != "apply" or "--numstat" in args:
            return answer
        warning = "warning: unable to unlink 'a.txt': Permission denied\n"
        return replace(answer, errors=warning)

    async with Isolation(folder, folder=tmp_path / "worktrees") as isolation:
        (isolation.workspace / "a.txt").unlink()
        monkeypatch.setattr(git, "ask", unremoved)
        with pytest.raises(IsolationFailed, match="unable to unlink 'a.txt'") as raised:
            await isolation.apply()
    assert raised.value.may_have_run
    (kept,) = (tmp_path / "patches").iterdir()
    assert str(kept) in str(raised.value)


@aio
async def test_a_patch_never_goes_over_a_link(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")
    (tmp_path / "precious").mkdir()
    async with Isolation(folder, folder=tmp_path / "worktrees") as isolation:
        (isolation.workspace / "out").mkdir()
        (isolation.workspace / "out" / "x").write_text("x")
        (folder / "out").symlink_to(tmp_path / "precious")
        applied = await isolation.apply()
    assert not applied.ok
    assert list((tmp_path / "precious").iterdir()) == []


@aio
async def test_a_patch_that_changes_nothing_needs_no_git(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")
    async with Isolation(folder, folder=tmp_path / "worktrees") as isolation:
        assert (await isolation.apply()).ok
        assert await isolation.save() is None
        assert await isolation.files() == ()


@aio
async def test_a_copy_that_is_not_a_worktree_any_more_is_not_taken_for_the_one_around(
    tmp_path: Path,
) -> None:
    folder = make(tmp_path / "repo")
    (folder / "inner").mkdir()
    lost = Tree(top="", common_folder="", path=str(folder / "inner"), base="x")
    with pytest.raises(IsolationFailed, match="no longer a worktree"):
        await patch_of([lost])


def test_a_refusal_that_names_no_file_is_reported_as_it_is() -> None:
    answer = ProgramOutput(1, b"", "error: corrupt patch at line 3\n")
    assert worktree_patch._conflicts(answer, ["a"]) == (Conflict(".", "corrupt patch at line 3"),)


def test_a_line_number_alone_is_a_reason_too() -> None:
    answer = ProgramOutput(1, b"", "error: patch failed: a:12\n")
    assert worktree_patch._conflicts(answer, ["a", "b"]) == (
        Conflict("a", "its content has changed"),
    )


def test_a_patch_is_kept_whole_for_the_user_alone(tmp_path: Path) -> None:
    kept = keep_patch(tmp_path / "patches", "x", b"data")
    assert kept.read_bytes() == b"data"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert kept.parent.stat().st_mode & 0o777 == 0o700
    assert list(kept.parent.iterdir()) == [kept]
    (tmp_path / "file").touch()
    with pytest.raises(FileFailed):
        keep_patch(tmp_path / "file" / "patches", "x", b"data")


def spying_filter(folder: Path, trace: Path) -> None:
    """A filter in a repository's own configuration that leaves a trace when it runs."""
    with (folder / ".git" / "config").open("a") as config:
        config.write(f'[filter "x.y"]\n\tclean = "touch {trace}; cat"\n\trequired = true\n')
    (folder / ".gitattributes").write_text("* filter=x.y\n")


@aio
async def test_a_copy_whose_git_file_was_tampered_with_is_read_as_it_was_made(
    tmp_path: Path,
) -> None:
    folder = make(tmp_path / "repo")
    trap = make(tmp_path / "trap")
    spying_filter(trap, tmp_path / "ran")
    async with Isolation(folder, folder=tmp_path / "worktrees") as isolation:
        (isolation.workspace / "a.txt").write_text("done\n")
        (isolation.workspace / ".gitattributes").write_text("* filter=x.y\n")
        (isolation.workspace / ".git").write_text(f"gitdir: {trap}/.git\n")
        assert b"+done" in await isolation.patch()
        (isolation.workspace / ".git").unlink()
        assert (await isolation.apply()).ok
    assert (folder / "a.txt").read_text() == "done\n"
    assert not (tmp_path / "ran").exists()


@aio
async def test_a_repository_made_in_the_copy_does_not_have_its_filters_run(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")
    async with Isolation(folder, folder=tmp_path / "worktrees") as isolation:
        inner = make(isolation.workspace / "inner")
        spying_filter(inner, tmp_path / "ran")
        (inner / "a.txt").write_text("done\n")
        assert b"+done" in await isolation.patch()
    assert not (tmp_path / "ran").exists()


@aio
async def test_a_repository_without_commits_is_passed_over_by_every_version_of_git(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make(tmp_path / "repo")
    make(folder / "unborn", commit=False)
    stage = git.stage_everything

    async def newer(*args: Any, **options: Any) -> tuple[dict[str, str], ProgramOutput]:
        env, answer = await stage(*args, **options)
        told = answer.errors.partition("error: unable")[0].rstrip("\n")
        told += f"\nerror: unable to index file '{named}/'\n"
        return env, replace(answer, errors=told)

    monkeypatch.setattr(git, "stage_everything", newer)
    found, _ = await git.find_repository(folder)
    assert found is not None
    named = "unborn"
    assert (await capture(found, folder, tmp_path)).nested == ("unborn",)
    named = "another"
    with pytest.raises(IsolationFailed, match="unable to index file 'another/'"):
        await capture(found, folder, tmp_path)
