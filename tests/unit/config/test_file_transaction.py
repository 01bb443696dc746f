"""Files changed together: replaced whole, with mode, owner and link kept, or put back."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from dragoman.config import file_transaction as changes_module
from dragoman.config.file_transaction import Change, FileTransaction, show
from dragoman.errors import FileFailed, UsageError


def test_changes_stay_where_nothing_goes_wrong(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "deep" / "new"
    old.write_bytes(b"1\n")
    with FileTransaction() as changes:
        changes.write(old, b"2\n", expected=b"1\n")
        changes.write(new, b"3\n")
        assert changes.made() == [Change(old, b"1\n", b"2\n"), Change(new, None, b"3\n")]
    assert (old.read_bytes(), new.read_bytes()) == (b"2\n", b"3\n")


def test_an_exception_puts_every_file_back_and_goes_on(tmp_path: Path) -> None:
    old, new, other = tmp_path / "old", tmp_path / "new", tmp_path / "other"
    old.write_bytes(b"1")
    other.write_bytes(b"x")
    with pytest.raises(KeyboardInterrupt), FileTransaction() as changes:
        changes.write(old, b"2")
        changes.write(old, b"3")
        changes.write(new, b"4")
        changes.watch(other)
        other.write_bytes(b"y")
        raise KeyboardInterrupt
    assert old.read_bytes() == b"1"
    assert other.read_bytes() == b"x"
    assert sorted(tmp_path.iterdir()) == [old, other]


def test_a_file_that_was_changed_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"theirs")
    with (
        pytest.raises(UsageError, match="changed by another program"),
        FileTransaction() as changes,
    ):
        changes.write(file, b"ours", expected=b"as we read it")
    assert file.read_bytes() == b"theirs"


def test_a_file_that_cannot_be_deleted_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    file = tmp_path / "file"
    file.write_bytes(b"1")
    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(FileFailed, match=f"{file}.*cannot be deleted: Operation not permitted"):
        FileTransaction().remove(file)


def test_a_write_of_the_same_bytes_is_not_a_change(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"same")
    before = file.stat()
    with FileTransaction() as changes:
        changes.write(file, b"same")
        assert changes.made() == []
    assert file.stat().st_ino == before.st_ino


def test_what_cannot_be_put_back_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"1")
    changes = FileTransaction()
    changes.write(file, b"2")

    def broken(path: Path, data: bytes) -> None:
        raise FileFailed(str(path), "the disk is gone")

    monkeypatch.setattr(changes_module, "write_file", broken)
    with pytest.raises(FileFailed, match="could not be restored"):
        changes.undo()


def test_changes_are_shown_as_a_diff(tmp_path: Path) -> None:
    file = tmp_path / "f"
    assert show([Change(file, b"a\nb\n", b"a\nc"), Change(file, None, b"x\n")]) == (
        f"--- {file}\n+++ {file}\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n\\ No newline at end of file\n"
        f"--- /dev/null\n+++ {file}\n@@ -0,0 +1 @@\n+x\n"
    )


def test_a_removed_file_comes_back_after_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes(b"a = 1\n")
    with pytest.raises(ValueError), FileTransaction() as changes:
        changes.remove(path)
        changes.remove(tmp_path / "never-there")
        assert not path.exists()
        (made,) = changes.made()
        assert (made.before, made.after) == (b"a = 1\n", None)
        raise ValueError
    assert path.read_bytes() == b"a = 1\n"
