"""What is measured, how much of it, and what is claimed about the result.

It owns the entries of the programme and the goals. It does not know who takes part (`lineup`), what
a work does (`works`) or how the table looks (`report`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bench.lineup import ACP, BRIDGE, BROKER, CODEX, EVENTS, OFFICIAL, RPC


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
    only: tuple[str, ...] = ()
    """Who takes part, by name; all if empty."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What is aimed at; None is no aim."""

    ceiling: float | None = None
    """At least this share of the ceiling's speed."""
    official: float | None = None
    """At least so many times better than the official Python SDK."""
    typescript: float | None = None
    """At least so many times faster than the official TypeScript SDK."""
    direct: float | None = None
    """At least this share of the speed of the same pair with nothing in between."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the result, with its goal."""

    entry: str
    title: str
    """With `{size}` where the size of the entry stands."""
    figures: tuple[str, ...] = ("wall", "cpu")
    rpc: Goal = Goal()
    """For `dragoman.rpc`."""
    acp: Goal = Goal()
    """For real ACP on both sides."""

    events: Goal = Goal()
    """For the conversation API, over ACP and over Codex: one dialect is not to be slower."""

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
"""A round trip through a third process takes at most two and a half times as long."""


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
