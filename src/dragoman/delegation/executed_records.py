"""Reports and ledger records of a job that was executed on another machine.

A job is recorded once, no matter how often and by which process its result is read: its attempts
are added in one transaction, unless the ledger already has attempts of this job. The bandit learns
from them as from local attempts. The health of a peer does not change: login, quota and crashes
there say nothing about the peer here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from msgspec import structs

from dragoman.delegation import learning
from dragoman.delegation.attempt_report import AttemptReport
from dragoman.delegation.bandit import size_of
from dragoman.delegation.executor import ExecutedJob, LostAttempt
from dragoman.delegation.routing import Decision
from dragoman.errors import IsolationFailed, UsageError
from dragoman.events.parts import Failure
from dragoman.events.words import Outcome
from dragoman.store.ledger import AttemptRecord, Learned, new_decision_id
from dragoman.store.ledger.attempt_table import EndedAttempt
from dragoman.store.ledger.records import NO_TOKENS, plausible_count
from dragoman.store.values import UNKNOWN

if TYPE_CHECKING:
    from dragoman.delegation.journal import Journal

UNKNOWN_PEER: Final = "unknown"
"""Peer of an attempt that was lost before the machine reported which peer it prompted."""

MACHINE_LOST: Final = "machine_lost"
"""The `error_class` of an attempt whose machine was lost."""

MAX_SECONDS: Final = 30 * 24 * 3600.0
"""Maximum duration and maximum age of an attempt in seconds. A larger value means a wrong clock."""

_BLAMELESS: Final = frozenset({UsageError.error_class, IsolationFailed.error_class, MACHINE_LOST})


def reports_of(executed: ExecutedJob) -> tuple[AttemptReport, ...]:
    """Return the reports of all attempts of a job, including those on lost machines; at least
    one."""
    found = [_lost_report(executed.role, one) for one in executed.lost]
    machine = executed.machine or None
    done = executed.delegation
    if done is not None and done.attempts:
        first, *rest = (structs.replace(one, machine=machine) for one in done.attempts)
        if executed.lost:
            again = f"{executed.lost[-1].machine} was lost; {first.reason}"
            first = structs.replace(first, reason=again.removesuffix("; "))
        return (*found, first, *rest)
    if found and executed.outcome is Outcome.CRASHED:
        # The last machine was lost, and the job was not run again.
        last = found[-1]
        return (*found[:-1], structs.replace(last, failure=_failure(executed.why)))
    return (
        *found,
        AttemptReport(
            peer=UNKNOWN_PEER,
            role=executed.role,
            machine=machine,
            outcome=executed.outcome,
            failure=Failure(executed.why) if executed.why else None,
            error_class=executed.outcome.value,
            may_have_run=not executed.confirmed or (bool(machine) and executed.may_have_run),
            isolated=True,
            started_at=executed.started_at,
            ended_at=executed.ended_at,
        ),
    )


def _lost_report(role: str, lost: LostAttempt) -> AttemptReport:
    return AttemptReport(
        peer=lost.peer or UNKNOWN_PEER,
        role=role,
        machine=lost.machine,
        outcome=Outcome.CRASHED,
        failure=_failure(lost.why),
        error_class=MACHINE_LOST,
        may_have_run=lost.may_have_run,
        isolated=True,
        started_at=lost.started_at,
        ended_at=lost.ended_at,
    )


def _failure(why: str) -> Failure:
    return Failure(why, code=MACHINE_LOST)


def decision_of(executed: ExecutedJob, *, prompt: str = "") -> Decision:
    """Return the routing decision of the other machine, or one without candidates if that is
    unknown."""
    done = executed.delegation
    if done is not None:
        return done.decision
    return Decision(
        role=executed.role,
        tier=None,
        size=size_of(prompt, 0),
        candidates=(),
        passed_over=(),
        order="fixed",
        why="decided on another machine",
    )


def record_executed(
    journal: Journal,
    executed: ExecutedJob,
    reports: Sequence[AttemptReport],
    *,
    decision_id: str = "",
    known_peers: Sequence[str],
    now: float,
) -> None:
    """Add the attempts of a job to the ledger, unless no machine had the job, the ledger already
    has them, or the ledger cannot be used.

    The bandit learns only about `known_peers`, the peers in this machine's catalogue.
    """
    if not executed.machine and not executed.lost:
        return
    decision = decision_of(executed)
    decision_id = decision_id or new_decision_id()
    entries = []
    for number, report in enumerate(reports, 1):
        report = plausible(report)
        # The clock of the other machine may be wrong.
        ended_at = report.ended_at if now - MAX_SECONDS < report.ended_at < now else now
        began = AttemptRecord(
            job=executed.job,
            decision_id=decision_id,
            number=number,
            peer=report.peer,
            role=report.role,
            tier=report.tier,
            size=decision.size,
            model=report.asked_model,
            runtime_role=report.runtime_role,
            machine=report.machine,
            reason=report.reason,
            started_at=ended_at - min(report.seconds, MAX_SECONDS),
        )
        entries.append(
            EndedAttempt(
                began,
                structs.replace(learning.ending_of(report), ended_at=ended_at),
                learned_from(report, decision, known_peers=known_peers, now=now),
            )
        )
    journal.executed(decision, decision_id, entries)


def plausible(report: AttemptReport) -> AttemptReport:
    """Return another machine's report, changed so that impossible token counts and a negative cost
    become unknown. A negative cost would lower the total here."""
    tokens, cost = report.tokens, report.cost
    counts = (tokens.input, tokens.output, tokens.total)
    if any(count != plausible_count(count) for count in counts):
        tokens = NO_TOKENS
    if cost.amount is not None and cost.amount < 0:
        cost = UNKNOWN
    return structs.replace(report, tokens=tokens, cost=cost)


def learned_from(
    report: AttemptReport, decision: Decision, *, known_peers: Sequence[str], now: float
) -> Learned | None:
    """Return what the bandit learns from an attempt on another machine. None if the attempt says
    nothing about the peer, or if the peer was a last resort or is not in `known_peers`."""
    if report.peer not in known_peers or report.error_class in _BLAMELESS:
        return None
    candidate = next((one for one in decision.candidates if one.peer == report.peer), None)
    if candidate is None or candidate.last_resort:
        return None
    return learning.lesson(report, decision.arm_of(candidate), now=now)
