"""A delegation that is over tells every attempt, in words and as JSON."""

from __future__ import annotations

from typing import Any

import msgspec

from dragoman.delegation.attempt_report import AttemptReport
from dragoman.delegation.result import Delegation
from dragoman.delegation.routing import Candidate, Decision
from dragoman.delegation.worktree.check_command import CheckResult
from dragoman.delegation.worktree.snapshot import Changed
from dragoman.events.parts import Failure
from dragoman.events.words import Outcome
from dragoman.store.values import Charge, Provenance

DECISION = Decision(
    role="review",
    tier=None,
    size="small",
    candidates=(Candidate(peer="alpha", tier="default", model=None, why="it claims review"),),
    passed_over=(),
    order="fixed",
    why="alpha is the only one",
)
COST = Charge(amount=0.5, currency="USD", provenance=Provenance.REPORTED)


def report(peer: str, outcome: Outcome = Outcome.OK, **fields: Any) -> AttemptReport:
    told = {"started_at": 1.0, "ended_at": 2.0, "changed": Changed(), **fields}
    return AttemptReport(peer=peer, role="review", outcome=outcome, **told)


def over(*attempts: AttemptReport, **fields: Any) -> Delegation:
    return Delegation(job="j-1", decision_id="d-1", decision=DECISION, attempts=attempts, **fields)


def test_the_last_attempt_is_the_result_and_all_are_reported() -> None:
    failure = Failure("it went wrong")
    done = over(
        report("alpha", Outcome.FAILED, failure=failure, cost=COST),
        report("beta", text="well", reason="alpha failed", cost=COST),
    )
    assert done.ok and done.answered == "beta" and done.text == "well"
    assert done.costs == {"USD": 1.0} and done.costs_complete
    lines = done.lines()
    assert lines[0].startswith("1. alpha: failed after 1.0 s") and "it went wrong" in lines[1]
    assert lines[2].startswith("2. beta: ok") and lines[2].endswith("[alpha failed]")
    told = done.as_json()
    assert [one["peer"] for one in told["attempts"]] == ["alpha", "beta"]
    assert (told["outcome"], told["stopped"], told["job"]) == ("ok", None, "j-1")
    msgspec.json.encode(told)


def test_why_an_attempt_failed_is_not_repeated_with_the_next_one() -> None:
    done = over(
        report("alpha", Outcome.FAILED, failure=Failure("it went wrong")),
        report("beta", reason="alpha failed: it went wrong; it claims review"),
    )
    lines = done.lines()
    assert lines[2].endswith("[alpha failed; it claims review]")
    assert sum("it went wrong" in line for line in lines) == 1


def test_work_that_its_check_does_not_pass_is_not_done() -> None:
    check = CheckResult(command="false", ok=False, exit_code=1)
    done = over(report("alpha", check=check), stopped="alpha: it changed a.txt")
    assert not done.ok and done.outcome is Outcome.FAILED and done.answered is None
    assert done.lines()[-1] == "no other peer was tried: alpha: it changed a.txt"
    assert not done.costs_complete and done.costs == {}
