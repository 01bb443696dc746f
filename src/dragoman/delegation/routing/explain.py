"""Format a routing decision as lines of text: candidates in order, excluded peers with reasons.

A surface prints the lines. JSON output uses the `Decision` itself, which has the same facts.
"""

from __future__ import annotations

from dragoman.delegation.routing.decision import Candidate, Decision
from dragoman.store.values import DEFAULT_TIER


def explain(decision: Decision) -> list[str]:
    """The decision as lines: candidates in order, and why each other peer is excluded."""
    wish = f", tier {decision.tier}" if decision.tier else ""
    lines = [f"{decision.role} ({decision.size} work{wish}): {decision.why}"]
    if decision.candidates:
        lines.append(f"asked in this order ({_ORDERS[decision.order]}):")
        lines += [
            f"  {number}. {_line(candidate)}"
            for number, candidate in enumerate(decision.candidates, 1)
        ]
    if decision.passed_over:
        width = max(len(item.peer) for item in decision.passed_over)
        lines.append("passed over:")
        lines += [f"  {item.peer:<{width}}  {item.detail}" for item in decision.passed_over]
    if decision.shadow:
        lines.append(_shadow(decision))
    return lines


_ORDERS = {"fixed": "the fixed order", "bandit": "by what they have earned"}


def _line(candidate: Candidate) -> str:
    if candidate.model is not None:
        tier = "" if candidate.tier.startswith("model:") else f"{candidate.tier}: "
        model = f" ({tier}{candidate.model})"
    else:
        model = "" if candidate.tier == DEFAULT_TIER else f" ({candidate.tier})"
    score = "" if candidate.score is None else f" [{candidate.score:.2f}]"
    return f"{candidate.peer}{model}{score}: {candidate.why}"


def _shadow(decision: Decision) -> str:
    ordinary = [item.peer for item in decision.candidates if not item.last_resort]
    if list(decision.shadow) == ordinary:
        return "the bandit would have chosen the same order"
    return f"the bandit would have chosen: {', '.join(decision.shadow)}"
