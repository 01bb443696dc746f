"""Limits on cost, tokens, seconds and turns, per 24 hours and per turn.

Compares usage with the limits in the settings and says which limit is used up. The usage of the
last 24 hours comes from `store.ledger`, before a turn begins; the usage of the running turn comes
from the peer's usage reports.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from dragoman.client.budgets import Budgets
from dragoman.config.schema import DelegationLimits
from dragoman.events import model
from dragoman.store.ledger.records import Spent
from dragoman.store.values import DOLLARS

DAY: Final = 24 * 3600.0
"""A day in seconds. Limits apply to the last 24 hours, so that they cannot be used up twice
around midnight."""

OVER_BUDGET: Final = "over_budget"
"""The `error_class` of a turn that was stopped by one of these limits."""

TURN_SCOPES: Final = frozenset({"turn", "session", "context", "call"})
"""Scopes of usage reports that count. The session is new, so its usage is that of this turn."""


def has_daily(limits: DelegationLimits) -> bool:
    """Return whether there is a daily limit. Callers read the ledger only if there is one."""
    daily = (limits.day_cost, limits.day_tokens, limits.day_seconds, limits.day_turns)
    return any(limit is not None for limit in daily)


def over_budget(limits: DelegationLimits, spent: Spent, *, whose: str = "") -> str | None:
    """Return the first daily limit that is used up, as text, or None. `whose` is the peer that the
    limits are for; empty if they are for all peers."""
    of = f" for {whose}" if whose else ""
    for used, limit, unit in (
        (spent.cost, limits.day_cost, "dollars"),
        (spent.tokens, limits.day_tokens, "tokens"),
        (spent.seconds, limits.day_seconds, "seconds"),
        (spent.turns, limits.day_turns, "turns"),
    ):
        if limit is not None and used >= limit:
            return f"the daily limit{of} is used up: {used:.6g} of {limit:.6g} {unit}"
    return None


def tightened(
    budgets: Budgets, limits: Sequence[DelegationLimits], timeout: float | None = None
) -> Budgets:
    """Return the time budgets of a turn, reduced where the limits or the timeout are lower."""
    total = _least([budgets.total, timeout, *(one.turn_seconds for one in limits)])
    silence = [one.silence for one in limits]
    budgets = replace(
        budgets,
        # A limit of 0 never means "no limit", and a budget must not be 0.
        total=None if total is None else max(total, 0.001),
        silence=_positive(_least([budgets.silence, *silence])),
        tool_silence=_positive(_least([budgets.tool_silence, *silence])),
        first_event=_positive(_least([budgets.first_event, *silence])),
    )
    if timeout is not None:
        budgets = replace(
            budgets,
            initialize=min(budgets.initialize, timeout),
            session=min(budgets.session, timeout),
        )
    return budgets


def _least(values: Sequence[float | None]) -> float | None:
    return min((value for value in values if value is not None), default=None)


def _positive(value: float | None) -> float | None:
    return None if value is None else max(value, 0.001)


class TurnLimits:
    """Checks the usage that a peer reports during a turn against the limits per turn."""

    def __init__(self, limits: Sequence[DelegationLimits]) -> None:
        self._cost = _least([one.turn_cost for one in limits])
        self._tokens = _least([one.turn_tokens for one in limits])
        self._called = 0

    def crossed(self, event: model.Event) -> str | None:
        """Take account of an event, and return the limit that the turn has now exceeded, as text;
        None if there is none or the event does not report the usage of the turn."""
        if not isinstance(event, model.UsageReported) or event.scope not in TURN_SCOPES:
            return None
        usage = event.usage
        cost = usage.cost
        if self._cost is not None and cost is not None and cost.unit == DOLLARS:
            if cost.amount > self._cost:
                return f"the turn cost {cost.amount:.4g} dollars; the limit is {self._cost:.4g}"
        total = usage.total_tokens
        if total is None and (usage.input_tokens or usage.output_tokens):
            total = (usage.input_tokens or 0) + (usage.output_tokens or 0)
        if event.scope == "call":
            # Each call is reported by itself; a turn is the sum of its calls.
            self._called += total or 0
            total = self._called
        if self._tokens is not None and total is not None and total > self._tokens:
            return f"the turn used {total} tokens; the limit is {self._tokens}"
        return None
