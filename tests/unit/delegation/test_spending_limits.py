"""What may be used up: of a day by the ledger, in a turn by the peer's own reports."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from dragoman.client.budgets import Budgets
from dragoman.config.schema import DelegationLimits
from dragoman.delegation.spending_limits import TurnLimits, has_daily, over_budget, tightened
from dragoman.events.model import Event, EventEnvelope, Source, TurnStarted, UsageReported
from dragoman.events.parts import Cost, Usage
from dragoman.store.ledger import Spent

PLACE = EventEnvelope(Source("acp", "c"), count(), "s")


def reported(scope: str = "turn", **usage: Any) -> Event:
    return UsageReported(*PLACE.base("usage", None), scope=scope, usage=Usage(**usage))


@pytest.mark.parametrize(
    ("name", "limit", "spent", "told"),
    [
        (
            "day_cost",
            1.5,
            Spent(cost=1.5),
            "the daily limit for alpha is used up: 1.5 of 1.5 dollars",
        ),
        (
            "day_tokens",
            10,
            Spent(tokens=11),
            "the daily limit for alpha is used up: 11 of 10 tokens",
        ),
        (
            "day_seconds",
            5.0,
            Spent(seconds=7.5),
            "the daily limit for alpha is used up: 7.5 of 5 seconds",
        ),
        ("day_turns", 0, Spent(), "the daily limit for alpha is used up: 0 of 0 turns"),
    ],
)
def test_a_limit_of_a_day_is_reached_when_it_is_used_up(
    name: str, limit: float, spent: Spent, told: str
) -> None:
    limits = DelegationLimits(**{name: limit})  # type: ignore[arg-type]
    assert has_daily(limits) and over_budget(limits, spent, whose="alpha") == told
    assert over_budget(DelegationLimits(), spent) is None


def test_limits_of_a_turn_ask_for_no_ledger() -> None:
    assert not has_daily(
        DelegationLimits(turn_cost=1.0, turn_tokens=1, turn_seconds=1.0, silence=1.0)
    )
    assert over_budget(DelegationLimits(day_cost=2.0), Spent(cost=1.99)) is None


def test_time_budgets_take_the_least_of_all() -> None:
    limits = [DelegationLimits(turn_seconds=50.0, silence=9.0), DelegationLimits(turn_seconds=40.0)]
    made = tightened(Budgets(total=None, silence=120.0, first_event=5.0), limits)
    assert (made.total, made.silence, made.first_event) == (40.0, 9.0, 5.0)
    assert made.tool_silence == 9.0
    assert made.initialize == Budgets().initialize
    timed = tightened(Budgets(), limits, timeout=3.0)
    assert (timed.total, timed.initialize, timed.session) == (3.0, 3.0, 3.0)
    assert tightened(Budgets(silence=None), [DelegationLimits()]).silence is None
    assert tightened(Budgets(), [DelegationLimits(silence=0.0, turn_seconds=0.0)]).total == 0.001


@pytest.mark.parametrize(
    ("event", "told"),
    [
        (reported(cost=Cost(2.5, "USD")), "the turn cost 2.5 dollars; the limit is 2"),
        (reported(cost=Cost(2.0, "USD")), None),
        (reported(cost=Cost(2.5, "credits")), None),
        (reported(total_tokens=101), "the turn used 101 tokens; the limit is 100"),
        (reported(input_tokens=90, output_tokens=20), "the turn used 110 tokens; the limit is 100"),
        (reported(input_tokens=90), None),
        (reported("account", total_tokens=10_000), None),
        (TurnStarted(*PLACE.base("x", None)), None),
    ],
)
def test_a_turn_crosses_a_limit_by_what_its_peer_tells(event: Event, told: str | None) -> None:
    limits = TurnLimits(
        [DelegationLimits(turn_cost=2.0), DelegationLimits(turn_tokens=100, turn_cost=9.0)]
    )
    assert limits.crossed(event) == told
    assert TurnLimits([DelegationLimits()]).crossed(event) is None


def test_calls_that_are_reported_one_by_one_add_up_to_a_turn() -> None:
    limits = TurnLimits([DelegationLimits(turn_tokens=100)])
    call = reported("call", total_tokens=60)
    assert limits.crossed(call) is None
    assert limits.crossed(call) == "the turn used 120 tokens; the limit is 100"
