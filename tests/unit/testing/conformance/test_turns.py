"""Every check of `turns` passes a good agent and catches the fault that it is for."""

from __future__ import annotations

import asyncio

import pytest

from dragoman.testing.conformance import Verdict
from dragoman.testing.conformance.checks import AgentCheck
from dragoman.testing.conformance.turns import CHECKS
from tests.unit.testing.conformance.catching import assert_caught, assert_passes, names
from tests.unit.testing.conformance.faulty_agent import checked

BY_NAME = {check.check.name: check for check in CHECKS}

VARIANTS = [
    "turn_ends_with_a_stop_reason b",
    "turn_ends_with_a_stop_reason c",
    "cancelled_turn_says_so b",
    "cancelled_request_is_still_answered b",
    "loading_replays_before_it_answers b",
    "loading_replays_before_it_answers c",
    "loading_replays_before_it_answers d",
]


@pytest.mark.parametrize("check", CHECKS, ids=names(CHECKS))
def test_a_good_agent_passes(check: AgentCheck) -> None:
    assert_passes(check)


@pytest.mark.parametrize("fault", [*BY_NAME, *VARIANTS])
def test_the_fault_is_caught(fault: str) -> None:
    assert_caught(BY_NAME[fault.split()[0]], fault)


def test_an_agent_may_ignore_that_a_request_is_called_off() -> None:
    name = "cancelled_request_is_still_answered"
    report = asyncio.run(checked("ignores calling off", only=(name,), silent=True))
    assert report.finding(name).verdict is Verdict.SKIPPED
