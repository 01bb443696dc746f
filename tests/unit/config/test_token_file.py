"""The files with the tokens of servers."""

from __future__ import annotations

import errno
import os
import re
import stat
import threading
from pathlib import Path

import pytest

from dragoman.config.token_file import MIN_SIZE, has_token, new_token, token_in, valid_token
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
    with pytest.raises(UsageError, match="other users can access"):
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
    with pytest.raises(UsageError, match=r"the token file .* cannot be used"):
        token_in(tmp_path / "file" / "token")


def test_a_place_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"the token file .* cannot be used: Is a directory"):
        token_in(tmp_path)


def test_no_file_is_left_without_a_token_if_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "token"

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("dragoman.config.safe_files.os.fsync", full)
    with pytest.raises(
        UsageError, match=re.escape(f"{path} cannot be used: {os.strerror(errno.ENOSPC)}")
    ):
        token_in(path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("short", "shorter than 16 characters"),
        ("x" * 2000, "longer than 1024 characters"),
        ("two words " * 4, "contains a space"),
        ("ä" * 20, "not printable ASCII"),
        ("x" * 20 + "\udcff", "not printable ASCII"),
        ("x" * 20 + "\x07", "not printable ASCII"),
    ],
)
def test_the_error_for_an_invalid_token_names_its_origin_the_problem_and_the_remedy(
    text: str, problem: str
) -> None:
    with pytest.raises(UsageError) as refused:
        valid_token(text, "THE_VARIABLE", remedy="set another one")
    told = str(refused.value)
    assert told.startswith("THE_VARIABLE contains no valid token, because it ")
    assert problem in told and told.endswith(": set another one")


def test_white_space_around_a_token_is_not_part_of_it() -> None:
    token = new_token()
    assert valid_token(f" {token}\n", "x", remedy="y") == token


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_a_request_has_the_token_whatever_the_case_of_its_scheme(scheme: str) -> None:
    token = new_token()
    for header in (f"{scheme} {token}", f"{scheme}  {token} "):
        assert has_token([header], token) and has_token([header.encode()], token)


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [""],
        ["Bearer"],
        ["Bearer "],
        ["a token of this server"],
        ["Basic a token of this server"],
        ["Bearer a token of this server", "Bearer a token of this server"],
        ["Bearer a token of this serve\udcff"],
        [b"Bearer \xff"],
    ],
)
def test_a_request_with_no_other_or_two_tokens_does_not_have_it(headers: list[str]) -> None:
    assert not has_token(headers, "a token of this server")
