"""Find and kill the processes that a child left behind, by environment mark or session.

Never matches by name. A process that replaced the mark is left alone: a dragoman process below us
is responsible for its children. A process that cleared its environment and left the session is not
found here, only by `subreaper`. Linux only (/proc). `warden` has the search itself.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Collection

from dragoman.transports.process import warden

HUNT_TIMEOUT = 2.0
"""Maximum number of seconds to search. A killed process is gone within milliseconds; one that is
not gone by then is stuck in a device and cannot be killed."""

HUNT_INTERVAL = 0.01
"""Seconds between two searches: a killed process takes a moment to disappear."""

CLEAN_HUNTS = 2
"""Number of consecutive searches that must find nothing after one found something: a found process
may have started another one during the search."""

PROCESSES_PER_TURN = 32
"""Number of processes to examine before the event loop gets its turn: well under a millisecond."""


def find_strays(mark: str) -> list[int]:
    """Return the pids of the living processes that carry a mark; empty on systems other than
    Linux."""
    return list(warden.find(warden.mark_needle(mark))) if sys.platform == "linux" else []


def find_owned(owner: str) -> list[int]:
    """Return the pids of the living processes that carry any mark of an owner; empty on systems
    other than Linux."""
    return list(warden.find(warden.owner_needle(owner))) if sys.platform == "linux" else []


async def kill_strays(
    mark: str,
    *,
    sessions: Collection[int] = (),
    since: int | None = None,
    hunt_timeout: float = HUNT_TIMEOUT,
) -> set[int]:
    """Kill everything that carries a mark or belongs to a session, until nothing is found or
    `hunt_timeout` has passed.

    The caller guarantees that the leaders of the sessions are not reaped yet, so that their ids are
    not reused. `since` is the pid of a process that was started a moment ago: only it and later
    ones are examined. Returns the pids of the processes that were killed.
    """
    hunt = _Hunt(mark, sessions, hunt_timeout)
    while hunt.goes_on():
        hunt.strike_groups()
        listed = warden.list_processes()
        if since is not None:
            listed = created_since(since, listed, newest=newest_process())
        for count, pid in enumerate(listed, 1):
            if count % PROCESSES_PER_TURN == 0:
                await asyncio.sleep(0)
            hunt.look_at(pid)
        if hunt.search_ended():
            await asyncio.sleep(HUNT_INTERVAL)
    return hunt.killed


def newest_process() -> int:
    """Return the pid that was assigned last, or 0 if that is unknown."""
    try:
        with open("/proc/loadavg", "rb") as file:
            return int(file.read().split()[4])
    except (OSError, ValueError, IndexError):
        return 0


def created_since(first: int, listed: list[int], *, newest: int) -> list[int]:
    """Return the pids in `listed` that may have been assigned together with `first` or after it.

    Pids are assigned in ascending order, and start again after the end of their range. `newest` was
    read after `listed`, and the whole range was not used up in between; 0 means unknown.
    """
    if not newest:
        return listed
    if first <= newest:
        return [pid for pid in listed if first <= pid <= newest]
    return [pid for pid in listed if pid >= first or pid <= newest]


def kill_strays_now(
    mark: str, *, sessions: Collection[int] = (), hunt_timeout: float = HUNT_TIMEOUT
) -> set[int]:
    """Like `kill_strays`, without an event loop, for the end of a program."""
    hunt = _Hunt(mark, sessions, hunt_timeout)
    while hunt.goes_on():
        hunt.strike_groups()
        for pid in warden.list_processes():
            hunt.look_at(pid)
        if hunt.search_ended():
            time.sleep(HUNT_INTERVAL)
    return hunt.killed


class _Hunt:
    """The state of one search for stray processes: what to look for, what was killed, and whether
    to search again."""

    def __init__(self, mark: str, sessions: Collection[int], hunt_timeout: float) -> None:
        self.killed: set[int] = set()
        self._needle = warden.mark_needle(mark)
        self._sessions = sessions
        self._deadline = time.monotonic() + hunt_timeout
        self._hit = False
        # Usually there is nothing, and then one search is enough.
        self._searches_left = 1 if sys.platform == "linux" else 0

    def goes_on(self) -> bool:
        return self._searches_left > 0

    def strike_groups(self) -> None:
        """Kill the first process group of each session at once.

        A process that forks faster than the search proceeds has moved on when it is found, but its
        group has not.
        """
        for session in self._sessions:
            warden.kill_group(session)

    def look_at(self, pid: int) -> None:
        if warden.is_ours(pid, self._needle, self._sessions):
            # Processes we may not kill (a program that changed its user) do not count.
            if warden.kill(pid, self._needle, self._sessions):
                self.killed.add(pid)
                self._hit = True

    def search_ended(self) -> bool:
        """Called at the end of each search. Returns whether to wait and search again."""
        self._searches_left = CLEAN_HUNTS if self._hit else self._searches_left - 1
        self._hit = False
        if time.monotonic() > self._deadline:
            self._searches_left = 0
        return self.goes_on()
