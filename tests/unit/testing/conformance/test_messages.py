"""Every check of `messages` passes a good agent and catches the fault that it is for."""

from __future__ import annotations

import asyncio
import sys

import pytest

from dragoman.testing.conformance import Verdict, check_agent
from dragoman.testing.conformance.checks import AgentCheck
from dragoman.testing.conformance.messages import CHECKS, WATCHING
from dragoman.testing.scripted import Expect, GoSilent, IgnoreTerminate, Reply, Step, command
from tests.unit.testing.conformance.catching import assert_caught, assert_passes, names
from tests.unit.testing.conformance.faulty_agent import checked

PROCESS = "end_of_input_ends_the_agent"
IN_MEMORY = [check for check in CHECKS if check.check.name != PROCESS]
BY_NAME = {check.check.name: check for check in [*IN_MEMORY, *WATCHING]}

VARIANTS = [
    "blank_and_crlf_lines_are_taken b",
    "output_is_only_messages b",
    "output_is_only_messages c",
    "messages_are_well_formed b",
    "custom_fields_stay_in_meta b",
    "custom_fields_stay_in_meta c",
]


@pytest.mark.parametrize("check", IN_MEMORY, ids=names(IN_MEMORY))
def test_a_good_agent_passes(check: AgentCheck) -> None:
    assert_passes(check)


def test_checks_over_the_whole_run_pass_a_good_agent_and_skip_one_that_was_not_tried() -> None:
    report = asyncio.run(checked())
    alone = asyncio.run(checked(only=tuple(names(WATCHING))))
    for name in names(WATCHING):
        assert report.finding(name).verdict is Verdict.PASSED
        assert alone.finding(name).verdict is Verdict.SKIPPED


@pytest.mark.parametrize("fault", [*BY_NAME, *VARIANTS])
def test_the_fault_is_caught(fault: str) -> None:
    assert_caught(BY_NAME[fault.split()[0]], fault, with_turn=fault.split()[0] in names(WATCHING))


def test_the_end_of_input_cannot_be_tried_without_a_process() -> None:
    report = asyncio.run(checked(only=(PROCESS,)))
    assert report.finding(PROCESS).verdict is Verdict.SKIPPED


HELLO: list[Step] = [Expect("initialize"), Reply({"protocolVersion": 1})]


@pytest.mark.skipif(sys.platform == "win32", reason="there are no signals")
@pytest.mark.parametrize(
    ("last", "verdict"),
    [([], Verdict.PASSED), ([IgnoreTerminate(), GoSilent()], Verdict.WARNED)],
    ids=["ends", "stays"],
)
def test_an_agent_that_does_not_end_with_its_input_gets_a_warning(
    last: list[Step], verdict: Verdict
) -> None:
    report = asyncio.run(check_agent(command(*HELLO, *last), only=[PROCESS]))
    assert report.finding(PROCESS).verdict is verdict
