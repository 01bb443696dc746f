"""Jobs of other machines in the ledger: recorded once, with their machine and plausible values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dragoman.delegation.executed_records import (
    MACHINE_LOST,
    UNKNOWN_PEER,
    decision_of,
    learned_from,
    plausible,
    record_executed,
    reports_of,
)
from dragoman.delegation.executor import ExecutedJob, LostAttempt
from dragoman.delegation.journal import Journal
from dragoman.events.words import Outcome
from dragoman.store.ledger import AttemptRecord, Ledger, Tokens, ledger_path
from dragoman.store.values import Charge, Health, Provenance
from tests.aio import aio
from tests.unit.delegation.executed import DECISION, NOW, executed, report
from tests.unit.runs.contexts import place_in

LOST = LostAttempt(
    machine="w0", peer="codex", why="w0 was lost", started_at=NOW - 60, ended_at=NOW - 30
)


async def recorded(folder: Path, *jobs: ExecutedJob) -> list[AttemptRecord]:
    place = place_in(folder)
    async with Journal(place, clock=lambda: NOW, on_notice=lambda text: None) as journal:
        for one in jobs:
            record_executed(journal, one, reports_of(one), known_peers=("codex",), now=NOW)
    with Ledger.open(ledger_path(place.paths.state), read_only=True) as ledger:
        return ledger.attempts("j-1")


@aio
async def test_a_job_is_recorded_once_with_its_machine(tmp_path: Path) -> None:
    job = executed(report())
    (attempt,) = await recorded(tmp_path, job, job)
    assert len((place_in(tmp_path).paths.state / "events.jsonl").read_text().splitlines()) == 1
    assert (attempt.peer, attempt.machine, attempt.outcome, attempt.seconds) == (
        "codex",
        "w1",
        "ok",
        3.0,
    )
    with Ledger.open(ledger_path(place_in(tmp_path).paths.state), read_only=True) as ledger:
        (posterior,) = ledger.posteriors().values()
        assert posterior.pulls == 1
        assert ledger.health("codex") == Health(peer="codex")


@aio
async def test_the_attempt_of_a_lost_machine_comes_first(tmp_path: Path) -> None:
    attempts = await recorded(tmp_path, executed(report(), lost=(LOST,)))
    assert [(one.number, one.machine, one.outcome) for one in attempts] == [
        (1, "w0", "crashed"),
        (2, "w1", "ok"),
    ]
    assert attempts[0].error_class == MACHINE_LOST
    assert attempts[1].reason == "w0 was lost"


def test_a_lost_job_that_was_not_run_again_has_only_the_lost_attempt() -> None:
    job = executed(lost=(LOST,), outcome=Outcome.CRASHED, why="w0 was lost; not run again")
    (one,) = reports_of(job)
    assert one.failure is not None and one.failure.message == "w0 was lost; not run again"
    assert (one.machine, one.peer) == ("w0", "codex")


def test_a_job_that_no_machine_started_has_one_report_without_a_machine() -> None:
    (one,) = reports_of(executed(machine="", outcome=Outcome.CANCELLED, why="it was cancelled"))
    assert (one.peer, one.machine, one.outcome) == (UNKNOWN_PEER, None, Outcome.CANCELLED)
    assert not one.may_have_run


def test_a_job_whose_cancellation_was_not_confirmed_may_have_run() -> None:
    job = executed(machine="", outcome=Outcome.CANCELLED, why="not confirmed", confirmed=False)
    (one,) = reports_of(job)
    assert one.may_have_run


def test_a_job_that_a_machine_refused_has_not_run_there_and_the_machine_was_not_lost() -> None:
    job = executed(outcome=Outcome.CRASHED, why="w1 refused it", may_have_run=False)
    (one,) = reports_of(job)
    assert (one.machine, one.may_have_run) == ("w1", False)
    assert one.failure is not None and one.failure.code != MACHINE_LOST


def test_a_job_that_no_machine_started_is_not_in_the_ledger() -> None:
    journal: Any = None
    job = executed(machine="", outcome=Outcome.CANCELLED, why="it was cancelled")
    record_executed(journal, job, reports_of(job), known_peers=(), now=1.0)


def test_the_decision_is_the_other_machines_decision() -> None:
    assert decision_of(executed(report())) is DECISION
    assert decision_of(executed(), prompt="x").candidates == ()


def test_the_bandit_learns_nothing_about_unknown_or_blameless_peers() -> None:
    one = report()
    assert learned_from(one, DECISION, known_peers=("codex",), now=NOW) is not None
    assert learned_from(one, DECISION, known_peers=(), now=NOW) is None
    lost = report(Outcome.CRASHED, error_class=MACHINE_LOST)
    assert learned_from(lost, DECISION, known_peers=("codex",), now=NOW) is None


@pytest.mark.parametrize("count", [-1, 10**30])
def test_impossible_numbers_of_another_machine_do_not_change_the_totals_here(count: int) -> None:
    cost = Charge(amount=-5.0, currency="USD", provenance=Provenance.REPORTED)
    told = plausible(report(cost=cost, tokens=Tokens(input=count)))
    assert told.cost.amount is None
    assert told.tokens.input is None


@aio
async def test_times_of_a_wrong_clock_are_not_recorded(tmp_path: Path) -> None:
    (attempt,) = await recorded(tmp_path, executed(report(started_at=-1e18, ended_at=1e18)))
    assert attempt.ended_at == NOW
    assert attempt.started_at >= NOW - 31 * 24 * 3600
