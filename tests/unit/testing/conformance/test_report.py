"""A report counts, grades and writes down what was found."""

from __future__ import annotations

from dragoman.testing.conformance.report import (
    EVIDENCE_SIZE,
    Finding,
    Report,
    Verdict,
    from_json,
    shortened,
)


def finding(check: str, verdict: Verdict, reason: str = "", evidence: str = "") -> Finding:
    return Finding(check, ("ACP1-TRN-01",), "MUST", verdict, "It works.", reason, evidence, 0.5)


REPORT = Report(
    "agent",
    "some-agent --acp",
    (
        finding("a", Verdict.PASSED),
        finding("bb", Verdict.SKIPPED, "needs a model turn"),
        finding("c", Verdict.WARNED, "hm", "{}"),
    ),
    {"name": "some", "version": "2"},
)


def test_a_report_conforms_as_long_as_nothing_failed() -> None:
    assert REPORT.conforms
    failed = Report("agent", "x", (*REPORT.findings, finding("d", Verdict.FAILED, "no")))
    assert not failed.conforms
    assert failed.summary() == "1 passed, 1 failed, 1 warned, 1 skipped: does not conform"


def test_a_report_in_which_nothing_was_tried_does_not_conform() -> None:
    assert not Report("agent", "x").conforms
    assert not Report("agent", "x", (finding("a", Verdict.SKIPPED),)).conforms


def test_a_report_is_read_back_from_its_json_as_it_was() -> None:
    assert from_json(REPORT.to_json()) == REPORT


def test_the_table_has_reasons_evidence_and_the_summary_last() -> None:
    assert REPORT.to_text().splitlines() == [
        "agent: some-agent --acp",
        "calls itself some 2",
        "",
        "passed  a   ACP1-TRN-01",
        "skipped bb  ACP1-TRN-01",
        "        needs a model turn",
        "warned  c   ACP1-TRN-01",
        "        hm",
        "        > {}",
        "",
        "1 passed, 0 failed, 1 warned, 1 skipped: conforms",
    ]


def test_findings_are_found_by_name_and_by_verdict() -> None:
    assert REPORT.finding("bb").reason == "needs a model turn"
    assert [found.check for found in REPORT.of(Verdict.WARNED)] == ["c"]


def test_evidence_is_one_short_printable_line_whatever_it_was() -> None:
    assert shortened({"a": "☃"}) == '{"a":"☃"}'
    assert shortened(b"\xff\n") == "\\xff "
    assert shortened("\x1b[31m") == "�[31m"
    long = shortened("x" * 5000)
    assert long.startswith("x" * EVIDENCE_SIZE + "…") and long.endswith("(5000 characters)")
