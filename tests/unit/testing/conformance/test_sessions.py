"""Every check of `sessions` passes a good agent and catches the fault that it is for."""

from __future__ import annotations

import asyncio

import pytest

from dragoman.testing.conformance import Verdict
from dragoman.testing.conformance.checks import AgentCheck
from dragoman.testing.conformance.sessions import CHECKS
from tests.unit.testing.conformance.catching import assert_caught, assert_passes, names
from tests.unit.testing.conformance.faulty_agent import checked

BY_NAME = {check.check.name: check for check in CHECKS}

VARIANTS = [
    "new_sessions_have_ids_of_their_own b",
    "modes_are_offered_as_an_option_too b",
    "unknown_option_is_refused b",
]


@pytest.mark.parametrize("check", CHECKS, ids=names(CHECKS))
def test_a_good_agent_passes(check: AgentCheck) -> None:
    # What is not advertised can only be tried where something is not.
    bare = check.check.name == "methods_not_advertised_are_refused"
    assert_passes(check, *(["offers nothing"] if bare else []))


OPTIONAL = [
    "loading_no_session_is_refused",
    "list_of_sessions_is_a_list",
    "listed_sessions_are_well_formed",
    "listing_changes_nothing",
    "invalid_cursor_is_refused",
    "deleting_twice_succeeds",
    "deleted_session_is_not_listed",
    "closed_session_is_closed",
]


def test_what_is_not_advertised_is_skipped_with_the_reason() -> None:
    report = asyncio.run(checked("offers nothing", only=tuple(OPTIONAL)))
    for finding in report.findings:
        assert finding.verdict is Verdict.SKIPPED
        assert finding.reason.startswith("it does not advertise ")


@pytest.mark.parametrize("fault", [*BY_NAME, *VARIANTS])
def test_the_fault_is_caught(fault: str) -> None:
    assert_caught(BY_NAME[fault.split()[0]], fault)
