"""The stopwatch: wall time, and CPU time of this process and all its descendants.

Runs inside a contestant's client process. Reads clocks and /proc; `bench.works` defines what is
timed. Linux only: the CPU time of a running child is read from its process clock, so that its start
and its end do not count.
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
    """CPU seconds of all reaped children."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def descendants() -> list[int]:
    """The running descendants of this process."""
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
    """CPU seconds of a running process so far, to the nanosecond.

    Computes the clock id that clock_getcpuclockid(3) returns; Python has no function for it.
    """
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0


def children_cpu() -> float:
    """CPU seconds of all descendants of this process, running or reaped."""
    return reaped_cpu() + sum(map(process_cpu, descendants()))


def memory(pid: int) -> dict[str, int]:
    """Memory of a process in bytes: `rss` includes shared memory, `pss` only its share of it."""
    sizes: dict[str, int] = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in ("Rss", "Pss"):
            sizes[name.lower()] = int(rest.split()[0]) * 1024
    return sizes


class Growth:
    """Measures by how many bytes the peak memory grows in the body of a `with` statement: that of
    this process (`client`), and the largest growth of any descendant (`agents`)."""

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
        # 5 resets the peak to the current use, see proc(5).
        Path(f"/proc/{pid}/clear_refs").write_text("5")
        return status(pid)["VmRSS"]


def status(pid: int) -> dict[str, int]:
    """The sizes in the status file of a process, in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    pairs = (line.split(":") for line in lines)
    return {name: int(rest.split()[0]) * 1024 for name, rest in pairs if rest.endswith(" kB")}


def place(placement: str) -> None:
    """Choose the processors of this process and its descendants.

    By default, the scheduler puts two processes that talk to each other sometimes on one processor
    and sometimes on two, and the same workload may take three times as long. `together` and `apart`
    force one or the other. `free` leaves it to the scheduler.
    """
    if (both := places(placement)) is not None:
        ours, theirs = both
        os.sched_setaffinity(0, {ours})
        for pid in descendants():
            os.sched_setaffinity(pid, {theirs})


def places(placement: str) -> tuple[int, int] | None:
    """The processors of a client and of its agent, or None to leave them to the scheduler."""
    processors = sorted(os.sched_getaffinity(0))
    if placement == "free" or len(processors) < 2:
        return None
    return processors[-1], processors[0] if placement == "apart" else processors[-1]


class Stopwatch:
    """Times the body of a `with` statement, in seconds: `wall`, `cpu`, and `below`, the part of
    `cpu` that descendants used."""

    wall: float
    cpu: float
    below: float

    def __enter__(self) -> Self:
        # The wall clock is read last here and first at the end, to exclude reading /proc.
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
