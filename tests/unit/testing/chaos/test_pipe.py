from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dragoman.testing.chaos import pipe
from dragoman.testing.chaos.pipe import Pipe


@contextmanager
def piped(fault: str = "healthy") -> Iterator[tuple[Pipe, int, int]]:
    """A pipe, an end to write to it and an end to read from it."""
    source, to_it = os.pipe()
    from_it, sink = os.pipe()
    try:
        yield Pipe(fault, source=source, sink=sink), to_it, from_it
    finally:
        for end in (source, from_it, sink):
            os.close(end)


def test_messages_are_read_whole_however_they_are_cut() -> None:
    with piped() as (pipe, to_it, _):
        os.write(to_it, b'{"a": 1}\n{"b"')
        assert pipe.read(0) == [{"a": 1}]
        os.write(to_it, b": 2}\n")
        assert pipe.read(0) == [{"b": 2}]
        os.close(to_it)
        assert pipe.read(0) is None


def test_nothing_comes_when_the_time_is_up_and_what_is_not_an_object_is_dropped() -> None:
    with piped() as (pipe, to_it, _):
        assert pipe.read(0) == []
        os.write(to_it, b'garbage\n[1]\n\n{"a": 1}\n')
        assert pipe.read(0) == [{"a": 1}]
        os.close(to_it)


def test_a_message_is_one_line() -> None:
    with piped() as (pipe, to_it, from_it):
        pipe.send({"id": 1, "result": {"text": "a\nb"}})
        line = os.read(from_it, 1000)
        assert line.count(b"\n") == 1
        assert json.loads(line) == {"jsonrpc": "2.0", "id": 1, "result": {"text": "a\nb"}}
        os.close(to_it)


def test_split_frames_are_the_same_bytes_in_many_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    write = os.write

    def counted(fd: int, data: bytes) -> int:
        sizes.append(len(data))
        return write(fd, data)

    with piped("split-frames") as (piece, to_it, from_it):
        monkeypatch.setattr(os, "write", counted)
        piece.send({"method": "x" * 50})
        monkeypatch.undo()
        assert json.loads(os.read(from_it, 1000))["method"] == "x" * 50
        assert len(sizes) > 5 and max(sizes) <= pipe.PIECE_SIZE
        os.close(to_it)


def test_noise_is_not_a_message() -> None:
    with piped() as (noisy, to_it, from_it):
        noisy.make_noise()
        lines = os.read(from_it, 1000).splitlines()
        assert len(lines) == len(pipe.NOISE)
        for line in lines:
            with pytest.raises(ValueError):
                json.loads(line)
        os.close(to_it)


def test_an_agent_with_a_short_buffer_dies_of_a_long_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipe, "SHORT_LINE", 10)
    with piped("dies-on-long-line") as (short, to_it, _):
        os.write(to_it, b'{"a": 1}\n')
        assert short.read(0) == [{"a": 1}]
        os.write(to_it, b'{"a": "0123456789"}')
        with pytest.raises(SystemExit):
            short.read(0)
        os.close(to_it)


def test_a_long_line_has_all_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipe, "LONG_LINE", 2 * 1024 * 1024)
    sent: list[int] = []

    def swallow(fd: int, data: bytes) -> int:
        sent.append(len(data))
        return len(data)

    with piped() as (long, to_it, _):
        monkeypatch.setattr(os, "write", swallow)
        long.send_long_line()
        monkeypatch.undo()
        os.close(to_it)
    assert sum(sent) == 2 * 1024 * 1024 + 1
