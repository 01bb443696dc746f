"""The token of the HTTP door, in its file."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from dragoman.errors import UsageError
from dragoman.mcp_server.tokens import MIN_SIZE, default_path, token_in
from dragoman.paths import find_paths


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
    with pytest.raises(UsageError, match="others can read"):
        token_in(path)


@pytest.mark.parametrize("text", [b"", b"short\n", b"\xff" * 40, b"two words " * 4, b"x" * 3000])
def test_a_file_without_a_token_is_refused(text: bytes, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_bytes(text)
    path.chmod(0o600)
    with pytest.raises(UsageError, match="holds no token"):
        token_in(path)


def test_a_place_that_cannot_hold_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be kept"):
        token_in(tmp_path / "file" / "token")


def test_it_lies_in_the_state_folder(tmp_path: Path) -> None:
    paths = find_paths({"HOME": str(tmp_path), "DRAGOMAN_STATE_HOME": str(tmp_path / "state")})
    assert default_path(paths) == paths.state / "mcp-token"
