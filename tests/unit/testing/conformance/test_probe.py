"""The probe passes a good client, and every check catches the fault that it is for."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dragoman.testing.conformance import Verdict
from dragoman.testing.conformance.client_checks import CHECKS, NO_CANCEL, NO_PROMPT, NOT_LEFT
from dragoman.testing.conformance.probe import Scenario
from tests.unit.testing.conformance.faulty_client import PROMPTS, probed

UNTRIED = {
    # By a client that offers everything, and in the main scenario.
    "unknown_version_ends_it",
    # Both are shown by getting as far as the next step, and by nothing else.
    "bare_agent_is_enough",
    "early_updates_are_survived",
    # Only a client that kills its agent breaks it.
    "end_of_input_ends_the_agent",
    # Needs a client that does not offer something.
    "services_not_offered_are_refused",
}

VARIANTS = [
    "capabilities_are_told b",
    "only_advertised_content_is_sent b",
    "only_advertised_content_is_sent c",
    "permission_gets_an_offered_option b",
    "servers_are_always_listed b",
    "files_are_written_and_read b",
    "wrong_paths_are_refused b",
    "terminals_run_and_are_released b",
]

SILENT = {
    "called_off_permission_is_answered",
    "cancel_is_a_notification",
    "handshake_comes_first",
    "ids_are_echoed_as_they_came",
    "late_updates_are_survived",
}


NOISE = ("noise_is_survived", "odd_json_is_survived", "stray_answer_is_survived")


def test_a_good_client_passes_everything_that_can_be_tried(tmp_path: Path) -> None:
    report = asyncio.run(probed(folder=tmp_path))
    assert report.of(Verdict.FAILED) == report.of(Verdict.WARNED) == []
    skipped = {finding.check for finding in report.of(Verdict.SKIPPED)}
    assert skipped == {"unknown_version_ends_it", *NOISE}
    assert report.conforms
    assert report.peer == {"name": "faulty", "version": "1"}
    assert list(tmp_path.iterdir()) == [], "the probe leaves no file behind"


@pytest.mark.parametrize("fault", [*sorted(CHECKS.keys() - UNTRIED), *VARIANTS])
def test_the_fault_is_caught(fault: str, tmp_path: Path) -> None:
    name = fault.split()[0]
    late = name == "late_updates_are_survived"
    prompts = ("hello",) if late else PROMPTS
    silent = fault in SILENT
    scenario: Scenario = "noise" if name in NOISE else "main"
    report = asyncio.run(
        probed(fault, folder=tmp_path, silent=silent, prompts=prompts, scenario=scenario)
    )
    finding = report.finding(name)
    demanded = CHECKS[name].level in ("MUST", "MUST NOT", "FACT")
    assert finding.verdict is (Verdict.FAILED if demanded else Verdict.WARNED), report.to_text()
    assert finding.reason


def test_lines_that_are_not_messages_are_survived_by_a_good_client(tmp_path: Path) -> None:
    report = asyncio.run(probed(folder=tmp_path, scenario="noise"))
    assert {report.finding(name).verdict for name in NOISE} == {Verdict.PASSED}
    assert report.conforms


def test_after_a_client_has_gone_the_rest_is_skipped_and_not_held_against_it(
    tmp_path: Path,
) -> None:
    report = asyncio.run(probed("unknown_updates_are_survived", folder=tmp_path))
    assert report.finding("unknown_updates_are_survived").verdict is Verdict.WARNED
    assert report.finding("files_are_written_and_read").reason == NOT_LEFT


def test_a_client_that_offers_nothing_has_its_services_skipped(tmp_path: Path) -> None:
    report = asyncio.run(probed("offers nothing", folder=tmp_path))
    assert report.finding("services_not_offered_are_refused").verdict is Verdict.PASSED
    for name in ("files_are_written_and_read", "killed_terminal_can_be_read"):
        assert report.finding(name).verdict is Verdict.SKIPPED
        assert "does not offer" in report.finding(name).reason


def test_a_service_that_works_without_being_offered_is_caught(tmp_path: Path) -> None:
    faults = ("offers nothing", "services_not_offered_are_refused")
    report = asyncio.run(probed(*faults, folder=tmp_path))
    assert report.finding("services_not_offered_are_refused").verdict is Verdict.WARNED


def test_a_client_that_does_not_speak_the_agreed_version_has_to_stop(tmp_path: Path) -> None:
    good = asyncio.run(probed(folder=tmp_path, scenario="version"))
    assert good.finding("unknown_version_ends_it").verdict is Verdict.PASSED
    bad = asyncio.run(probed("unknown_version_ends_it", folder=tmp_path, scenario="version"))
    assert bad.finding("unknown_version_ends_it").verdict is Verdict.WARNED


def test_what_was_not_tried_is_skipped_with_the_reason(tmp_path: Path) -> None:
    report = asyncio.run(probed(folder=tmp_path, prompts=("hello",)))
    assert report.finding("open_questions_are_cancelled").reason == NO_CANCEL
    silent = asyncio.run(probed(folder=tmp_path, prompts=()))
    assert silent.finding("noise_is_survived").reason == NO_PROMPT
    assert silent.conforms


def test_a_question_that_was_answered_before_the_cancel_is_not_judged(tmp_path: Path) -> None:
    report = asyncio.run(probed("answers at once", folder=tmp_path))
    finding = report.finding("open_questions_are_cancelled")
    assert finding.verdict is Verdict.SKIPPED
    assert finding.reason == "the client answered before it cancelled"
