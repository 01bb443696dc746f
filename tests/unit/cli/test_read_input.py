"""Stdin and the files that options name: read to their end, up to a size, and not for ever."""

from __future__ import annotations

import io
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.cli import read_input
from dragoman.cli.read_input import is_piped, read_lines, read_named, read_stdin, remaining
from dragoman.errors import InputTimeout, UsageError


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The writing end of a pipe that is stdin."""
    reader, writer = os.pipe()
    with open(reader) as stdin, open(writer, "wb", closefd=False):
        monkeypatch.setattr(sys, "stdin", stdin)
        yield writer
        try:
            os.close(writer)
        except OSError:
            pass  # The test has closed it.


def test_a_pipe_and_a_file_may_hold_something(
    pipe: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert is_piped()
    (tmp_path / "file").touch()
    with (tmp_path / "file").open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert is_piped()
    assert not is_piped()


def test_null_and_what_is_closed_hold_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with open(os.devnull) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert not is_piped()
    reader, writer = os.pipe()
    os.close(writer)
    with open(reader, closefd=False) as stdin:
        os.close(reader)
        monkeypatch.setattr(sys, "stdin", stdin)
        assert not is_piped()


def test_stdin_is_read_to_its_end_in_one_piece_or_many(pipe: int) -> None:
    def write() -> None:
        for number in range(100):
            os.write(pipe, b"%d\n" % number * 1000)
        os.close(pipe)

    writer = threading.Thread(target=write)
    writer.start()
    data = read_stdin(timeout=30.0)
    writer.join()
    assert data == b"".join(b"%d\n" % number * 1000 for number in range(100))
    assert threading.active_count() == 1


@pytest.mark.skipif(os.name != "posix", reason="pipes of POSIX")
def test_a_stdin_that_does_not_block_is_waited_for(pipe: int) -> None:
    os.set_blocking(sys.stdin.fileno(), False)
    told = threading.Event()

    def write() -> None:
        told.wait(30.0)
        os.write(pipe, b"late")
        os.close(pipe)

    writer = threading.Thread(target=write)
    writer.start()
    assert read_stdin(timeout=30.0, on_wait=lambda text: told.set()) == b"late"
    writer.join()


def test_what_is_waited_for_is_said_once_and_ends_the_silence(
    pipe: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_input, "NOTICE_DELAY", 0.01)
    told: list[str] = []

    def hear(text: str) -> None:
        told.append(text)
        os.write(pipe, b"there")
        os.close(pipe)

    assert read_stdin(on_wait=hear) == b"there"
    assert len(told) == 1 and "--no-stdin" in told[0]


def test_a_stdin_that_does_not_end_ends_with_the_time_limit(pipe: int) -> None:
    os.write(pipe, b"more follows")
    with pytest.raises(InputTimeout, match="within 0.05 s"):
        read_stdin(timeout=0.05)


def test_a_stdin_without_end_is_refused_at_a_size(
    pipe: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_input, "MAX_PROMPT_SIZE", 10)
    os.write(pipe, b"x" * 11)
    with pytest.raises(UsageError, match="stdin has more than 10 bytes"):
        read_stdin()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"x" * 11)))
    with pytest.raises(UsageError, match="stdin has more than 10 bytes"):
        read_stdin()


@pytest.mark.skipif(os.name != "posix", reason="folders are opened on POSIX")
def test_a_stdin_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)

    class Folder(io.TextIOWrapper):
        def fileno(self) -> int:
            return folder

    monkeypatch.setattr(sys, "stdin", Folder(io.BytesIO()))
    try:
        with pytest.raises(UsageError, match="stdin cannot be read: Is a directory"):
            read_stdin()
    finally:
        os.close(folder)


def test_what_is_left_of_a_time_limit_is_never_nothing() -> None:
    assert remaining(None, 5.0) is None
    assert remaining(10.0, 0.01) == 10.0
    assert remaining(10.0, 3.14159) == 6.9
    assert remaining(10.0, 12.0) == 0.1


def test_a_file_is_read_up_to_a_size(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    assert read_named(tmp_path / "file", max_size=5) == b"12345"
    with pytest.raises(UsageError, match="has more than 4 bytes"):
        read_named(tmp_path / "file", max_size=4)


@pytest.mark.skipif(os.name != "posix", reason="sparse files and long names of POSIX")
def test_a_huge_file_and_a_huge_name_are_refused_in_a_short_sentence(tmp_path: Path) -> None:
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(1 << 40)
    for path in (tmp_path / "huge", tmp_path / ("x" * 5000), tmp_path):
        with pytest.raises(UsageError, match="more than 100 bytes|cannot be read") as refused:
            read_named(path, max_size=100)
        assert len(str(refused.value)) < 400


def test_lines_have_a_size_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_input, "MAX_LINE_SIZE", 10)
    (tmp_path / "file").write_bytes(b"1\r\n2\n" + b"x" * 20)
    lines = read_lines(tmp_path / "file")
    assert [next(lines), next(lines)] == [b"1", b"2"]
    with pytest.raises(UsageError, match="a line of .* has more than 10 bytes"):
        next(lines)
    with pytest.raises(UsageError, match="cannot be read"):
        list(read_lines(tmp_path))


def test_a_dash_is_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"1\r\n2\n")))
    assert list(read_lines(Path("-"))) == [b"1", b"2"]
