"""Jobs of other machines, for tests."""

from __future__ import annotations

from typing import Any

from dragoman.delegation.attempt_report import AttemptReport
from dragoman.delegation.executor import ExecutedJob
from dragoman.delegation.result import Delegation
from dragoman.delegation.routing import Candidate, Decision
from dragoman.events.words import Outcome

NOW = 1_800_000_000.0

DECISION = Decision(
    role="review",
    tier=None,
    size="small",
    candidates=(Candidate(peer="codex", tier="default", model=None, why="first"),),
    passed_over=(),
    order="fixed",
    why="codex is first",
)


def report(outcome: Outcome = Outcome.OK, **fields: Any) -> AttemptReport:
    told: dict[str, Any] = {
        "peer": "codex",
        "role": "review",
        "tier": "default",
        "text": "done",
        "started_at": NOW - 13.0,
        "ended_at": NOW - 10.0,
        **fields,
    }
    return AttemptReport(outcome=outcome, **told)


def delegation(*reports: AttemptReport) -> Delegation:
    return Delegation(job="j-there", decision_id="d-there", decision=DECISION, attempts=reports)


def executed(*reports: AttemptReport, **fields: Any) -> ExecutedJob:
    told: dict[str, Any] = {
        "job": "j-1",
        "role": "review",
        "machine": "w1",
        "started_at": NOW - 20.0,
        "ended_at": NOW - 9.0,
        **fields,
    }
    return ExecutedJob(delegation=delegation(*reports) if reports else None, **told)
