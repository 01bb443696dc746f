"""The files with the tokens of servers."""

from __future__ import annotations

import errno
import os
import re
import stat
import threading
from pathlib import Path

import pytest

from dragoman.config.token_file import MIN_SIZE, new_token, token_in
from dragoman.errors import UsageError


def test_a_token_is_long_and_random() -> None:
    assert len(new_token()) >= MIN_SIZE and new_token() != new_token()


def test_a_token_is_made_once_and_only_its_user_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "new" / "token"
    token = token_in(path)
    assert len(token) > MIN_SIZE
    assert token_in(path) == token
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.name for one in path.parent.iterdir()] == ["token"]


def test_servers_that_start_together_have_the_same_token(tmp_path: Path) -> None:
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.append(token_in(tmp_path / "token")))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


@pytest.mark.skipif(os.name != "posix", reason="there are no such modes")
def test_a_token_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "token"
    token_in(path)
    path.chmod(0o640)
    with pytest.raises(UsageError, match="other users can read"):
        token_in(path)


@pytest.mark.parametrize("text", [b"", b"short\n", b"\xff" * 40, b"two words " * 4, b"x" * 3000])
def test_a_file_without_a_token_is_refused(text: bytes, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_bytes(text)
    path.chmod(0o600)
    with pytest.raises(UsageError, match="contains no valid token"):
        token_in(path)


def test_a_place_that_cannot_hold_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be stored"):
        token_in(tmp_path / "file" / "token")


def test_no_file_is_left_without_a_token_if_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "token"

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("dragoman.config.safe_files.os.fsync", full)
    with pytest.raises(UsageError, match=re.escape(f"{path}: {os.strerror(errno.ENOSPC)}")):
        token_in(path)
    assert list(tmp_path.iterdir()) == []
