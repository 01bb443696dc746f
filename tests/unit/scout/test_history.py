from __future__ import annotations

import os
import threading
from hashlib import sha1
from pathlib import Path

import pytest

from dragoman.client.services.worker_thread import Stopped
from dragoman.scout import history
from dragoman.scout.history import FileHistory, Touched
from dragoman.scout.intents import RecentChanges


def test_every_command_begins_with_what_keeps_the_repository_from_running_anything() -> None:
    for argv in (
        history.log_command(RecentChanges()),
        history.staged_command(""),
        history.index_command(""),
        history.new_command(""),
    ):
        assert tuple(argv[: len(history.SAFE)]) == history.SAFE
        assert argv[len(history.SAFE)] in ("log", "diff-index", "ls-files")
        assert argv[-2:] == ["--", "."]


def test_what_a_user_says_cannot_be_taken_for_an_option() -> None:
    argv = history.log_command(RecentChanges(5, "--output=x", "--exec=y", "--all"))
    assert argv[-2:] == ["--", "--all"]
    assert "--since=--output=x" in argv
    assert "--author=--exec=y" in argv
    assert "--max-count=5" in argv


def test_there_is_a_bound_for_commits() -> None:
    assert f"--max-count={history.MAX_COUNT}" in history.log_command(RecentChanges(10**6))


def test_a_log_is_read() -> None:
    first = "\x1e" + "\x1f".join(["h" * 40, "hhh", "Ada", "2024-01-01", "1 day ago", "Begin"])
    output = f"{first}\x1f\0\nA\0a\nb.py\0M\0c.py\0\x1e".encode()
    (commit,) = history.parse_log(output)
    assert (commit.short_id, commit.author, commit.subject) == ("hhh", "Ada", "Begin")
    assert commit.files == (Touched("a\nb.py", "added"), Touched("c.py", "changed"))


def test_a_log_that_is_cut_keeps_what_is_whole() -> None:
    whole = "\x1e" + "\x1f".join(["h", "h", "a", "d", "r", "s"]) + "\x1f"
    assert len(history.parse_log((whole + "\x1eabc\x1fde").encode())) == 1
    assert history.parse_log(b"") == []


def test_raw_differences_are_read() -> None:
    output = b":100644 100644 aaa bbb M\0a.py\0:000000 100644 0 b A\0b\xff.py\0"
    assert history.parse_raw(output) == [
        Touched("a.py", "changed"),
        Touched(os.fsdecode(b"b\xff.py"), "added"),
    ]


INDEX = (
    "H 100644 {digest} 0\t{path}\0  ctime: 1:2\n  mtime: {seconds}:{nanos}\n  dev: 1\tino: 2\n"
    "  uid: 0\tgid: 0\n  size: {size}\tflags: 0\n"
)


def test_the_list_of_files_is_read_and_what_is_not_checked_out_is_left_out() -> None:
    entry = INDEX.format(digest="a" * 40, path="x\ny.py", seconds=3, nanos=4, size=5)
    found = history.parse_index((entry + entry.replace("H ", "S ", 1)).encode())
    assert found == [FileHistory("x\ny.py", "a" * 40, 3 * 10**9 + 4, 5)]
    assert history.parse_index(b"something else") == []


def test_files_are_compared_with_how_they_were_last_seen(tmp_path: Path) -> None:
    data = b"x = \0 1\n"
    (tmp_path / "same.py").write_bytes(data)
    (tmp_path / "touched.py").write_bytes(data)
    (tmp_path / "longer.py").write_bytes(data + data)
    (tmp_path / "other.py").write_bytes(data[::-1])
    digest = sha1(b"blob %d\0" % len(data) + data).hexdigest()
    at = (tmp_path / "same.py").stat().st_mtime_ns
    seen = [FileHistory("same.py", "0" * 40, at, len(data))] + [
        FileHistory(name, digest, 1, len(data))
        for name in ("touched.py", "longer.py", "other.py", "gone.py")
    ]
    assert history.compare(str(tmp_path), seen, threading.Event()) == [
        Touched("longer.py", "changed"),
        Touched("other.py", "changed"),
        Touched("gone.py", "deleted"),
    ]


def test_a_comparison_that_nobody_waits_for_ends(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(Stopped):
        history.compare(str(tmp_path), [FileHistory("a", "", 0, 0)], stop)


def test_names_are_read() -> None:
    assert history.parse_names(b"a\0b\nc\0") == [Touched("a", "new"), Touched("b\nc", "new")]
