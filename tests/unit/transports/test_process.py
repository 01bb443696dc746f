"""The streams themselves are tested with real children in tests/integration/test_process_*.py."""

from __future__ import annotations

import subprocess

import pytest

from dragoman.errors import ProgramNotFound, UsageError
from dragoman.transports.process import StderrTail, spawn, start_child, start_detached
from tests.aio import aio


def tail(size: int, *chunks: bytes) -> str:
    kept = StderrTail(size)
    for chunk in chunks:
        kept.add(chunk)
    return kept.text()


def test_all_is_kept_that_fits() -> None:
    assert tail(10) == ""
    assert tail(10, b"0123", b"456789") == "0123456789"


def test_only_the_end_is_kept_of_what_does_not_fit() -> None:
    assert tail(4, b"0123456789") == "6789"
    assert tail(4, b"0123", b"45", b"6", b"789") == "6789"
    assert tail(4, b"0123456789", b"ab") == "89ab"
    assert tail(0, b"0123", b"4") == ""


def test_what_is_held_stays_close_to_the_limit() -> None:
    kept = StderrTail(1000)
    for _ in range(10_000):
        kept.add(b"x" * 99)
    assert kept._held_size < 1100
    assert sum(map(len, kept._chunks)) == kept._held_size


def test_a_cut_through_a_character_leaves_no_trace() -> None:
    assert tail(5, "ääää".encode()) == "ää"
    assert tail(3, "x€€".encode()) == "€"
    assert tail(5, "x€€".encode()) == "€"


def test_bytes_that_are_no_text_are_replaced() -> None:
    assert tail(10, b"\xffx\x80") == "�x�"


def test_a_listener_hears_everything_that_is_written() -> None:
    heard: list[bytes] = []
    kept = StderrTail(2, heard.append)
    kept.add(b"one")
    kept.add(b"two")
    assert heard == [b"one", b"two"]
    assert kept.text() == "wo"


@aio
async def test_on_windows_the_search_is_that_of_windows() -> None:
    with pytest.raises(ProgramNotFound, match=r"\.exe"):
        await spawn(["sh"], platform="win32")


@aio
async def test_an_empty_command_is_refused_by_every_way_to_start_one() -> None:
    null = subprocess.DEVNULL
    for argv in ([], [""]):
        with pytest.raises(UsageError):
            await spawn(argv)
        with pytest.raises(UsageError):
            start_child(argv, stdin=null, stdout=null, stderr=null)
        with pytest.raises(UsageError):
            start_detached(argv)
