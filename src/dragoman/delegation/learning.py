"""Compute a peer's health, an arm's posterior and a ledger record from an attempt's report.

Also maps an error before any turn to an outcome, and revises a posterior after a user's verdict.
Pure; `journal` writes the results. `health` interprets failures, `bandit` computes rewards.
"""

from __future__ import annotations

from msgspec import structs

from dragoman.client.results import explain
from dragoman.delegation.attempt_report import AttemptReport
from dragoman.delegation.bandit import SCALES, prior, reward, updated
from dragoman.delegation.health import Breaker, Reading, greeted, read
from dragoman.errors import (
    CallTimeout,
    DragomanError,
    FileFailed,
    HandshakeFailed,
    HostUnavailable,
    IsolationFailed,
    SpawnError,
    Unsupported,
    UsageError,
)
from dragoman.events.parts import Failure, Limit
from dragoman.events.words import Outcome
from dragoman.store.ledger import AttemptRecord, Ending, HealthChange, Learned
from dragoman.store.ledger.records import Verdict
from dragoman.store.values import DOLLARS, FLOOR, Arm, Health, Posterior

SAYS_NOTHING = frozenset({Outcome.CANCELLED, Outcome.DENIED})
"""Outcomes caused by the user or the policy; they do not count against an arm."""


def outcome_of_error(error: DragomanError) -> tuple[Outcome, Failure]:
    """Return the outcome and the failure for an error that was raised outside a turn."""
    outcome, failure = explain(error)
    if outcome is Outcome.UNKNOWN:
        match error:
            case Unsupported():
                outcome = Outcome.UNSUPPORTED
            case HandshakeFailed(timed_out=True):
                outcome = Outcome.TIMED_OUT
            case HandshakeFailed():
                outcome = Outcome.PROTOCOL_ERROR
            case CallTimeout():
                outcome = Outcome.TIMED_OUT
            case HostUnavailable():
                outcome = Outcome.FAILED
                if error.remedy:
                    failure = structs.replace(failure, message=f"{failure.message}; {error.remedy}")
            case SpawnError() | UsageError() | IsolationFailed() | FileFailed():
                outcome = Outcome.FAILED
    return outcome, failure


def reading_of(
    report: AttemptReport, *, now: float, login: str = "", limits: tuple[Limit, ...] = ()
) -> Reading:
    """Return what the end of an attempt means for the health of its peer. The parameters are those
    of `health.read`."""
    return read(report.outcome, report.failure, now=now, login=login, limits=limits)


def health_change(
    reading: Reading,
    breaker: Breaker,
    *,
    now: float,
    greeting: float | None = None,
    surroundings: str = "",
) -> HealthChange:
    """Return a function that returns the health of a peer, updated for the end of an attempt.
    `greeting` is the duration of the handshake in seconds, if there was one."""

    def change(health: Health) -> Health:
        if greeting is not None:
            health = greeted(health, greeting)
        return breaker.ended(health, reading, now, surroundings)

    return change


def earned(report: AttemptReport, arm: Arm, *, rejected: bool = False) -> float | None:
    """Return the reward of an attempt for its arm, or None if it says nothing about the arm."""
    if report.outcome in SAYS_NOTHING:
        return None
    return reward(
        ok=report.ok,
        rejected=rejected,
        cost=_dollars(report.cost.amount, report.cost.currency),
        seconds=report.seconds,
        scale=SCALES[arm.size],
    )


def lesson(report: AttemptReport, arm: Arm, *, now: float) -> Learned | None:
    """Return the arm, and a function that updates its posterior after an attempt; None if the
    attempt says nothing about the arm."""
    worth = earned(report, arm)
    if worth is None:
        return None
    cost = _dollars(report.cost.amount, report.cost.currency)

    def change(before: Posterior | None) -> Posterior:
        known = before if before is not None and before.sound else prior(arm, claims=True)
        return updated(known, worth, now, cost=cost, seconds=report.seconds)

    return arm, change


def ending_of(report: AttemptReport) -> Ending:
    """Return how an attempt ended, for the ledger. If a check ran, its result is the verdict."""
    verdict: Verdict | None = None
    if report.check is not None:
        verdict = "good" if report.check.ok else "bad"
    return Ending(
        ended_at=report.ended_at,
        outcome=report.outcome.value,
        error_class=report.error_class or (None if report.ok else report.outcome.value),
        model=report.model,
        tokens=report.tokens,
        cost=report.cost,
        first_event_at=report.first_event_at,
        files_changed=None if report.changed is None else len(report.changed.files),
        unenforced=report.unenforced,
        violations=None if report.changed is None else len(report.violations),
        verdict=verdict,
        verdict_source=None if verdict is None else "check",
    )


def revision(before: AttemptRecord, word: Verdict) -> Learned | None:
    """Return the arm of an attempt, and a function that corrects the arm's posterior for a user's
    verdict (`word`); None if the verdict changes nothing, as for any failed turn, which has earned
    nothing. `before` is the attempt as it was recorded before the verdict."""
    if before.outcome != Outcome.OK.value or before.seconds is None or before.tier is None:
        return None
    size = next((known for known in SCALES if known == before.size), None)
    if size is None:
        return None
    arm = Arm(role=before.role, size=size, peer=before.peer, tier=before.tier)
    worth = reward(
        ok=True,
        rejected=False,
        cost=_dollars(before.cost.amount, before.cost.currency),
        seconds=before.seconds,
        scale=SCALES[size],
    )
    was = 0.0 if before.verdict == "bad" else worth
    now = 0.0 if word == "bad" else worth
    if was == now:
        return None

    def change(posterior: Posterior | None) -> Posterior:
        known = posterior or prior(arm, claims=True)
        # The evidence of that turn is corrected; it does not count as another turn.
        return structs.replace(
            known,
            alpha=max(FLOOR, known.alpha + now - was),
            beta=max(FLOOR, known.beta - now + was),
        )

    return arm, change


def _dollars(amount: float | None, currency: str | None) -> float | None:
    return amount if currency == DOLLARS else None
