"""The record keeps the worst that was found, and several reports become one."""

from __future__ import annotations

from dragoman.testing.conformance.client_checks import ALL, CHECKS, Record, merged
from dragoman.testing.conformance.conversation import Violation
from dragoman.testing.conformance.manifest import requirements
from dragoman.testing.conformance.report import Finding, Report, Verdict


def of(record: Record, name: str) -> Finding:
    return Report("client", "x", record.findings()).finding(name)


def test_every_check_has_a_name_of_its_own_a_sentence_and_known_requirements() -> None:
    assert len(CHECKS) == len(ALL)
    for check, why in ALL:
        assert check.says.endswith(".") and why
        assert check.ids and set(check.ids) <= requirements().keys()


def test_what_was_never_tried_is_skipped_with_a_reason() -> None:
    assert {finding.verdict for finding in Record().findings()} == {Verdict.SKIPPED}
    assert all(finding.reason for finding in Record().findings())


def test_the_worst_that_was_found_stays() -> None:
    changes: list[None] = []
    record = Record(lambda: changes.append(None))
    record.passed("noise_is_survived")
    record.skipped("noise_is_survived", "later")
    assert of(record, "noise_is_survived").verdict is Verdict.PASSED
    record.failed("noise_is_survived", Violation("gone", b"x"))
    record.passed("noise_is_survived")
    record.passed("noise_is_survived")
    assert of(record, "noise_is_survived").verdict is Verdict.WARNED
    assert len(changes) == 2


def test_of_several_reports_the_one_that_says_most_counts_for_each_check() -> None:
    first, second = Record(), Record()
    first.passed("client_names_itself")
    second.failed("client_names_itself", Violation("no"))
    second.passed("unknown_version_ends_it")
    first.failed("input_is_only_messages", Violation("no"))
    second.passed("input_is_only_messages")
    reports = [Report("client", "x", record.findings()) for record in (first, second)]
    report = merged(reports)
    assert report.finding("client_names_itself").verdict is Verdict.WARNED
    assert report.finding("unknown_version_ends_it").verdict is Verdict.PASSED
    assert report.finding("input_is_only_messages").verdict is Verdict.FAILED
    assert len(report.findings) == len(ALL)
