"""Simulate the bandit with peers that change, and draw how it compares with a fixed order.

There are two simulated worlds. The bandit is the real one (`dragoman.delegation.bandit`); only the
peers are simulated. All randomness comes from the seeds, so figures and drawing are reproducible:

    python -m scripts.simulate_bandit             print the figures and write the drawing
    python -m scripts.simulate_bandit --json      print everything and write nothing
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import Final

import msgspec
from msgspec import Struct

from dragoman.delegation.bandit import SCALES, best_of, prior, reward, updated
from dragoman.store.values import Arm, Posterior

DRAWING: Final = Path(__file__).resolve().parents[1] / "docs" / "images" / "bandit.svg"

SEEDS: Final = range(20)
DELEGATIONS: Final = 10_000
LAST: Final = 5_000
"""Number of final delegations whose regret is compared, after the learning phase."""
SWAP_AT: Final = 5_000
AFTER_SWAP: Final = 500
INTERVAL: Final = 1800.0
"""Seconds between two delegations of one role and size: 48 per day, as in a busy team."""

NAMES: Final = ("amber", "birch", "cedar", "delta")
"""The simulated peers, in the fixed order."""
SCALE: Final = SCALES["medium"]


@dataclass(frozen=True, slots=True)
class Pace:
    """The average cost and duration of a peer's turn. A single turn takes between 0.5 and 1.5 times
    the average duration."""

    cost: float
    seconds: float

    def worth(self) -> float:
        """The average reward of a successful turn."""
        parts = [0.5 + (step + 0.5) / 40 for step in range(40)]
        return sum(
            reward(
                ok=True,
                rejected=False,
                cost=self.cost,
                seconds=self.seconds * part,
                scale=SCALE,
            )
            for part in parts
        ) / len(parts)


PACES: Final = (
    Pace(cost=0.10, seconds=90.0),
    Pace(cost=0.05, seconds=150.0),
    Pace(cost=0.20, seconds=60.0),
    Pace(cost=0.08, seconds=120.0),
)

World = Callable[[int, random.Random], list[tuple[float, ...]]]
"""Returns the probability that each peer succeeds, for each delegation."""


def drifting(length: int, rng: random.Random) -> list[tuple[float, ...]]:
    """Every peer gets better and worse independently. The first one in the fixed order starts as
    the best, because a user would have chosen the order for a reason."""
    now = [0.9, 0.7, 0.6, 0.5]
    chances = []
    for _ in range(length):
        now = [_kept_within(value + rng.gauss(0.0, 0.005)) for value in now]
        chances.append(tuple(now))
    return chances


def swapping(length: int, rng: random.Random) -> list[tuple[float, ...]]:
    """The best peer and the last one swap at once; the others stay the same."""
    return [(0.9, 0.6, 0.7, 0.5) if at < SWAP_AT else (0.5, 0.6, 0.7, 0.9) for at in range(length)]


def _kept_within(value: float, low: float = 0.3, high: float = 0.95) -> float:
    """Reflect the value at the limits, so that no peer stays at one of them."""
    if value < low:
        return 2 * low - value
    return 2 * high - value if value > high else value


@dataclass(frozen=True, slots=True)
class Run:
    """One simulated history: the picked peers, the best peers, and the regret of each choice."""

    picks: list[int]
    best: list[int]
    regret: list[float]
    fixed_regret: list[float]

    def share_of_best(self, start: int, stop: int) -> float:
        pairs = zip(self.picks[start:stop], self.best[start:stop], strict=True)
        return sum(pick == best for pick, best in pairs) / (stop - start)

    def ratio(self, last: int = LAST) -> float:
        """The regret of the bandit divided by that of the fixed order."""
        return sum(self.regret[-last:]) / sum(self.fixed_regret[-last:])


def simulate(world: World, seed: int, *, length: int = DELEGATIONS) -> Run:
    """Simulate one history. The world, the turns and the bandit have separate random sources, so
    that changing one of them does not affect the others."""
    chances = world(length, random.Random(f"{seed} world"))
    turns = random.Random(f"{seed} turns")
    draws = random.Random(f"{seed} draws")
    arms = [Arm(role="execute", size="medium", peer=name) for name in NAMES]
    index = {arm: place for place, arm in enumerate(arms)}
    beliefs: dict[Arm, Posterior] = {}
    worths = [pace.worth() for pace in PACES]
    run = Run([], [], [], [])
    for at, chance in enumerate(chances):
        now = at * INTERVAL
        arm = best_of(arms, beliefs, draws, now, claims=True).arm
        place = index[arm]
        pace = PACES[place]
        seconds = pace.seconds * (0.5 + turns.random())
        earned = reward(
            ok=turns.random() < chance[place],
            rejected=False,
            cost=pace.cost,
            seconds=seconds,
            scale=SCALE,
        )
        belief = beliefs.get(arm) or prior(arm, True)
        beliefs[arm] = updated(belief, earned, now, cost=pace.cost, seconds=seconds)
        expected = [likely * worth for likely, worth in zip(chance, worths, strict=True)]
        most = max(expected)
        run.picks.append(place)
        run.best.append(expected.index(most))
        run.regret.append(most - expected[place])
        run.fixed_regret.append(most - expected[0])
    return run


@dataclass(frozen=True, slots=True)
class Figures:
    """All histories of both worlds."""

    drifting: list[Run]
    swapping: list[Run]


def simulated(seeds: Sequence[int] = SEEDS) -> Figures:
    return Figures(
        [simulate(drifting, seed) for seed in seeds], [simulate(swapping, seed) for seed in seeds]
    )


class Summary(Struct, frozen=True, kw_only=True):
    """The figures of the histories, one number per seed."""

    ratios: list[float]
    """Drifting: the regret of the bandit divided by that of the fixed order."""
    lost: list[float]
    """Drifting: the regret per delegation."""
    lost_fixed: list[float]
    before: list[float]
    """Swapping: the share of the work that the best peer gets in the 500 delegations before the
    swap."""
    after: list[float]
    """The share of the new best peer in the 500 delegations after the swap."""
    later: list[float]
    """Its share in the next 500."""
    drawing: str


def summary(figures: Figures) -> Summary:
    windows = [
        [run.share_of_best(start, start + AFTER_SWAP) for run in figures.swapping]
        for start in (SWAP_AT - AFTER_SWAP, SWAP_AT, SWAP_AT + AFTER_SWAP)
    ]
    return Summary(
        ratios=[run.ratio() for run in figures.drifting],
        lost=[sum(run.regret[-LAST:]) / LAST for run in figures.drifting],
        lost_fixed=[sum(run.fixed_regret[-LAST:]) / LAST for run in figures.drifting],
        before=windows[0],
        after=windows[1],
        later=windows[2],
        drawing=drawn(figures),
    )


def told(found: Summary) -> list[str]:
    """The figures as text, including those against the bandit."""
    return [
        f"drifting peers, last {LAST} of {DELEGATIONS}, {len(found.ratios)} seeds:",
        f"  regret, relative to the fixed order: median {median(found.ratios):.2f}",
        f"  regret per delegation: median {median(found.lost):.3f}, "
        f"fixed order {median(found.lost_fixed):.3f}",
        f"  highest regret per delegation: {max(found.lost):.3f}, "
        f"fixed order {max(found.lost_fixed):.3f}",
        f"  seeds where the fixed order did better: {sum(ratio > 1 for ratio in found.ratios)}",
        f"the best peer swaps at {SWAP_AT}:",
        f"  picks of the new best in the next {AFTER_SWAP}: median {median(found.after):.0%}, "
        f"lowest {min(found.after):.0%}",
        f"  in the {AFTER_SWAP} after those: median {median(found.later):.0%}",
    ]


# -- the drawing

WIDTH: Final = 720
PANEL: Final = 210
LEFT: Final = 64
STEP: Final = 100
"""Delegations per point of a curve."""


def drawn(figures: Figures) -> str:
    """Both worlds as SVG: cumulative regret, and the share of each peer around the swap."""
    ours = _medians([_every(accumulate(run.regret)) for run in figures.drifting])
    fixed = _medians([_every(accumulate(run.fixed_regret)) for run in figures.drifting])
    top = max(ours[-1], fixed[-1])
    curves = [
        _curve([value / top for value in fixed], "#b8472a", 40),
        _curve([value / top for value in ours], "#1f6fb2", 40),
    ]
    shares = [
        _medians([_shares(run.picks, place) for run in figures.swapping])
        for place in range(len(NAMES))
    ]
    colours = ("#b8472a", "#9a9a9a", "#c9a227", "#1f6fb2")
    below = 40 + PANEL + 70
    for share, colour in zip(shares, colours, strict=True):
        curves.append(_curve(share, colour, below))
    swap = LEFT + (WIDTH - LEFT - 20) * SWAP_AT / DELEGATIONS
    texts = [
        _text(LEFT, 24, "Regret so far against drifting peers (median of 20 seeds)", bold=True),
        _text(LEFT + 12, 62, "fixed order", "#b8472a"),
        _text(LEFT + 12, 80, "bandit", "#1f6fb2"),
        _text(8, 48, f"{top:.0f}"),
        _text(8, 40 + PANEL, "0"),
        _text(LEFT, below - 16, "Who gets the work when the best peer swaps", bold=True),
        *(
            _text(WIDTH - 130, below + 84 + 18 * place, name, colours[place])
            for place, name in enumerate(NAMES)
        ),
        _text(8, below + 8, "100 %"),
        _text(8, below + PANEL, "0 %"),
        _text(LEFT, below + PANEL + 22, "0"),
        _text(swap - 20, below + PANEL + 22, f"{SWAP_AT}"),
        _text(WIDTH - 150, below + PANEL + 22, f"{DELEGATIONS} delegations"),
    ]
    height = below + PANEL + 36
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            f'width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="13">',
            f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
            *(_frame(y) for y in (40, below)),
            f'<line x1="{swap:.1f}" x2="{swap:.1f}" y1="{below}" y2="{below + PANEL}" '
            'stroke="#555555" stroke-dasharray="4 3"/>',
            *curves,
            *texts,
            "</svg>",
            "",
        ]
    )


def _every(values: Iterable[float]) -> list[float]:
    return [value for at, value in enumerate(values) if at % STEP == STEP - 1]


def _shares(picks: Sequence[int], place: int) -> list[float]:
    return [picks[at : at + STEP].count(place) / STEP for at in range(0, len(picks), STEP)]


def _medians(curves: Sequence[Sequence[float]]) -> list[float]:
    return [median(values) for values in zip(*curves, strict=True)]


def _curve(values: Sequence[float], colour: str, top: float) -> str:
    across = (WIDTH - LEFT - 20) / len(values)
    points = " ".join(
        f"{LEFT + (at + 1) * across:.1f},{top + PANEL * (1 - value):.1f}"
        for at, value in enumerate(values)
    )
    return f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{points}"/>'


def _frame(top: float) -> str:
    return (
        f'<rect x="{LEFT}" y="{top}" width="{WIDTH - LEFT - 20}" height="{PANEL}" '
        'fill="none" stroke="#cccccc"/>'
    )


def _text(x: float, y: float, text: str, colour: str = "#222222", *, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.0f}" y="{y:.0f}" fill="{colour}"{weight}>{text}</text>'


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Simulate the bandit and draw the results.")
    parser.add_argument("--json", action="store_true", help="print everything, write nothing")
    as_json: bool = parser.parse_args(arguments).json
    found = summary(simulated())
    if as_json:
        sys.stdout.write(msgspec.json.encode(found).decode())
    else:
        sys.stdout.write("\n".join([*told(found), ""]))
        DRAWING.write_text(found.drawing, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
