"""Format the last line of a turn: outcome, duration, model, tokens, cost.

Values that the agent did not report are left out, never shown as zero.
"""

from __future__ import annotations

from collections.abc import Mapping

from dragoman.catalogue.enforcement import NOT_ENFORCED
from dragoman.cli.output.escape import one_line
from dragoman.cli.output.renderer import TurnReport
from dragoman.events.parts import Cost, Usage


def line(report: TurnReport, seen: Mapping[str, Usage]) -> str:
    """Outcome, time, model, tokens, context and cost, as far as they are known."""
    parts = [report.result.outcome.value, duration(report.seconds)]
    if report.model:
        parts.append(one_line(report.model))
    used = report.result.usage or seen.get("turn")
    if used is not None and (told := tokens(used)):
        parts.append(told)
    for usage in (used, seen.get("context"), seen.get("session")):
        if usage is not None and usage.context_used is not None and usage.context_size:
            share = 100 * usage.context_used / usage.context_size
            parts.append(f"context {share:.0f} % of {usage.context_size:,}")
            break
    for usage in (used, *seen.values()):
        if usage is not None and usage.cost is not None:
            parts.append(cost(usage.cost))
            break
    if report.result.denials:
        count = len(report.result.denials)
        parts.append(f"{count} permission{'s' if count > 1 else ''} denied")
        if report.result.approvals:
            parts.append(f"{report.result.approvals} approved")
    if report.unenforced:
        parts.append(NOT_ENFORCED)
    return ", ".join(parts)


def tokens(usage: Usage) -> str:
    """Tokens in and out; the sum where only that is known."""
    parts = []
    if usage.input_tokens is not None:
        parts.append(f"{usage.input_tokens:,} in")
    if usage.output_tokens is not None:
        parts.append(f"{usage.output_tokens:,} out")
    if parts:
        return " + ".join(parts) + " tokens"
    return "" if usage.total_tokens is None else f"{usage.total_tokens:,} tokens"


def cost(cost: Cost) -> str:
    """Money with the digits that matter."""
    return money(cost.amount, cost.unit)


def money(amount: float, unit: str | None) -> str:
    """An amount of a currency, or of what a peer counts in."""
    return f"{amount:,.{2 if amount >= 1 else 4}f} {one_line(unit or '')}".rstrip()


def duration(seconds: float) -> str:
    """Seconds, or minutes where there are many."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"
