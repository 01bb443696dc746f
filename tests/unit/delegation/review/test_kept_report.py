"""What a delegation stores of an attempt for a later review."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from dragoman.delegation.attempt_report import AttemptReport
from dragoman.delegation.review.kept_report import (
    KeptReport,
    as_note,
    digest_of,
    kept_report,
    latest_report,
)
from dragoman.delegation.worktree.check_command import CheckResult
from dragoman.delegation.worktree.patch import Applied, Conflict
from dragoman.errors import FileFailed
from dragoman.events.words import Outcome
from dragoman.store.records import REPORT, Note


def report(**fields: Any) -> AttemptReport:
    told: dict[str, Any] = {
        "peer": "a",
        "role": "r",
        "outcome": Outcome.OK,
        "started_at": 1.0,
        "ended_at": 2.0,
    }
    return AttemptReport(**told | fields)


def test_an_attempt_without_patch_and_check_needs_no_note() -> None:
    assert kept_report("j-1", report()) is None


def test_a_patch_is_kept_with_its_digest_and_a_failed_check_forbids_to_apply_it(
    tmp_path: Path,
) -> None:
    patch = tmp_path / "x.patch"
    patch.write_bytes(b"a patch")
    check = CheckResult(command="make test", ok=False, exit_code=2)
    kept = kept_report(
        "j-1-1", report(isolated=True, patch=str(patch), patch_top="/repo", check=check)
    )
    assert kept == KeptReport(
        job="j-1-1",
        isolated=True,
        check=check,
        patch=str(patch),
        patch_top="/repo",
        patch_digest=hashlib.sha256(b"a patch").hexdigest(),
        obstacle="the check failed: make test",
    )


def test_a_patch_with_conflicts_may_be_tried_again(tmp_path: Path) -> None:
    conflict = Applied(ok=False, conflicts=(Conflict("a", "why"),), kept=str(tmp_path / "x"))
    kept = kept_report("j", report(isolated=True, applied=conflict))
    assert kept is not None and kept.obstacle == "" and kept.patch == str(tmp_path / "x")
    assert kept.patch_digest is None


def test_the_newest_report_is_found_and_a_damaged_one_is_not_used() -> None:
    def note(data: dict[str, Any], kind: str = REPORT) -> Note:
        return Note(at_event=1, kind=kind, data=data, at=1.0)

    one, two = as_note(KeptReport(job="j-1")), as_note(KeptReport(job="j-2"))
    found = latest_report([note(one), note(two), note({}, "permission")])
    assert found is not None and found.job == "j-2"
    assert latest_report([note(one), note({"job": 3})]) is None
    assert latest_report([]) is None


def test_a_file_that_cannot_be_read_is_an_error_and_a_missing_one_is_not(tmp_path: Path) -> None:
    assert digest_of(tmp_path / "missing") is None
    with pytest.raises(FileFailed):
        digest_of(tmp_path)
