"""After every integration test: no child process, descriptor or thread of ours may be left.

A test that leaves something behind fails by that, whatever else it proved.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator

import pytest

from dragoman.transports.process.environment import owner
from dragoman.transports.process.guard import guard
from dragoman.transports.process.strays import find_owned

THREAD_TIMEOUT = 5.0
"""Seconds for a thread that was told to end to end."""


def open_descriptors() -> dict[str, str]:
    """Every open descriptor and what it is."""
    found: dict[str, str] = {}
    for name in os.listdir("/proc/self/fd"):
        # The listing itself has a descriptor, which is gone by now.
        try:
            found[name] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
    return found


def own_children() -> set[int]:
    """Every child of this process, the dead and unreaped included."""
    while True:
        found: set[int] = set()
        try:
            for task in os.listdir("/proc/self/task"):
                with open(f"/proc/self/task/{task}/children") as children:
                    found.update(int(pid) for pid in children.read().split())
        except (FileNotFoundError, ProcessLookupError):
            # A thread has just ended, and its children belong to one that was perhaps looked at.
            continue
        return found


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    # The warden is there for as long as this process is; it shall not count as left behind.
    guard.protect()
    descriptors = open_descriptors()
    children = own_children()
    threads = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - threads:
        thread.join(THREAD_TIMEOUT)
        assert not thread.is_alive(), f"a thread was left: {thread.name}"
    gc.collect()
    assert find_owned(owner()) == [], "processes with our mark were left"
    left = own_children() - children - {guard.warden_pid}
    assert not left, f"children were left, perhaps as zombies: {left}"
    opened = {
        name: what for name, what in open_descriptors().items() if descriptors.get(name) != what
    }
    assert not opened, f"descriptors were left open: {opened}"
