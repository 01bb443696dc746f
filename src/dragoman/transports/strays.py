"""Processes that a child left behind, found by their mark and killed.

It owns the hunt while we live: after a child ended, whatever it started and did not end is found
by the mark in its environment (see `environment`), also in a session of its own, and never by a
name. The search itself is in `warden`, which hunts when we do not live any more.

A process that replaced the mark lives on its own and is not found: a dragoman process below us
answers for its children itself. Nor is one found that emptied its environment and left both the
session and its parents. Linux only: elsewhere there is no /proc and nothing is found.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Collection

from dragoman.transports import warden

HUNT_TIMEOUT = 2.0
"""Seconds to hunt at most. A killed process is gone within milliseconds; what is not gone by then
waits for a device, and nobody can kill it."""

HUNT_INTERVAL = 0.01
"""Seconds between two searches: a killed process needs a moment to be gone."""

PROCESSES_PER_TURN = 32
"""Processes looked at before the event loop gets its turn: well under a millisecond."""


def find_strays(mark: str) -> list[int]:
    """The living processes that carry a mark."""
    return list(warden.find(warden.mark_needle(mark))) if sys.platform == "linux" else []


def find_owned(owner: str) -> list[int]:
    """The living processes that carry any mark of an owner."""
    return list(warden.find(warden.owner_needle(owner))) if sys.platform == "linux" else []


async def kill_strays(
    mark: str, *, sessions: Collection[int] = (), hunt_timeout: float = HUNT_TIMEOUT
) -> set[int]:
    """Kill everything that carries a mark or belongs to a session, until nothing is found.

    The caller vouches for the sessions: their leader is not reaped yet, so that their number
    cannot have been given to somebody else. Returns the processes it killed.
    """
    killed: set[int] = set()
    if sys.platform != "linux":
        return killed
    needle = warden.mark_needle(mark)
    deadline = time.monotonic() + hunt_timeout
    while True:
        hit: set[int] = set()
        for count, pid in enumerate(warden.list_processes(), 1):
            if count % PROCESSES_PER_TURN == 0:
                await asyncio.sleep(0)
            if warden.is_ours(pid, needle, sessions) and warden.kill(pid, needle, sessions):
                hit.add(pid)
        killed |= hit
        # What was found and may not be killed by us (a program that became another user) is no
        # reason to go on.
        if not hit or time.monotonic() > deadline:
            return killed
        await asyncio.sleep(HUNT_INTERVAL)


def kill_strays_now(
    mark: str, *, sessions: Collection[int] = (), hunt_timeout: float = HUNT_TIMEOUT
) -> set[int]:
    """`kill_strays` without an event loop, for the end of a program."""
    killed: set[int] = set()
    if sys.platform != "linux":
        return killed
    needle = warden.mark_needle(mark)
    deadline = time.monotonic() + hunt_timeout
    while True:
        hit = {p for p in warden.find(needle, sessions) if warden.kill(p, needle, sessions)}
        killed |= hit
        if not hit or time.monotonic() > deadline:
            return killed
        time.sleep(HUNT_INTERVAL)
