"""Patches from another machine: applied completely or not at all, and never outside the
repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.delegation.worktree.bundle import pack
from dragoman.delegation.worktree.received_patch import apply_received, make_branch
from dragoman.delegation.worktree.sent_tree import result_patch, unpack
from dragoman.errors import IsolationFailed, UsageError
from dragoman.events.words import FileOp
from tests.aio import aio
from tests.unit.delegation.worktree.repositories import git, make, tree, with_submodule


def new_file(path: str, mode: str = "100644", text: str = "x") -> bytes:
    return (
        f"diff --git a/{path} b/{path}\nnew file mode {mode}\nindex 0000000..1111111\n"
        f"--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+{text}\n"
    ).encode()


def read(file: str) -> bytes:
    return Path(file).read_bytes()


def times(folder: Path) -> dict[Path, int]:
    return {path: path.lstat().st_mtime_ns for path in folder.rglob("*")}


@aio
async def test_the_changed_files_and_kinds_of_change_are_reported(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")
    file = tmp_path / "it.bundle"
    sent = await unpack(file, await pack(folder, file), folder=tmp_path / "far")
    there = Path(sent.workspace)
    (there / "a.txt").write_text("changed\n")
    (there / "src" / "b.py").unlink()
    (there / "new").write_text("diff --git a/x b/x\nnew file mode 100644\n")
    data = await result_patch(sent)
    applied = await apply_received(data, folder, patches=tmp_path / "patches", name="it")
    assert applied.ok
    assert {one.path: one.op for one in applied.files} == {
        "a.txt": FileOp.MODIFY,
        "src/b.py": FileOp.DELETE,
        "new": FileOp.ADD,
    }
    assert tree(folder) == tree(there)


@aio
async def test_a_patch_that_no_longer_applies_changes_nothing_and_is_saved(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")
    file = tmp_path / "it.bundle"
    sent = await unpack(file, await pack(folder, file), folder=tmp_path / "far")
    (Path(sent.workspace) / "a.txt").write_text("theirs\n")
    (Path(sent.workspace) / "fine").write_text("fine\n")
    (folder / "a.txt").write_text("mine\n")
    before = tree(folder)
    data = await result_patch(sent)
    applied = await apply_received(data, folder, patches=tmp_path / "patches", name="it")
    assert not applied.ok and applied.conflicts[0].path == "a.txt"
    assert tree(folder) == before
    assert applied.kept is not None and read(applied.kept) == data


@pytest.mark.parametrize(
    "data",
    [
        new_file("../outside"),
        new_file("/etc/outside"),
        new_file(".git/hooks/post-commit"),
        new_file(".git/config"),
        new_file("src/.GIT/config"),
        new_file("out", "120000", "/tmp") + new_file("out/inside"),
        new_file("lib", "160000", "Subproject commit " + "1" * 40),
        b"not a patch\n",
        b"diff --git a/x b/x\n",
        new_file("x").replace(b"@@ -0,0 +1 @@", b"@@ -0,0 +1,9 @@"),
    ],
)
@aio
async def test_a_damaged_patch_or_one_outside_the_repository_changes_nothing(
    tmp_path: Path, data: bytes
) -> None:
    folder = make(tmp_path / "repo")
    before = times(tmp_path)
    patches = tmp_path.parent / f"{tmp_path.name}-patches"
    try:
        applied = await apply_received(data, folder, patches=patches, name="it")
        assert not applied.ok
    except IsolationFailed:
        pass
    assert times(tmp_path) == before


@aio
async def test_an_empty_patch_counts_as_applied(tmp_path: Path) -> None:
    applied = await apply_received(b"", make(tmp_path / "repo"), patches=tmp_path, name="it")
    assert applied.ok and applied.files == ()


@aio
async def test_changes_in_a_submodule_are_applied_to_the_submodule(tmp_path: Path) -> None:
    folder = with_submodule(tmp_path / "repo")
    file = tmp_path / "it.bundle"
    sent = await unpack(file, await pack(folder, file), folder=tmp_path / "far")
    (Path(sent.workspace) / "lib" / "a.txt").write_text("changed there\n")
    git(Path(sent.workspace), "reset", "-q")
    data = await result_patch(sent)
    assert (await apply_received(data, folder, patches=tmp_path / "p", name="it")).ok
    assert (folder / "lib" / "a.txt").read_text() == "changed there\n"
    assert git(folder / "lib", "status", "--porcelain").split() == ["M", "a.txt"]


@aio
async def test_a_branch_has_the_sent_changes_and_the_result_in_one_commit(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")
    (folder / "a.txt").write_text("mine\n")
    file = tmp_path / "it.bundle"
    bundle = await pack(folder, file)
    sent = await unpack(file, bundle, folder=tmp_path / "far")
    (Path(sent.workspace) / "new").write_text("theirs\n")
    data = await result_patch(sent, against="head")
    before, status = tree(folder), git(folder, "status", "--porcelain")
    commit = await make_branch(data, folder, branch="from/box", head=bundle.head, message="result")
    assert git(folder, "rev-parse", "from/box", "from/box^").split() == [commit, bundle.head]
    assert git(folder, "show", "from/box:new", "from/box:a.txt") == "theirs\nmine\n"
    assert (tree(folder), git(folder, "status", "--porcelain")) == (before, status)
    with pytest.raises(UsageError, match="already exists"):
        await make_branch(data, folder, branch="from/box", head=bundle.head, message="result")


@pytest.mark.parametrize("branch", ["-D", "a..b", "", "@{-1}", "refs/heads/x y"])
@aio
async def test_an_invalid_branch_name_is_rejected(tmp_path: Path, branch: str) -> None:
    folder = make(tmp_path / "repo")
    with pytest.raises(UsageError, match="not a valid branch name"):
        await make_branch(b"", folder, branch=branch, head="", message="result")


@aio
async def test_a_branch_needs_the_commit_that_was_sent(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")
    with pytest.raises(UsageError, match="no longer in"):
        await make_branch(b"", folder, branch="b", head="1" * 40, message="result")
    with pytest.raises(UsageError, match="the id of the sent commit is invalid"):
        await make_branch(b"", folder, branch="b", head="HEAD", message="result")
