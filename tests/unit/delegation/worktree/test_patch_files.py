"""Splitting a git patch into its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.delegation.worktree import patch_files
from dragoman.delegation.worktree.isolation import Isolation
from dragoman.delegation.worktree.patch_files import files_in
from dragoman.events.words import FileOp
from tests.aio import aio
from tests.unit.delegation.worktree.repositories import make


@aio
async def test_every_kind_of_change_in_a_real_patch_is_recognised(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")
    async with Isolation(folder, folder=tmp_path / "worktrees") as isolation:
        work = isolation.workspace
        (work / "a.txt").write_text("one\n2\nthree\nfour\nfive\nsix\nseven\neight")
        (work / "src" / "b.py").unlink()
        (work / "new file.txt").write_text("diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ no hunk\n")
        (work / 'quo"te\t\u00fc.txt').write_text("x\n")
        (work / "empty").touch()
        (work / "picture.bin").write_bytes(b"\0\1\2")
        patch = await isolation.patch()
    found = {file.path: file for file in files_in(patch)}
    assert {path: file.op for path, file in found.items()} == {
        "a.txt": FileOp.MODIFY,
        "empty": FileOp.ADD,
        "new file.txt": FileOp.ADD,
        "picture.bin": FileOp.ADD,
        'quo"te\t\u00fc.txt': FileOp.ADD,
        "src/b.py": FileOp.DELETE,
    }
    changed = found["a.txt"]
    assert (changed.added, changed.removed, changed.cut) == (2, 1, False)
    assert changed.diff.startswith("@@ -1,7 +1,8 @@\n one\n-two\n+2\n")
    assert changed.diff.endswith("+eight\n\\ No newline at end of file")
    assert found["new file.txt"].added == 4
    assert found["picture.bin"].binary and found["picture.bin"].diff == ""
    assert found["empty"].diff == "" and not found["empty"].binary
    assert found["src/b.py"].removed == 1


def test_a_moved_file_has_both_paths() -> None:
    patch = (
        b"some words before\ndiff --git a/old name b/new name\nsimilarity index 90%\n"
        b"rename from old name\nrename to new name\n--- a/old name\n+++ b/new name\n"
        b"@@ -1 +1 @@\n-a\n+b\n"
    )
    (file,) = files_in(patch)
    assert (file.path, file.old_path, file.op) == ("new name", "old name", FileOp.MOVE)


def test_quoted_names_without_hunks_are_read_from_the_header() -> None:
    patch = b'diff --git "a/t\\tab \\303\\274" "b/t\\tab \\303\\274"\nold mode 100644\n'
    assert [file.path for file in files_in(patch)] == ["t\tab \u00fc"]


def test_a_long_file_is_truncated_and_an_empty_patch_has_no_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(patch_files, "MAX_FILE_SIZE", 20)
    patch = b"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -0,0 +1,9 @@\n" + b"+line\n" * 9
    (file,) = files_in(patch)
    assert file.cut and len(file.diff) == 20 and file.added == 9
    assert files_in(b"") == () and files_in(b"no patch at all\n") == ()
