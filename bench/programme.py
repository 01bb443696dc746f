"""What is measured, with which sizes, and the goals.

`lineup` lists the contestants, `works` implements the workloads, and `report` formats the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bench.lineup import ACP, BRIDGE, BROKER, CODEX, EVENTS, OFFICIAL, RPC


@dataclass(frozen=True, slots=True)
class Entry:
    """One workload of one size, run by one client process."""

    id: str
    work: str
    size: int
    quick_size: int
    placement: str
    """Where the processes run, see `measure.place`. A workload in which client and agent always
    wait for each other runs on one processor. Otherwise it would measure how fast the machine wakes
    an idle processor."""
    only: tuple[str, ...] = ()
    """The names of the contestants that run it; all if empty."""


@dataclass(frozen=True, slots=True)
class Goal:
    """The goals of a row; None means no goal."""

    ceiling: float | None = None
    """Minimum speed relative to the ceiling."""
    official: float | None = None
    """Minimum factor by which it is better than the official Python SDK."""
    typescript: float | None = None
    """Minimum factor by which it is faster than the official TypeScript SDK."""
    direct: float | None = None
    """Minimum speed relative to the same pair without a process in between."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the result, with its goal."""

    entry: str
    title: str
    """`{size}` is replaced by the size of the entry."""
    figures: tuple[str, ...] = ("wall", "cpu")
    rpc: Goal = Goal()
    """For `dragoman.rpc`."""
    acp: Goal = Goal()
    """For the ACP client and agent kit."""

    events: Goal = Goal()
    """For the conversation API, over ACP and over Codex: no dialect may be slower."""

    bridge: Goal = Goal()
    broker: Goal = Goal()

    def goal(self, subject: str) -> Goal:
        goals = {
            RPC: self.rpc,
            ACP: self.acp,
            EVENTS: self.events,
            CODEX: self.events,
            BRIDGE: self.bridge,
            BROKER: self.broker,
        }
        return goals.get(subject, Goal())


PASSED_ON = Goal(direct=1 / 2.5)
"""A round trip through a third process may take at most 2.5 times as long."""


IMPORTS = "imports"

PROGRAMME: Sequence[Entry] = (
    Entry("W1", "stream", 20_000, 5_000, "apart"),
    Entry("W2.sequential", "sequential", 5_000, 1_500, "together"),
    Entry("W2.in_flight", "in_flight", 5_000, 1_500, "apart"),
    Entry("W3.1MiB", "large", 1, 1, "apart"),
    Entry("W3.15MiB", "large", 15, 15, "apart"),
    Entry("W4", "asks", 2_000, 1_000, "together"),
    Entry("W8", "files", 2_000, 1_000, "together", only=(ACP, OFFICIAL)),
    Entry("W5", "sessions", 200, 50, "apart"),
    Entry("W7", "idle", 1_000, 1_000, "together"),
    Entry("W6.import", IMPORTS, 3, 3, "together"),
    Entry("W6.spawn", "spawn", 3, 3, "together"),
)

ROWS: Sequence[Row] = (
    Row(
        "W1",
        "{size:,} updates in one prompt",
        rpc=Goal(0.70),
        acp=Goal(0.55, 8.0, 4.0),
        events=Goal(0.40),
        broker=Goal(official=3.0, direct=0.40),
    ),
    Row("W1", "growth of the memory", ("client_peak", "agent_peak")),
    Row(
        "W2.sequential",
        "{size:,} requests, one at a time",
        rpc=Goal(0.80),
        acp=Goal(0.75),
        bridge=PASSED_ON,
    ),
    Row("W2.sequential", "the median request of these", ("p50",)),
    Row("W2.in_flight", "{size:,} requests, 64 in flight", rpc=Goal(0.70), acp=Goal(0.60)),
    Row("W3.1MiB", "{size} MiB there and back", rpc=Goal(official=1.6), acp=Goal(official=1.5)),
    Row("W3.15MiB", "{size} MiB there and back", rpc=Goal(official=1.2), acp=Goal(official=1.15)),
    Row(
        "W4",
        "{size:,} requests of the agent",
        rpc=Goal(0.70),
        acp=Goal(0.60),
        bridge=PASSED_ON,
    ),
    Row("W8", "{size:,} small files read for the agent", acp=Goal(official=1.0)),
    Row("W5", "{size:,} sessions, 100 updates each", rpc=Goal(0.70), acp=Goal(0.55)),
    Row("W7", "{size:,} idle sessions, each", ("client_each", "agent_each")),
    Row("W6.import", "import", rpc=Goal(official=4.0)),
    Row("W6.spawn", "spawn to first reply", ("first", "wall", "cpu"), rpc=Goal(official=4.0)),
    Row("W6.spawn", "memory of the agent then", ("rss",), rpc=Goal(official=1 / 0.7)),
)


def chosen(only: Iterable[str]) -> list[Entry]:
    """The entries with these ids; `W2` selects all that begin with it. All if no id is given."""
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
        names = ", ".join(sorted(known))
        raise ValueError(f"unknown workload: {', '.join(unknown)}; choose from {names}")
    return entries
