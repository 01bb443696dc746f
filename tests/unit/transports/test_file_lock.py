"""Locks on open files."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from dragoman.transports.file_lock import take_lock, wait_for_lock


def opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


def test_one_open_file_at_a_time_has_the_lock_and_closing_it_gives_it_back(tmp_path: Path) -> None:
    first, second = opened(tmp_path / "a"), opened(tmp_path / "a")
    assert take_lock(first)
    assert not take_lock(second)
    os.close(first)
    assert take_lock(second)
    os.close(second)


@pytest.mark.skipif(os.name == "nt", reason="there are no shared locks")
def test_shared_locks_only_hinder_others(tmp_path: Path) -> None:
    ends = [opened(tmp_path / "a") for _ in range(3)]
    assert take_lock(ends[0], shared=True) and take_lock(ends[1], shared=True)
    assert not take_lock(ends[2])
    for fd in ends:
        os.close(fd)


def test_a_lock_is_waited_for_only_so_long(tmp_path: Path) -> None:
    holder, waiter = opened(tmp_path / "a"), opened(tmp_path / "a")
    assert take_lock(holder)
    assert not wait_for_lock(waiter, timeout=0.02)
    threading.Timer(0.05, os.close, [holder]).start()
    assert wait_for_lock(waiter, timeout=30.0)
    os.close(waiter)
