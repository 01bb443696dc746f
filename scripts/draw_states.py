"""Draw the states of a broker: docs/images/broker-states.svg.

    python scripts/draw_states.py > docs/images/broker-states.svg        or: make picture

The layout is manual. tests/docs/test_brokers_explanation.py checks that the arrows match the table
in `dragoman.broker.server.state_machine`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

from dragoman.broker.server.state_machine import BrokerEvent, BrokerState

WIDTH, HEIGHT = 940, 372
BOX: Final = (120, 44)
GROUND, INK, LINE, FILL = "#ffffff", "#1f2328", "#4b5563", "#eef2ff"

PLACES: Final = {
    BrokerState.STARTING: (130, 90),
    BrokerState.IDLE: (400, 90),
    BrokerState.SERVING: (650, 90),
    BrokerState.FAILED: (130, 270),
    BrokerState.RESTARTING: (400, 270),
    BrokerState.DRAINING: (850, 90),
    BrokerState.STOPPED: (850, 270),
}
"""The centre of each state."""

ACTIVE: Final = (
    *(BrokerState.STARTING, BrokerState.IDLE, BrokerState.SERVING),
    *(BrokerState.RESTARTING, BrokerState.FAILED),
)
"""The states inside the frame. An arrow from the frame stands for an arrow from each of them."""


@dataclass(frozen=True, slots=True)
class Arrow:
    """One line and the transitions that it stands for."""

    states: tuple[BrokerState, ...]
    event: BrokerEvent
    following: BrokerState
    points: tuple[tuple[int, int], ...]
    label: str
    at: tuple[int, int]
    anchor: str = "middle"


_S, _E = BrokerState, BrokerEvent

ARROWS: Final = (
    Arrow((_S.STARTING,), _E.READY, _S.IDLE, ((190, 90), (340, 90)), "ready", (265, 82)),
    Arrow((_S.IDLE,), _E.WORK, _S.SERVING, ((460, 80), (590, 80)), "prompt", (525, 72)),
    Arrow((_S.SERVING,), _E.DONE, _S.IDLE, ((590, 100), (460, 100)), "last turn ends", (525, 118)),
    Arrow(
        *((_S.STARTING,), _E.UNSTARTABLE, _S.FAILED, ((110, 112), (110, 248))),
        *("start fails", (102, 184), "end"),
    ),
    Arrow(
        *((_S.STARTING,), _E.LOST, _S.RESTARTING, ((165, 112), (345, 248))),
        *("agent died", (222, 205), "end"),
    ),
    Arrow((_S.IDLE,), _E.LOST, _S.RESTARTING, ((385, 112), (385, 248)), "died", (377, 160), "end"),
    Arrow(
        *((_S.RESTARTING,), _E.READY, _S.IDLE, ((415, 248), (415, 112))),
        *("ready", (423, 160), "start"),
    ),
    Arrow(
        *((_S.SERVING,), _E.LOST, _S.RESTARTING, ((650, 112), (650, 270), (460, 270))),
        *("agent died", (642, 205), "end"),
    ),
    Arrow(
        *((_S.RESTARTING,), _E.UNSTARTABLE, _S.FAILED, ((340, 260), (190, 260))),
        *("start fails", (265, 252)),
    ),
    Arrow(
        *((_S.FAILED,), _E.WANTED, _S.RESTARTING, ((190, 282), (340, 282))),
        *("next call", (265, 300)),
    ),
    Arrow(ACTIVE, _E.DRAIN, _S.DRAINING, ((730, 90), (790, 90)), "drain", (760, 82)),
    Arrow(ACTIVE, _E.STOP, _S.STOPPED, ((730, 270), (790, 270)), "stop", (760, 262)),
    Arrow(
        *((_S.DRAINING,), _E.DONE, _S.STOPPED, ((835, 112), (835, 248))),
        *("done", (827, 184), "end"),
    ),
    Arrow(
        *((_S.DRAINING,), _E.STOP, _S.STOPPED, ((865, 112), (865, 248))),
        *("stop", (873, 184), "start"),
    ),
)


def draw() -> str:
    """The diagram as SVG, with a light background so that it is readable on a dark page."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" role="img" font-family="system-ui, sans-serif">',
        "<title>The states of a broker</title>",
        '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" '
        f'markerHeight="8" orient="auto"><path d="M0 0L10 5L0 10z" fill="{LINE}"/></marker></defs>',
        f'<rect width="100%" height="100%" rx="8" fill="{GROUND}"/>',
        f'<rect x="30" y="34" width="700" height="310" rx="12" fill="none" stroke="{LINE}" '
        'stroke-dasharray="6 5"/>',
        f'<circle cx="130" cy="18" r="6" fill="{LINE}"/>',
        _line(((130, 24), (130, 66))),
    ]
    for arrow in ARROWS:
        parts.append(_line(arrow.points))
        parts.append(_text(arrow.label, arrow.at, size=13, anchor=arrow.anchor))
    width, height = BOX
    for state, (x, y) in PLACES.items():
        parts.append(
            f'<rect x="{x - width // 2}" y="{y - height // 2}" width="{width}" height="{height}" '
            f'rx="8" fill="{FILL}" stroke="{LINE}" stroke-width="1.5"/>'
        )
        parts.append(_text(state.value, (x, y + 5), size=16))
    return "\n".join([*parts, "</svg>", ""])


def _line(points: tuple[tuple[int, int], ...]) -> str:
    path = " ".join(f"{x},{y}" for x, y in points)
    return (
        f'<polyline points="{path}" fill="none" stroke="{LINE}" stroke-width="1.5" '
        'marker-end="url(#tip)"/>'
    )


def _text(text: str, at: tuple[int, int], *, size: int, anchor: str = "middle") -> str:
    x, y = at
    return (
        f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}" fill="{INK}">'
        f"{escape(text)}</text>"
    )


if __name__ == "__main__":
    sys.stdout.write(draw())
