"""The stopwatch: wall time, and CPU time of this process and of everything below it.

It runs inside a contestant's client process. It owns the reading of clocks and of /proc, and knows
nothing of what is timed; that is `bench.works`. Linux only: the CPU time of a living child is read
from its process clock, so that the start and the end of the child do not count as work.
"""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path
from types import TracebackType
from typing import Self


def own_cpu() -> float:
    """CPU seconds of this process so far, all threads, user and system."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def reaped_cpu() -> float:
    """CPU seconds of all children that have ended and were waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def descendants() -> list[int]:
    """The processes that live below this one."""
    found: list[int] = []
    todo = ["self"]
    while todo:
        for thread in Path("/proc", todo.pop(), "task").glob("*"):
            try:
                children = (thread / "children").read_text().split()
            except FileNotFoundError:
                continue
            todo.extend(children)
            found.extend(map(int, children))
    return found


def process_cpu(pid: int) -> float:
    """CPU seconds of a living process so far, to the nanosecond.

    The number is the clock that clock_getcpuclockid(3) would give; Python has no call for it.
    """
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0


def children_cpu() -> float:
    """CPU seconds of everything below this process, living or reaped."""
    return reaped_cpu() + sum(map(process_cpu, descendants()))


def memory(pid: int) -> dict[str, int]:
    """Bytes in use by a process: `rss` with what it shares, `pss` with its share of that."""
    sizes: dict[str, int] = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in ("Rss", "Pss"):
            sizes[name.lower()] = int(rest.split()[0]) * 1024
    return sizes


class Growth:
    """How much more memory this process and those below it had at their peak in the body of a
    `with` than before it, in bytes afterwards: `client` and `agents` (the most of any of them)."""

    client: int
    agents: int

    def __enter__(self) -> Self:
        self._before = {pid: self._restart(pid) for pid in (os.getpid(), *descendants())}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        grown = {pid: status(pid)["VmHWM"] - before for pid, before in self._before.items()}
        self.client = grown.pop(os.getpid())
        self.agents = max(grown.values(), default=0)

    @staticmethod
    def _restart(pid: int) -> int:
        # 5 sets the peak back to what is in use now, see proc(5).
        Path(f"/proc/{pid}/clear_refs").write_text("5")
        return status(pid)["VmRSS"]


def status(pid: int) -> dict[str, int]:
    """The sizes in a process's status, in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    pairs = (line.split(":") for line in lines)
    return {name: int(rest.split()[0]) * 1024 for name, rest in pairs if rest.endswith(" kB")}


def place(placement: str) -> None:
    """Fix where this process and everything below it run.

    Left alone, the scheduler puts two processes that talk to each other now on one processor and
    now on two, and the same work takes one or three units of time: `together` and `apart` make it
    one or the other. `free` leaves it alone.
    """
    if (both := places(placement)) is not None:
        ours, theirs = both
        os.sched_setaffinity(0, {ours})
        for pid in descendants():
            os.sched_setaffinity(pid, {theirs})


def places(placement: str) -> tuple[int, int] | None:
    """The processors of a client and of its agent; None where they are not chosen."""
    processors = sorted(os.sched_getaffinity(0))
    if placement == "free" or len(processors) < 2:
        return None
    return processors[-1], processors[0] if placement == "apart" else processors[-1]


class Stopwatch:
    """Times the body of a `with`: `wall`, and `cpu` with the part of it that was `below` this
    process, in seconds afterwards."""

    wall: float
    cpu: float
    below: float

    def __enter__(self) -> Self:
        # The wall clock is read last here and first in the end: reading /proc is not work.
        self._children = children_cpu()
        self._own = own_cpu()
        self._at = time.perf_counter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.wall = time.perf_counter() - self._at
        own = own_cpu() - self._own
        self.below = children_cpu() - self._children
        self.cpu = own + self.below
