"""Format the figures as a table.

Computes the comparison (the median and the range of the ratios of all repetitions) and formats the
result. Measures nothing.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.lineup import CEILING, OFFICIAL, TYPESCRIPT, Contestant
from bench.programme import ROWS, Goal, Row

Figures = Mapping[str, float]
Runs = Mapping[str, Mapping[str, Sequence[Figures]]]
"""By entry id and contestant name: one set of figures per repetition, in order."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """The factor by which one contestant is better than another, over all repetitions."""

    median: float
    lowest: float
    highest: float


def ratio(others: Sequence[Figures], ours: Sequence[Figures], figure: str) -> Ratio:
    """Compare each repetition separately: a busy machine slows down both contestants."""
    ratios = [
        other[figure] / our[figure] for other, our in zip(others, ours, strict=True) if our[figure]
    ]
    return Ratio(statistics.median(ratios), min(ratios), max(ratios))


@dataclass(frozen=True, slots=True)
class Line:
    """One figure of one row for one subject."""

    row: Row
    goal: Goal
    figure: str
    medians: Mapping[str, float]
    ceiling: Ratio | None
    official: Ratio | None
    typescript: Ratio | None
    direct: Ratio | None

    @property
    def met(self) -> bool | None:
        """Whether the medians meet the goal; None if there is no goal or no comparison."""
        met = [
            ratio.median >= aim
            for ratio, aim in (
                (self.ceiling, self.goal.ceiling),
                (self.official, self.goal.official),
                (self.typescript, self.goal.typescript),
                (self.direct, self.goal.direct),
            )
            if aim is not None and ratio is not None
        ]
        return all(met) if met else None


def lines(runs: Runs, subject: str, direct: str = "") -> list[Line]:
    """All lines of a subject for which there are figures. `direct` is the name of the same pair
    without a process in between, if the subject has one."""
    result: list[Line] = []
    for row in ROWS:
        by_name = runs.get(row.entry, {})
        ours = by_name.get(subject)
        if not ours:
            continue

        def against(
            name: str,
            figure: str,
            by_name: Mapping[str, Sequence[Figures]] = by_name,
            ours: Sequence[Figures] = ours,
        ) -> Ratio | None:
            others = by_name.get(name)
            # No ratio for memory growth: dividing values close to zero is meaningless.
            if not others or name == subject or figure.endswith(("peak", "each")):
                return None
            return ratio(others, ours, figure)

        for figure in row.figures:
            if figure not in ours[0]:
                continue
            medians = {
                name: statistics.median(run[figure] for run in of_one)
                for name, of_one in by_name.items()
                if of_one and figure in of_one[0]
            }
            others = [against(name, figure) for name in (CEILING, OFFICIAL, TYPESCRIPT, direct)]
            result.append(Line(row, row.goal(subject), figure, medians, *others))
    return result


def quantity(value: float, figure: str) -> str:
    if figure.endswith("each"):
        return f"{value / 1024:.1f} KiB"
    if figure.endswith(("rss", "pss", "peak")):
        return f"{value / 1024 / 1024:.1f} MiB"
    if value < 0.001:
        return f"{value * 1e6:.1f} us"
    return f"{value * 1e3:.1f} ms" if value < 1 else f"{value:.2f} s"


def share(ratio: Ratio | None) -> str:
    if ratio is None:
        return ""
    return f"{ratio.median:.0%} ({ratio.lowest:.0%}..{ratio.highest:.0%})"


def times(ratio: Ratio | None) -> str:
    if ratio is None:
        return ""
    return f"{ratio.median:.2f}x ({ratio.lowest:.2f}..{ratio.highest:.2f})"


def aims(goal: Goal) -> str:
    parts = [] if goal.ceiling is None else [f"{goal.ceiling:.0%}"]
    parts += [] if goal.official is None else [f"{goal.official:.2f}x"]
    parts += [] if goal.typescript is None else [f"{goal.typescript:.0f}x TS"]
    parts += [] if goal.direct is None else [f"{goal.direct:.0%} of the direct"]
    return ", ".join(parts)


VERDICT = {True: "yes", False: "NO", None: ""}


def table(
    runs: Runs, sizes: Mapping[str, int], subject: Contestant, contestants: Sequence[Contestant]
) -> str:
    """The table for one subject, as text."""
    names = [one.name for one in contestants if one is subject or not one.subject]
    head = ["work", "figure", *names, "of the ceiling", "against the SDK", "against TS"]
    between = bool(subject.direct)
    head += [*["of the direct"] * between, "goal", "met"]
    body = [
        [
            f"{line.row.entry} {line.row.title.format(size=sizes[line.row.entry])}",
            line.figure,
            *(quantity(line.medians[n], line.figure) if n in line.medians else "" for n in names),
            share(line.ceiling),
            times(line.official),
            times(line.typescript),
            *[share(line.direct)] * between,
            aims(line.goal),
            VERDICT[line.met],
        ]
        for line in lines(runs, subject.name, subject.direct)
    ]
    widths = [max(map(len, column)) for column in zip(head, *body, strict=True)]
    drawn = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (head, ["-" * width for width in widths], *body)
    ]
    return f"{subject.name}: {subject.title}\n\n" + "\n".join(drawn) + "\n"


BEGIN = "<!-- figures: written by python -m bench --document -->"
END = "<!-- end of the figures -->"


def documented(document: str, text: str, *, begin: str = BEGIN, end: str = END) -> str:
    """The document with the text between its marks replaced by the result."""
    before, begun, rest = document.partition(begin)
    _, ended, after = rest.partition(end)
    if not (begun and ended):
        raise SystemExit(f"the document must contain {begin!r} and, after it, {end!r}")
    return f"{before}{begin}\n\n{text}\n{end}{after}"
