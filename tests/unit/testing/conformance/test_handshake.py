"""Every check of `handshake` passes a good agent and catches the fault that it is for."""

from __future__ import annotations

import pytest

from dragoman.testing.conformance.checks import AgentCheck
from dragoman.testing.conformance.handshake import CHECKS
from tests.unit.testing.conformance.catching import assert_caught, assert_passes, names

BY_NAME = {check.check.name: check for check in CHECKS}

VARIANTS = [
    "initialize_is_answered b",
    "agent_names_itself b",
    "malformed_capabilities_count_as_absent b",
]


@pytest.mark.parametrize("check", CHECKS, ids=names(CHECKS))
def test_a_good_agent_passes(check: AgentCheck) -> None:
    assert_passes(check)


@pytest.mark.parametrize("fault", [*BY_NAME, *VARIANTS])
def test_the_fault_is_caught(fault: str) -> None:
    assert_caught(BY_NAME[fault.split()[0]], fault)
