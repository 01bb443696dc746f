"""Figures become the table.

It owns the arithmetic of the comparison (the median of the ratios of each repetition, and their
range) and the look of the result. It measures nothing.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.lineup import CEILING, OFFICIAL, Contestant
from bench.programme import ROWS, Row

Figures = Mapping[str, float]
Runs = Mapping[str, Mapping[str, Sequence[Figures]]]
"""Entry id, then contestant's name, then one set of figures per repetition, in order."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times better than another, over all repetitions."""

    median: float
    lowest: float
    highest: float


def ratio(others: Sequence[Figures], ours: Sequence[Figures], figure: str) -> Ratio:
    """Compare repetition by repetition: what slows the machine down slows both down."""
    ratios = [
        other[figure] / our[figure] for other, our in zip(others, ours, strict=True) if our[figure]
    ]
    return Ratio(statistics.median(ratios), min(ratios), max(ratios))


@dataclass(frozen=True, slots=True)
class Line:
    """One figure of one row for one subject."""

    row: Row
    figure: str
    medians: Mapping[str, float]
    against_ceiling: Ratio | None
    against_official: Ratio | None

    @property
    def met(self) -> bool | None:
        """Whether the goal is met by the median; None where there is no goal or no comparison."""
        row = self.row
        if row.ceiling_share is not None and self.against_ceiling is not None:
            return self.against_ceiling.median >= row.ceiling_share
        if row.official_times is not None and self.against_official is not None:
            return self.against_official.median >= row.official_times
        return None


def lines(runs: Runs, subject: str) -> list[Line]:
    """All lines that can be drawn for a subject from what was measured."""
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
            return ratio(others, ours, figure) if others and name != subject else None

        for figure in row.figures:
            medians = {
                name: statistics.median(run[figure] for run in of_one)
                for name, of_one in by_name.items()
            }
            line = Line(row, figure, medians, against(CEILING, figure), against(OFFICIAL, figure))
            result.append(line)
    return result


def quantity(value: float, figure: str) -> str:
    if figure in ("rss", "pss"):
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


def goal(row: Row) -> str:
    if row.ceiling_share is not None:
        return f">= {row.ceiling_share:.0%} of the ceiling"
    if row.official_times is not None:
        return f">= {row.official_times:.2f}x the SDK"
    return ""


VERDICT = {True: "yes", False: "NO", None: ""}


def table(
    runs: Runs, sizes: Mapping[str, int], subject: Contestant, contestants: Sequence[Contestant]
) -> str:
    """The table for one subject, as text."""
    names = [one.name for one in contestants if one is subject or not one.subject]
    head = ["work", "figure", *names, "of the ceiling", "against the SDK", "goal", "met"]
    body = [
        [
            f"{line.row.entry} {line.row.title.format(size=sizes[line.row.entry])}",
            line.figure,
            *(quantity(line.medians[n], line.figure) if n in line.medians else "" for n in names),
            share(line.against_ceiling),
            times(line.against_official),
            goal(line.row),
            VERDICT[line.met],
        ]
        for line in lines(runs, subject.name)
    ]
    widths = [max(map(len, column)) for column in zip(head, *body, strict=True)]
    drawn = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (head, ["-" * width for width in widths], *body)
    ]
    return f"{subject.name}: {subject.title}\n\n" + "\n".join(drawn) + "\n"


BEGIN = "<!-- figures: written by python -m bench --document -->"
END = "<!-- end of the figures -->"


def documented(document: str, text: str) -> str:
    """The document with the result between its marks, in place of what was there."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"the document has no {BEGIN!r} before {END!r}")
    return f"{before}{begin}\n\n```text\n{text}```\n\n{end}{after}"
