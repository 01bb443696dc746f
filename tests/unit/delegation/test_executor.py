"""The result types of an executor: the defaults mean that nothing happened."""

from __future__ import annotations

from dragoman.delegation.executor import ExecutedJob
from dragoman.events.words import Outcome


def test_a_job_without_a_delegation_has_an_unknown_outcome_and_changed_nothing() -> None:
    job = ExecutedJob(job="j-1", role="review", started_at=1.0, ended_at=2.0)
    assert job.outcome is Outcome.UNKNOWN
    assert (job.patch, job.lost, job.confirmed) == (b"", (), True)
