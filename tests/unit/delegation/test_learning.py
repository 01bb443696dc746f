"""What an attempt teaches: about health, about its arm, and after a verdict."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from dragoman.delegation import learning
from dragoman.delegation.attempt_report import AttemptReport
from dragoman.delegation.bandit import prior
from dragoman.delegation.health import Breaker, Sign
from dragoman.delegation.worktree.check_command import CheckResult
from dragoman.delegation.worktree.snapshot import Changed
from dragoman.errors import (
    AuthRequired,
    CallTimeout,
    DragomanError,
    HandshakeFailed,
    IsolationFailed,
    NotInstalled,
    ProcessExited,
    ProtocolMismatch,
    Unsupported,
)
from dragoman.events.parts import Failure
from dragoman.events.words import ErrorKind, Outcome
from dragoman.store.ledger import AttemptRecord
from dragoman.store.values import Arm, Charge, Health, Posterior, Provenance

ARM = Arm(role="review", size="small", peer="alpha")


def report(outcome: Outcome = Outcome.OK, **fields: Any) -> AttemptReport:
    base: dict[str, Any] = {"peer": "alpha", "role": "review", "started_at": 10.0, "ended_at": 13.0}
    return AttemptReport(**{**base, "outcome": outcome, **fields})


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (NotInstalled("a", "no a"), Outcome.FAILED),
        (Unsupported("no"), Outcome.UNSUPPORTED),
        (CallTimeout("session/new", 3), Outcome.TIMED_OUT),
        (HandshakeFailed("it exited"), Outcome.PROTOCOL_ERROR),
        (HandshakeFailed("late", timed_out=True), Outcome.TIMED_OUT),
        (ProtocolMismatch("no version"), Outcome.PROTOCOL_ERROR),
        (AuthRequired("log in"), Outcome.AUTH_REQUIRED),
        (ProcessExited(exit_code=1), Outcome.CRASHED),
        (IsolationFailed("`git add`", "no space"), Outcome.FAILED),
    ],
)
def test_an_attempt_without_a_turn_ends_by_its_error(
    error: DragomanError, outcome: Outcome
) -> None:
    found, failure = learning.outcome_of_error(error)
    assert found is outcome and failure.message == str(error)


def test_health_follows_the_report_and_the_greeting() -> None:
    failure = Failure("x", ErrorKind.PEER)
    reading = learning.reading_of(report(Outcome.CRASHED, failure=failure), now=20.0)
    assert reading.sign is Sign.FAULT
    change = learning.health_change(reading, Breaker(threshold=1), now=20.0, greeting=0.5)
    health = change(Health(peer="alpha"))
    assert (health.failures, health.opened_at, health.handshake_seconds) == (1, 20.0, 0.5)
    login = learning.reading_of(report(Outcome.AUTH_REQUIRED), now=20.0, login="alpha login")
    parked = learning.health_change(login, Breaker(), now=20.0)(Health(peer="alpha"))
    assert "alpha login" in str(parked.logins[""].why) and parked.handshake_seconds is None


@pytest.mark.parametrize("outcome", [Outcome.CANCELLED, Outcome.DENIED])
def test_what_the_local_user_caused_teaches_nothing(outcome: Outcome) -> None:
    assert learning.lesson(report(outcome), ARM, now=20.0) is None


def test_an_arm_gains_by_success_and_loses_by_a_failed_check() -> None:
    cheap = Charge(amount=0.001, currency="USD", provenance=Provenance.REPORTED)
    bad = CheckResult(command="false", ok=False, exit_code=1)
    before = prior(ARM, claims=True)
    good = learning.lesson(report(cost=cheap), ARM, now=20.0)
    rejected = learning.lesson(report(check=bad), ARM, now=20.0)
    assert good is not None and rejected is not None
    assert good[1](None).mean > before.mean > rejected[1](None).mean
    assert good[1](None).cost == 0.001
    # A record that was damaged counts as none.
    damaged = Posterior(alpha=-5.0, pulls=3)
    assert good[1](damaged) == good[1](None)
    credits = Charge(amount=50.0, currency="credits", provenance=Provenance.REPORTED)
    other = learning.lesson(report(cost=credits), ARM, now=20.0)
    assert other is not None and other[1](None).cost is None


def test_the_ledger_gets_how_it_ended() -> None:
    check = CheckResult(command="true", ok=True, exit_code=0)
    ending = learning.ending_of(report(check=check, changed=Changed(), model="m"))
    assert (ending.verdict, ending.verdict_source, ending.error_class) == ("good", "check", None)
    assert (ending.files_changed, ending.model, ending.outcome) == (0, "m", "ok")
    failed = learning.ending_of(report(Outcome.EMPTY))
    assert (failed.error_class, failed.files_changed, failed.verdict) == ("empty", None, None)


RECORD = AttemptRecord(
    job="j",
    decision_id="d",
    number=1,
    peer="alpha",
    role="review",
    tier="default",
    size="small",
    started_at=10.0,
    ended_at=13.0,
    outcome="ok",
)


def test_a_verdict_moves_the_evidence_of_its_turn_and_makes_no_new_one() -> None:
    taught = learning.lesson(report(), ARM, now=13.0)
    assert taught is not None
    after = taught[1](None)
    bad = learning.revision(RECORD, "bad")
    assert bad is not None and bad[0] == ARM
    rejected = bad[1](after)
    assert rejected.mean < after.mean and rejected.pulls == after.pulls
    again = learning.revision(structs.replace(RECORD, verdict="bad"), "good")
    assert again is not None and again[1](rejected).mean == pytest.approx(after.mean)
    assert bad[1](Posterior()).sound


@pytest.mark.parametrize(
    ("record", "word"),
    [
        (RECORD, "good"),
        (structs.replace(RECORD, verdict="bad"), "bad"),
        (structs.replace(RECORD, outcome="crashed"), "good"),
        (structs.replace(RECORD, ended_at=None), "bad"),
        (structs.replace(RECORD, tier=None), "bad"),
        (structs.replace(RECORD, size="huge"), "bad"),
    ],
)
def test_a_verdict_that_says_nothing_new_changes_nothing(record: AttemptRecord, word: Any) -> None:
    assert learning.revision(record, word) is None
