"""Draw the chart of docs/explanation/speed.md from bench/figures.txt: docs/images/speed.svg.

    python scripts/draw_speed.py > docs/images/speed.svg        or: make picture

Each group of bars is one workload of the benchmark, and each bar the wall time of one library, from
the table of dragoman's ACP client. It uses the output of `make bench` and measures nothing itself.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

ROOT: Final = Path(__file__).resolve().parents[1]
FIGURES: Final = ROOT / "bench" / "figures.txt"

SUBJECT: Final = "dragoman_acp"
WORKS: Final = {
    "W1": "20,000 updates in one prompt",
    "W5": "200 sessions, 100 updates each",
    "W4": "2,000 requests of the agent",
    "W2.in_flight": "5,000 requests, 64 at a time",
    "W2.sequential": "5,000 requests, one at a time",
}
LIBRARIES: Final = {
    SUBJECT: ("dragoman", "#3b5bdb"),
    "typescript": ("TypeScript SDK", "#f08c00"),
    "official": ("Python SDK", "#868e96"),
}

UNITS: Final = {"us": 0.001, "ms": 1.0, "s": 1000.0}
WIDTH, LEFT, RIGHT = 760, 230, 90
TOP, BAR, GAP = 48, 18, 20


@dataclass(frozen=True, slots=True)
class Row:
    """One workload: milliseconds of wall time by library."""

    work: str
    times: dict[str, float]


def rows(text: str) -> list[Row]:
    """The wall times of the subject's table."""
    _, _, rest = text.partition(f"\n{SUBJECT}: ")
    _, head, line, *body = [each for each in rest.splitlines() if each]
    starts = [at for at, each in enumerate(line) if each == "-" and line[at - 1 : at] != "-"]
    bounds = list(zip(starts, [*starts[1:], None], strict=True))
    names = [head[begin:end].strip() for begin, end in bounds]
    found = {}
    for each in body:
        cells = dict(zip(names, (each[begin:end].strip() for begin, end in bounds), strict=True))
        work = cells["work"].partition(" ")[0]
        if work in WORKS and cells["figure"] == "wall" and work not in found:
            found[work] = Row(work, {name: _milliseconds(cells[name]) for name in LIBRARIES})
    return [found[work] for work in WORKS]


def _milliseconds(cell: str) -> float:
    number, unit = cell.split()
    return float(number) * UNITS[unit]


def draw(measured: list[Row]) -> str:
    """The chart as SVG, with a light background so that it is readable on a dark page."""
    longest = max(time for row in measured for time in row.times.values())
    scale = (WIDTH - LEFT - RIGHT) / longest
    height = TOP + len(measured) * (len(LIBRARIES) * BAR + GAP) + 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img" font-family="system-ui, sans-serif" '
        'font-size="13" fill="#1f2328">',
        "<title>Wall time of the same work with three libraries; shorter is better</title>",
        '<rect width="100%" height="100%" rx="8" fill="#ffffff"/>',
    ]
    x = 16
    for name, colour in LIBRARIES.values():
        parts.append(f'<rect x="{x}" y="16" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{x + 18}" y="27">{name}</text>')
        x += 40 + 8 * len(name)
    parts.append(f'<text x="{WIDTH - 16}" y="27" text-anchor="end">shorter is better</text>')
    y = TOP
    for row in measured:
        middle = y + len(LIBRARIES) * BAR / 2 + 4
        label = escape(WORKS[row.work])
        parts.append(f'<text x="{LEFT - 12}" y="{middle:g}" text-anchor="end">{label}</text>')
        for name, (_, colour) in LIBRARIES.items():
            time = row.times[name]
            parts.append(
                f'<rect x="{LEFT}" y="{y}" width="{time * scale:.1f}" height="{BAR - 3}" '
                f'fill="{colour}"/>'
            )
            at = LEFT + time * scale + 6
            parts.append(f'<text x="{at:.1f}" y="{y + BAR - 6}">{time:,.0f} ms</text>')
            y += BAR
        y += GAP
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    sys.stdout.write(draw(rows(FIGURES.read_text("utf-8"))))
