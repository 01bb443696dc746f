"""What the tests of agent checks share: a check passes a good agent, and catches a fault."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from dragoman.testing.conformance import Verdict
from dragoman.testing.conformance.checks import AgentCheck
from tests.unit.testing.conformance.faulty_agent import checked

SILENT = frozenset(
    {
        "blank_and_crlf_lines_are_taken b",
        "cancelled_request_is_still_answered",
        "cancelled_turn_says_so b",
        "closing_cancels_the_turn",
        "ids_are_echoed_as_they_came",
        "text_is_utf8",
    }
)
"""Faults that show by an answer that never comes."""


def names(checks: Sequence[AgentCheck]) -> list[str]:
    return [check.check.name for check in checks]


def assert_caught(check: AgentCheck, fault: str, *, with_turn: bool = False) -> None:
    """The check finds the fault, and grades it by its level."""
    name = check.check.name
    busy = ("turn_ends_with_a_stop_reason", "unknown_extension_is_refused")
    only = (name, *busy) if with_turn else (name,)
    report = asyncio.run(checked(fault, only=only, silent=fault in SILENT))
    finding = report.finding(name)
    demanded = check.check.level in ("MUST", "MUST NOT", "FACT")
    assert finding.verdict is (Verdict.FAILED if demanded else Verdict.WARNED), finding
    assert finding.reason


def assert_passes(check: AgentCheck, *traits: str) -> None:
    """The check has nothing to say about an agent without faults."""
    report = asyncio.run(checked(*traits, only=(check.check.name,)))
    assert report.finding(check.check.name).verdict is Verdict.PASSED, report.findings
