"""Memory use of a peer: resident size of its process and all descendants, read from /proc.

Most agents are a wrapper that starts the real program, servers and shells. Shared memory is
counted once per process, so the sum may be too high.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from dragoman.transports.process.identity import resident_size

PROC: Final = Path("/proc")

MAX_PROCESSES: Final = 1000
"""Processes that are looked at: whoever has started more is told of these, and nobody waits."""


def resident_tree(pid: int, *, proc: Path = PROC) -> int | None:
    """Bytes of memory that a process and all its descendants have, where the system tells."""
    total = resident_size(pid, proc=proc)
    if total is None:
        return None
    # The kernel lists the children of a process, where it was built for that; else all are read.
    listed = (proc / str(pid) / "task" / str(pid) / "children").exists()
    children = _listed(proc) if listed else _searched(proc)
    seen = {pid}
    waiting = [pid]
    while waiting and len(seen) < MAX_PROCESSES:
        for child in children(waiting.pop()):
            if child not in seen:
                seen.add(child)
                waiting.append(child)
                # One that has just ended has no memory any more.
                total += resident_size(child, proc=proc) or 0
    return total


def _listed(proc: Path) -> Callable[[int], Iterable[int]]:
    """The children of a process, each thread of which may have its own."""

    def children(pid: int) -> list[int]:
        found: list[int] = []
        try:
            threads = list((proc / str(pid) / "task").iterdir())
        except OSError:
            return found
        for thread in threads:
            try:
                found += map(int, (thread / "children").read_text().split())
            except (OSError, ValueError):
                continue
        return found

    return children


def _searched(proc: Path) -> Callable[[int], Iterable[int]]:
    """The same out of one look at every process that there is."""
    of: dict[int, list[int]] = {}
    for entry in proc.iterdir() if proc.is_dir() else ():
        if not entry.name.isdigit():
            continue
        try:
            # The name of the program stands in parentheses and may hold anything.
            fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
            of.setdefault(int(fields[1]), []).append(int(entry.name))
        except (OSError, ValueError, IndexError):
            continue
    return lambda pid: of.get(pid, ())
