"""How a delegation looks in every format, and its exit code."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from msgspec import structs

from dragoman.catalogue.load import Catalogue, built_in
from dragoman.cli.output.delegation_output import DelegationOutput, as_json, exit_code
from dragoman.cli.output.jsonl import JsonLines
from dragoman.cli.output.quiet import Quiet
from dragoman.cli.output.renderer import Renderer
from dragoman.cli.output.turn_text import TextShow
from dragoman.client.permissions import Denial
from dragoman.delegation.routing import Candidate
from dragoman.delegation.spending_limits import OVER_BUDGET
from dragoman.delegation.worktree.check_command import CheckResult
from dragoman.delegation.worktree.snapshot import Changed
from dragoman.events.words import Outcome
from tests.unit.delegation.test_result import DECISION, over, report

CATALOGUE = Catalogue(built_in())
DENIAL = Denial("t", "Write", "edit")
FIRST = Candidate(peer="alpha", tier="fast", model="m", why="it claims review")
FAILED = report("alpha", Outcome.FAILED)
DONE = over(FAILED, report("beta", text="well\n", reason="alpha failed"))


def shown(kind: type[Renderer], done: Any = DONE, **options: Any) -> tuple[str, str, int]:
    out, err = io.StringIO(), io.StringIO()
    stage = DelegationOutput(kind(out, err, **options), CATALOGUE)
    stage.job("j-1")
    stage.decided(DECISION)
    stage.attempt(1, FIRST, "it claims review")
    stage.reported(1, FAILED)
    stage.notice("something")
    code = stage.over(done)
    return out.getvalue(), err.getvalue(), code


def test_a_person_sees_who_is_asked_and_every_attempt_at_the_end() -> None:
    out, err, code = shown(TextShow)
    lines = [line.removeprefix("dragoman: ") for line in err.splitlines()]
    assert lines[:3] == ["job j-1", "attempt 1: alpha [it claims review]", "something"]
    assert lines[3].startswith("1. alpha: failed") and lines[4].startswith("2. beta: ok")
    assert (out, code) == ("well\n", 0)


def test_a_program_gets_a_line_for_each_step() -> None:
    out, err, _ = shown(JsonLines)
    lines = [json.loads(line) for line in out.splitlines()]
    kinds = ["JobBegun", "Decision", "AttemptBegun", "Attempt", "Delegation"]
    assert [line["type"] for line in lines] == kinds
    assert lines[2]["model"] == "m" and lines[3]["number"] == 1
    assert lines[4]["answered"] == "beta" and lines[4]["exit_code"] == 0
    assert "2. beta: ok" in err
    assert shown(JsonLines, strict=True)[1] == ""


def test_who_wants_only_the_answer_gets_it_and_hears_of_failures() -> None:
    out, err, _ = shown(Quiet)
    assert out == "well\n" and "job" not in err and "1. alpha: failed" in err
    out, err, _ = shown(Quiet, over(report("beta", text="well")))
    assert (out, err) == ("well\n", "dragoman: something\n")


def test_a_delegation_that_fails_says_whose_fault_it_is_and_what_to_do() -> None:
    died = report(
        "beta", Outcome.CRASHED, error_class="process_exited", may_have_run=True, changed=None
    )
    out, err, code = shown(TextShow, over(FAILED, died))
    assert code == 1
    what_next, again, fault = [line.removeprefix("dragoman: ") for line in err.splitlines()][-3:]
    assert fault == "whose fault: the agent"
    assert again == "try again:   check first: part of the work may already be done"
    assert what_next.startswith("what next:   start the agent by hand")
    # A second try does nothing twice if the first one changed nothing.
    err = shown(TextShow, over(FAILED, structs.replace(died, changed=Changed())))[1]
    assert "what next:   start the agent by hand" in err and "try again" not in err
    stopped = over(report("beta", Outcome.CANCELLED), interrupted=True)
    assert "whose fault" not in shown(TextShow, stopped)[1]


def test_where_only_scout_is_left_a_refusal_leads_to_the_set_up_of_agents() -> None:
    refused = report("scout", Outcome.REFUSED, runtime_role="host", may_have_run=True)
    err = shown(TextShow, over(refused))[1]
    told = "`dragoman init` sets up agents with a model; `dragoman explain review` shows why"
    assert f"what next:   {told}" in err
    assert "whose fault" not in err and "try again" not in err


def test_nothing_is_written_to_a_closed_output() -> None:
    show = JsonLines(io.StringIO(), io.StringIO())
    show.broken = True
    assert DelegationOutput(show, CATALOGUE).over(DONE) == 0


@pytest.mark.parametrize(
    ("done", "code"),
    [
        (DONE, 0),
        (over(FAILED), 1),
        (over(report("a", Outcome.TIMED_OUT)), 3),
        (over(report("a", Outcome.DENIED)), 5),
        (over(report("a", Outcome.FAILED, denials=(DENIAL,), approvals=1)), 1),
        (over(report("a", Outcome.CRASHED, denials=(DENIAL,))), 1),
        (over(report("a", check=CheckResult(command="false", ok=False))), 1),
        (over(report("a", Outcome.AUTH_REQUIRED)), 6),
        (over(report("a", Outcome.QUOTA)), 8),
        (over(report("a", Outcome.TRUNCATED, error_class=OVER_BUDGET)), 9),
        (over(report("a", Outcome.CANCELLED), interrupted=True), 130),
    ],
)
def test_the_exit_code_is_that_of_the_last_attempt(done: Any, code: int) -> None:
    assert exit_code(done) == code
    assert as_json(done, code)["exit_code"] == code


def test_who_was_ended_from_outside_says_so() -> None:
    cancelled = over(report("a", Outcome.CANCELLED), interrupted=True)
    assert exit_code(cancelled, terminated=True) == 143
