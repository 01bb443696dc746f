"""No integration test may leave a child process, descriptor or thread behind.

A test that leaves something behind fails, even if everything else passed.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Iterator

import pytest

from dragoman.rpc.tasks import THREAD_NAME
from dragoman.transports.process.environment import owner
from dragoman.transports.process.guard import guard
from dragoman.transports.process.strays import find_owned

THREAD_TIMEOUT = 5.0
"""Seconds to wait for a thread or a process to end."""


def open_descriptors() -> dict[str, str]:
    """All open descriptors and what they refer to."""
    found: dict[str, str] = {}
    for name in os.listdir("/proc/self/fd"):
        # The descriptor of the listing itself is closed by now.
        try:
            found[name] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
    return found


def own_children() -> set[int]:
    """All children of this process, including zombies."""
    while True:
        found: set[int] = set()
        try:
            for task in os.listdir("/proc/self/task"):
                with open(f"/proc/self/task/{task}/children") as children:
                    found.update(int(pid) for pid in children.read().split())
        except (FileNotFoundError, ProcessLookupError):
            # A thread has just ended. Its children now belong to another thread, which may already
            # have been read: start again.
            continue
        return found


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    # Start the warden first. It runs as long as this process and does not count as left behind.
    guard.protect()
    descriptors = open_descriptors()
    children = own_children()
    threads = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - threads:
        if thread.name == THREAD_NAME:
            # Kept for the next blocking call.
            continue
        thread.join(THREAD_TIMEOUT)
        assert not thread.is_alive(), f"a thread was left: {thread.name}"
    gc.collect()
    assert find_owned(owner()) == [], "processes with our mark were left"
    left = own_children() - children - {guard.warden_pid}
    give_up_at = time.monotonic() + THREAD_TIMEOUT
    while left and time.monotonic() < give_up_at:
        # On a busy machine, a killed process takes a moment to end.
        time.sleep(0.05)
        left = own_children() - children - {guard.warden_pid}
    assert not left, f"children were left, perhaps as zombies: {left}"
    opened = {
        name: what for name, what in open_descriptors().items() if descriptors.get(name) != what
    }
    assert not opened, f"descriptors were left open: {opened}"
