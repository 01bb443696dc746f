"""Processes that outlived the dragoman that started them, in a made-up /proc."""

from __future__ import annotations

from pathlib import Path

from dragoman.setup.stray_processes import MAX_SHOWN, Leftover, find_leftovers


def process(proc: Path, pid: int, cmdline: bytes, environ: bytes = b"") -> None:
    folder = proc / str(pid)
    folder.mkdir()
    (folder / "cmdline").write_bytes(cmdline)
    (folder / "environ").write_bytes(environ)


def test_a_marked_process_without_a_warden_of_its_owner_is_left_over(tmp_path: Path) -> None:
    process(tmp_path, 10, b"agent\0--acp\0", b"A=1\0DRAGOMAN_MARK=aaaa.1\0B=2\0")
    process(tmp_path, 11, b"agent\0", b"DRAGOMAN_MARK=bbbb.7\0")
    process(tmp_path, 12, b"python\0-I\0-S\0/x/warden.py\0bbbb\x003\0")
    process(tmp_path, 13, b"other\0", b"PATH=/bin\0")
    (tmp_path / "self").mkdir()
    assert find_leftovers(tmp_path, platform="linux") == [Leftover(10, "agent --acp")]


def test_a_dead_process_and_a_name_that_only_looks_like_the_mark_do_not_count(
    tmp_path: Path,
) -> None:
    process(tmp_path, 10, b"", b"DRAGOMAN_MARK=aaaa.1\0")
    process(tmp_path, 11, b"agent\0", b"MY_DRAGOMAN_MARK=aaaa.1\0")
    (tmp_path / "12").mkdir()
    assert find_leftovers(tmp_path, platform="linux") == []


def test_where_there_is_no_proc_nothing_is_found(tmp_path: Path) -> None:
    assert find_leftovers(tmp_path / "none", platform="linux") == []
    assert find_leftovers(platform="darwin") == []


def test_a_long_command_line_is_cut(tmp_path: Path) -> None:
    process(tmp_path, 10, b"x" * 500 + b"\0", b"DRAGOMAN_MARK=aaaa.1\0")
    assert len(find_leftovers(tmp_path, platform="linux")[0].command) == MAX_SHOWN
