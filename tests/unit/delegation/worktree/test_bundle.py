"""Bundles with uncommitted changes: what they contain; the repository itself is only read."""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from dragoman.delegation.worktree.bundle import Bundle, ignored_files, pack
from dragoman.delegation.worktree.sent_tree import unpack
from dragoman.errors import UsageError
from tests.aio import aio
from tests.unit.delegation.worktree.repositories import git, make, tree, with_submodule


def facts(folder: Path) -> dict[str, bytes]:
    """All files of git in a repository, byte for byte."""
    store = folder / ".git"
    return {str(path): path.read_bytes() for path in sorted(store.rglob("*")) if path.is_file()}


async def there(folder: Path, place: Path, **options: object) -> tuple[Bundle, Path]:
    """Pack a directory and unpack it elsewhere."""
    file = place.parent / f"{place.name}.bundle"
    bundle = await pack(folder, file, **options)  # type: ignore[arg-type]
    sent = await unpack(file, bundle, folder=place)
    return bundle, Path(sent.workspace)


@aio
async def test_the_digest_of_a_bundle_is_computed_without_blocking_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest, threads = hashlib.file_digest, list[threading.Thread]()

    def noted(*args: Any) -> Any:
        threads.append(threading.current_thread())
        return digest(*args)

    monkeypatch.setattr(hashlib, "file_digest", noted)
    await there(make(tmp_path / "repo"), tmp_path / "far")
    assert len(threads) == 2 and threading.main_thread() not in threads


@aio
async def test_changed_staged_untracked_and_deleted_files_are_unpacked_unchanged(
    tmp_path: Path,
) -> None:
    folder = make(tmp_path / "repo")
    (folder / "a.txt").write_text("staged\n")
    git(folder, "add", "a.txt")
    (folder / "a.txt").write_text("changed after staging\n")
    (folder / "new file ü\n.txt").write_text("untracked\n")
    (folder / "src" / "b.py").unlink()
    (folder / "run").write_text("#!/bin/sh\n")
    (folder / "run").chmod(0o755)
    (folder / "link").symlink_to("a.txt")
    (folder / "bytes").write_bytes(bytes(range(256)))
    (folder / ".env").write_text("SECRET=1\n")
    before, status = facts(folder), git(folder, "status", "--porcelain", "-z")
    before = facts(folder)
    _, arrived = await there(folder, tmp_path / "far")
    assert facts(folder) == before
    (folder / ".env").unlink()
    (folder / "bytes").unlink()
    assert (arrived / "bytes").read_bytes() == bytes(range(256))
    (arrived / "bytes").unlink()
    assert tree(arrived) == tree(folder)
    assert os.readlink(arrived / "link") == "a.txt" and os.access(arrived / "run", os.X_OK)
    told = git(arrived, "status", "--porcelain", "-z")
    assert sorted(told.split("\0")) == sorted(status.replace("?? bytes\0", "").split("\0"))
    assert git(arrived, "log", "--format=%s").strip() == "everything"
    assert git(arrived, "rev-parse", "HEAD") == git(folder, "rev-parse", "HEAD")


@aio
async def test_ignored_files_are_sent_only_if_listed(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")
    (folder / ".worktreeinclude").write_text(".env\n/cache/keep/\n")
    (folder / ".env").write_text("PORT=1\n")
    for name in ("cache/keep/deep/x", "cache/other"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    named = await ignored_files(folder)
    assert named == (".env", "cache/keep/deep/x")
    _, arrived = await there(folder, tmp_path / "none")
    assert not (arrived / ".env").exists()
    _, arrived = await there(folder, tmp_path / "some", included=named)
    assert (arrived / ".env").read_text() == "PORT=1\n"
    assert (arrived / "cache" / "keep" / "deep" / "x").exists()
    assert not (arrived / "cache" / "other").exists()
    assert git(arrived, "status", "--porcelain").split() == ["??", ".worktreeinclude"]


@aio
async def test_without_worktreeinclude_no_ignored_files_are_sent(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")
    (folder / ".env").write_text("PORT=1\n")
    assert await ignored_files(folder) == ()


@aio
async def test_too_many_ignored_files_are_rejected(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")
    (folder / ".worktreeinclude").write_text("cache/\n")
    (folder / "cache").mkdir()
    for number in range(1001):
        (folder / "cache" / str(number)).touch()
    with pytest.raises(UsageError, match="matches 1001 files"):
        await ignored_files(folder)


@aio
async def test_known_commits_make_the_bundle_smaller(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")
    (folder / "large").write_bytes(os.urandom(200_000))
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "large")
    first, _ = await there(folder, tmp_path / "far")
    (folder / "a.txt").write_text("more\n")
    second, arrived = await there(folder, tmp_path / "far", known=[first.head, "0" * 40, "--all"])
    assert second.base == (first.head,)
    assert first.size > 200_000 and second.size < 2000
    assert tree(arrived / "src") == tree(folder / "src")
    assert (arrived / "a.txt").read_text() == "more\n"


@aio
async def test_a_repository_without_commits_is_sent_completely(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo", commit=False)
    bundle, arrived = await there(folder, tmp_path / "far")
    assert bundle.head == ""
    assert tree(arrived) == tree(folder)


@aio
async def test_a_shallow_clone_is_sent_without_its_history(tmp_path: Path) -> None:
    origin = make(tmp_path / "origin")
    (origin / "a.txt").write_text("second\n")
    git(origin, "commit", "-qam", "second")
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{origin}", "repo")
    folder = tmp_path / "repo"
    (folder / "a.txt").write_text("third\n")
    bundle, arrived = await there(folder, tmp_path / "far", known=["1" * 40])
    assert bundle.head != bundle.sent_head and bundle.base == ()
    assert tree(arrived) == tree(folder)
    assert git(arrived, "status", "--porcelain").split() == ["M", "a.txt"]


@aio
async def test_files_of_a_submodule_are_sent_as_plain_files(tmp_path: Path) -> None:
    folder = with_submodule(tmp_path / "repo")
    (folder / "lib" / "a.txt").write_text("changed inside\n")
    (folder / "lib" / "new").write_text("new inside\n")
    bundle, arrived = await there(folder, tmp_path / "far")
    assert bundle.nested == ("lib",)
    assert tree(arrived) == tree(folder)
    assert git(arrived, "rev-parse", "HEAD^").strip() == bundle.head
    git(arrived, "reset", "-q", "--hard")
    assert (arrived / "lib" / "a.txt").read_text() == "changed inside\n"


@aio
async def test_a_subdirectory_becomes_the_workspace(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")
    (folder / "untracked").write_text("outside of the workspace\n")
    bundle, arrived = await there(folder / "src", tmp_path / "far")
    assert bundle.subfolder == "src" and arrived.name == "src"
    assert (arrived / "b.py").exists() and not (arrived.parent / "untracked").exists()


@aio
async def test_a_bundle_over_the_size_limit_is_rejected_and_removed(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")
    file = tmp_path / "it.bundle"
    with pytest.raises(UsageError, match="clone it on the other machine"):
        await pack(folder, file, max_size=10)
    assert not file.exists()


@aio
async def test_a_directory_without_a_repository_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not in a git repository"):
        await pack(tmp_path, tmp_path / "it.bundle")
