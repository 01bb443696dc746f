"""What is measured, how much of it, and what is claimed about the result.

It owns the entries of the programme and the goals. It does not know who takes part (`lineup`), what
a work does (`works`) or how the table looks (`report`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """One work of one size, done by one client process."""

    id: str
    work: str
    size: int
    quick_size: int
    placement: str
    """Where the processes run, see `measure.place`. Work that goes to and fro and can never be
    done by both at once is kept on one processor: otherwise it measures how fast the machine
    wakes a sleeping one."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the result, with its goal."""

    entry: str
    title: str
    """With `{size}` where the size of the entry stands."""
    figures: tuple[str, ...] = ("wall", "cpu")
    ceiling_share: float | None = None
    """At least this share of the ceiling's speed."""
    official_times: float | None = None
    """At least so many times better than the official SDK."""


IMPORTS = "imports"

PROGRAMME: Sequence[Entry] = (
    Entry("W1", "stream", 20_000, 5_000, "apart"),
    Entry("W2.sequential", "sequential", 5_000, 1_500, "together"),
    Entry("W2.in_flight", "in_flight", 5_000, 1_500, "apart"),
    Entry("W3.1MiB", "large", 1, 1, "apart"),
    Entry("W3.15MiB", "large", 15, 15, "apart"),
    Entry("W4", "asks", 2_000, 1_000, "together"),
    Entry("W5", "sessions", 200, 50, "apart"),
    Entry("W6.import", IMPORTS, 3, 3, "together"),
    Entry("W6.spawn", "spawn", 3, 3, "together"),
)

ROWS: Sequence[Row] = (
    Row("W1", "{size:,} updates in one prompt", ceiling_share=0.70),
    Row("W2.sequential", "{size:,} requests, one at a time", ceiling_share=0.80),
    Row("W2.sequential", "the median request of these", ("p50",)),
    Row("W2.in_flight", "{size:,} requests, 64 in flight", ceiling_share=0.70),
    Row("W3.1MiB", "{size} MiB there and back", official_times=1.6),
    Row("W3.15MiB", "{size} MiB there and back", official_times=1.2),
    Row("W4", "{size:,} requests of the agent", ceiling_share=0.70),
    Row("W5", "{size:,} sessions, 100 updates each", ceiling_share=0.70),
    Row("W6.import", "import", official_times=4.0),
    Row("W6.spawn", "spawn to first reply", ("first", "wall", "cpu"), official_times=4.0),
    Row("W6.spawn", "memory of the agent then", ("rss",), official_times=1 / 0.7),
)


def chosen(only: Iterable[str]) -> list[Entry]:
    """The entries with these ids; `W2` stands for all that begin with it. All if none is named."""
    wanted = [name.strip().lower() for name in only]
    entries = [
        entry
        for entry in PROGRAMME
        if not wanted
        or any(
            entry.id.lower() == name or entry.id.lower().split(".")[0] == name for name in wanted
        )
    ]
    known = {entry.id.lower() for entry in PROGRAMME}
    known |= {name.split(".")[0] for name in known}
    if unknown := [name for name in wanted if name not in known]:
        raise ValueError(f"there is no {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    return entries
