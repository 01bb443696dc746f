"""A report says what happened, the same in text and in JSON, and whether another may try."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from dragoman.client.permissions import Denial
from dragoman.client.results import Result, explain
from dragoman.delegation.attempt_report import (
    SHOWN_FILES,
    AttemptReport,
    report_of,
    report_of_error,
)
from dragoman.delegation.worktree.check_command import CheckResult
from dragoman.delegation.worktree.patch import Applied, Conflict
from dragoman.delegation.worktree.snapshot import Changed
from dragoman.errors import BudgetExceeded, NotInstalled, ProcessExited
from dragoman.events.parts import Failure, FileChange, Usage
from dragoman.events.words import FileOp, Outcome
from dragoman.store.values import FREE, Charge, Provenance

TIMES = {"started_at": 100.0, "ended_at": 103.5}
NEW = FileChange("new.py", FileOp.ADD)


def report(**values: Any) -> AttemptReport:
    return AttemptReport(
        **{"peer": "scribe", "role": "review", "outcome": Outcome.OK, **TIMES, **values}
    )


def test_a_turns_result_becomes_a_report_with_its_provenance() -> None:
    result = Result(Outcome.OK, "done", "end_turn", usage=Usage(input_tokens=3, output_tokens=4))
    told = report_of(result, peer="scribe", role="review", **TIMES, changed=Changed(), model="m-1")
    assert told.ok
    assert (told.text, told.stop, told.model) == ("done", "end_turn", "m-1")
    assert (told.tokens.total, told.tokens.provenance) == (7, Provenance.REPORTED)
    assert told.cost.provenance is Provenance.UNKNOWN
    assert told.may_have_run
    assert told.seconds == 3.5
    assert told.first_event_seconds is None


def test_whether_the_prompt_may_have_run_is_the_errors_word() -> None:
    error = ProcessExited(exit_code=1)
    outcome, failure = explain(error)
    before = report_of(
        Result(outcome, "", failure=failure, error=error), peer="p", role="r", **TIMES
    )
    assert (before.error_class, before.may_have_run) == ("process_exited", False)
    late = BudgetExceeded("silence", 3.0)
    after = report_of(Result(*_failed(late), error=late), peer="p", role="r", **TIMES)
    assert (after.outcome, after.may_have_run) == (Outcome.TIMED_OUT, True)


def _failed(error: BudgetExceeded) -> tuple[Outcome, str]:
    return explain(error)[0], ""


def test_an_attempt_that_never_began_left_nothing_behind() -> None:
    error = NotInstalled("scribe", "there is no program")
    told = report_of_error(error, Outcome.UNSUPPORTED, None, peer="scribe", role="review", **TIMES)
    assert told.obstacle() is None
    assert told.error_class == "not_installed"
    assert not told.may_have_run


@pytest.mark.parametrize(
    ("values", "obstacle"),
    [
        ({"changed": Changed()}, None),
        ({"changed": Changed(ignored=(NEW,))}, None),
        ({"changed": None}, "its changes were not checked"),
        ({"changed": Changed(files=(NEW,))}, "it changed new.py"),
        ({"changed": Changed(files=(NEW,) * 5)}, "it changed new.py, new.py, new.py and 2 more"),
        ({"changed": Changed(repository=("the hooks",))}, "it changed the hooks"),
        (
            {"changed": Changed(complete=False, notes=("too many files",))},
            "it cannot be proved that it changed nothing: too many files",
        ),
        ({"changed": Changed(), "outside": ("/etc/x",)}, "it wrote outside the workspace: /etc/x"),
        ({"isolated": True, "outside": ("/x",)}, "it wrote outside the workspace: /x"),
        ({"isolated": True, "changed": Changed(files=(NEW,))}, None),
        ({"isolated": True, "applied": Applied(ok=True, files=(NEW,))}, "its patch was applied"),
        ({"isolated": True, "applied": Applied(ok=False, files=(NEW,))}, None),
    ],
)
def test_another_may_try_only_after_an_attempt_that_provably_left_nothing(
    values: dict[str, Any], obstacle: str | None
) -> None:
    assert report(outcome=Outcome.CRASHED, **values).obstacle() == obstacle


@pytest.mark.parametrize(
    ("values", "obstacle"),
    [
        ({}, ""),
        ({"outcome": Outcome.TIMED_OUT}, "the turn ended as timed out"),
        ({"check": CheckResult(command="make", ok=False)}, "the check failed: make"),
        ({"outside": ("/etc/x",)}, "it wrote outside the workspace: /etc/x"),
    ],
)
def test_a_patch_is_applied_only_after_good_work_inside_the_workspace(
    values: dict[str, Any], obstacle: str
) -> None:
    told = {"outcome": Outcome.OK, "isolated": True, **values}
    assert report(**told).patch_obstacle() == obstacle


def test_a_failed_check_makes_good_words_bad() -> None:
    failed = CheckResult(command="pytest -q", ok=False, exit_code=1, tail="a\nb\nc\n1 failed\n")
    told = report(check=failed)
    assert told.outcome.good and not told.ok
    assert told.lines()[1:] == ["  check failed (1): pytest -q", "    b", "    c", "    1 failed"]
    assert report(check=CheckResult(command="true", ok=True)).ok


def test_the_text_names_everything_that_went_wrong() -> None:
    told = report(
        outcome=Outcome.TIMED_OUT,
        model="m-1",
        reason="the first candidate",
        failure=Failure("no sign of life"),
        changed=Changed(
            files=(NEW, FileChange("old.py", FileOp.DELETE), FileChange("b", FileOp.MODIFY)),
            repository=("the hooks",),
            notes=("a note",),
        ),
        outside=("/etc/x",),
        denials=(Denial("t", "rm -rf /", "execute"),),
        tokens=report_of(
            Result(Outcome.OK, "", usage=Usage(input_tokens=3)), peer="p", role="r", **TIMES
        ).tokens,
        cost=Charge(amount=0.25, currency="USD", provenance=Provenance.ESTIMATED),
        context="restored",
        applied=Applied(ok=False, conflicts=(Conflict("b", "it does not fit"),), kept="/p.patch"),
    )
    assert told.lines() == [
        "scribe (m-1): timed out after 3.5 s, 3 tokens in, ? out, about 0.25 USD, "
        "restored session [the first candidate]",
        "  no sign of life",
        "  + new.py",
        "  - old.py",
        "  ~ b",
        "  changed: the hooks",
        "  note: a note",
        "  wrote outside the workspace: /etc/x",
        "  refused: rm -rf /",
        "  conflict: b: it does not fit",
        "  the patch is /p.patch",
    ]


def test_an_unknown_cost_is_called_unknown_and_never_nothing() -> None:
    assert report().lines() == ["scribe: ok after 3.5 s, cost unknown"]
    free = Charge(amount=0.0, currency="USD", provenance=Provenance.REPORTED)
    assert report(cost=free).lines() == ["scribe: ok after 3.5 s, 0 USD"]
    assert report(cost=FREE).lines() == ["scribe: ok after 3.5 s, 0 USD"]
    tiny = Charge(amount=8e-05, currency="USD", provenance=Provenance.REPORTED)
    assert report(cost=tiny).lines() == ["scribe: ok after 3.5 s, 0.00008 USD"]


def test_many_files_are_counted_in_the_text_and_named_in_json() -> None:
    files = tuple(FileChange(f"{number}.py", FileOp.ADD) for number in range(SHOWN_FILES + 5))
    told = report(changed=Changed(files=files))
    assert told.lines()[-1] == "  and 5 more files"
    assert len(told.as_json()["files"]) == SHOWN_FILES + 5


def test_the_json_is_json_and_has_what_follows_from_the_fields() -> None:
    told = report(
        failure=Failure("x", data={"secret": object()}),
        denials=(Denial("t", "title", "edit"),),
        changed=Changed(files=(NEW,)),
        first_event_at=101.0,
        check=CheckResult(command="true", ok=True),
    )
    value = json.loads(json.dumps(told.as_json()))
    assert value["ok"] is True
    assert value["outcome"] == "ok"
    assert value["firstEventSeconds"] == 1.0
    assert value["files"] == [{"path": "new.py", "op": "add"}]
    assert value["denials"] == [{"toolCallId": "t", "title": "title", "kind": "edit"}]
    assert value["cost"] == {"amount": None, "currency": None, "provenance": "unknown"}
    assert "secret" not in str(value)
    assert value["check"]["ok"] is True


def test_a_clock_that_was_set_back_makes_no_negative_times() -> None:
    told = msgspec.structs.replace(report(), ended_at=1.0, first_event_at=2.0)
    assert (told.seconds, told.first_event_seconds) == (0.0, 0.0)
