"""Format a routing decision as lines of text: candidates in order, excluded peers with reasons.

A surface prints the lines. JSON output uses the `Decision` itself, which has the same facts.
"""

from __future__ import annotations

from collections.abc import Callable

from dragoman.delegation.routing.decision import Candidate, Decision, PassedOver
from dragoman.store.values import DEFAULT_TIER

_ORDERS = {
    "fixed": "the order of enabled_peers in your settings",
    "bandit": "random draws from measured success, cost and time",
}
_SETTINGS = {
    "off": "measured success does not change it (adaptive = off)",
    "shadow": "measured success does not change it (adaptive = shadow)",
    "on": "adaptive = on",
}


def explain(decision: Decision, *, clock: Callable[[float], str] | None = None) -> list[str]:
    """Format the decision as lines: candidates in order, and why each other peer is excluded.

    `clock` formats the time at which a reason ends by itself; without it, no time is shown.
    """
    wish = f", tier {decision.tier}" if decision.tier else ""
    lines = [f"{decision.role} ({decision.size} work{wish}): {decision.why}"]
    if decision.candidates:
        lines.append(f"tried in this order: {_order(decision)}")
        for number, candidate in enumerate(decision.candidates, 1):
            lines.append(f"  {number}. {_line(candidate, drawn=decision.order == 'bandit')}")
            if candidate.measured:
                lines.append(f"     {candidate.measured}")
    if decision.shadow:
        lines.append(_shadow(decision))
    if decision.passed_over:
        width = max(len(item.peer) for item in decision.passed_over)
        lines.append("passed over:")
        lines += [
            f"  {item.peer:<{width}}  {_against(item, clock)}" for item in decision.passed_over
        ]
    return lines


def _order(decision: Decision) -> str:
    order = _ORDERS[decision.order]
    if decision.tier or any(one.tier.startswith("model:") for one in decision.candidates):
        order = f"first those that have the model asked for, then {order}"
    return order if decision.adaptive is None else f"{order}; {_SETTINGS[decision.adaptive]}"


def _line(candidate: Candidate, *, drawn: bool) -> str:
    if candidate.model is not None:
        tier = "" if candidate.tier.startswith("model:") else f"{candidate.tier}: "
        model = f" ({tier}{candidate.model})"
    else:
        model = "" if candidate.tier == DEFAULT_TIER else f" ({candidate.tier})"
    # Without this word, a number that changes every time would look like an estimate.
    score = f" [drawn {candidate.score:.2f}]" if drawn and candidate.score is not None else ""
    return f"{candidate.peer}{model}{score}: {candidate.why}"


def _against(item: PassedOver, clock: Callable[[float], str] | None) -> str:
    if item.until is None or clock is None:
        return item.detail
    return f"until {clock(item.until)}: {item.detail}"


def _shadow(decision: Decision) -> str:
    ordinary = [item.peer for item in decision.candidates if not item.last_resort]
    if list(decision.shadow) == ordinary:
        return "adaptive = on would have drawn the same order this time"
    return f"adaptive = on would have drawn this order this time: {', '.join(decision.shadow)}"
