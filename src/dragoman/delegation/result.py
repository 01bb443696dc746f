"""`Delegation`: the result of a delegation with its decision, attempts and cost, as text and JSON.

Each attempt is an `AttemptReport` from `attempt_report`; the decision comes from
`delegation.routing`.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from dragoman.config.schema import Adaptive
from dragoman.delegation.attempt_report import AttemptReport
from dragoman.delegation.routing import Decision
from dragoman.events.words import Outcome
from dragoman.store.values import Charge, Provenance


class Delegation(Struct, frozen=True, kw_only=True):
    """Result of a delegation."""

    job: str
    decision_id: str
    decision: Decision
    attempts: tuple[AttemptReport, ...]
    """Every attempt, in order; the last one is the result."""
    stopped: str = ""
    """Why no other peer was tried after a failure; empty if nothing prevented it."""
    interrupted: bool = False
    adaptive: Adaptive = "shadow"
    depth: int = 0

    def __repr__(self) -> str:
        tried = len(self.attempts)
        end = f"ok by {self.answered}" if self.ok else self.outcome.value
        counted = f"{tried} attempt{'' if tried == 1 else 's'}"
        return (
            f"Delegation({self.decision.role!r}, {end}, {counted}, job={self.job!r}, "
            f"text={self.text!r})"
        )

    @property
    def final(self) -> AttemptReport:
        return self.attempts[-1]

    @property
    def ok(self) -> bool:
        """Whether the work is done: outcome ok, check passed, patch applied if requested."""
        applied = self.final.applied
        return self.final.ok and (applied is None or applied.ok)

    @property
    def outcome(self) -> Outcome:
        """Outcome of the last attempt; FAILED if that is OK but the check or the patch failed."""
        outcome = self.final.outcome
        return outcome if self.ok or outcome is not Outcome.OK else Outcome.FAILED

    @property
    def answered(self) -> str | None:
        """The peer that did the work; None if it is not done."""
        return self.final.peer if self.ok else None

    @property
    def text(self) -> str:
        return self.final.text

    @property
    def costs(self) -> dict[str, float]:
        """Known cost of all attempts, by currency."""
        found: dict[str, float] = {}
        for report in self.attempts:
            cost: Charge = report.cost
            if cost.amount is not None:
                found[cost.currency or ""] = found.get(cost.currency or "", 0.0) + cost.amount
        return found

    @property
    def costs_complete(self) -> bool:
        """Whether the cost of every attempt is known."""
        return all(one.cost.provenance is not Provenance.UNKNOWN for one in self.attempts)

    def as_json(self) -> dict[str, Any]:
        """Return the delegation as a JSON object, with the derived values."""
        return {
            "job": self.job,
            "decision_id": self.decision_id,
            "role": self.decision.role,
            "ok": self.ok,
            "outcome": self.outcome.value,
            "answered": self.answered,
            "text": self.text,
            "stopped": self.stopped or None,
            "interrupted": self.interrupted,
            "costs": self.costs,
            "costs_complete": self.costs_complete,
            "decision": msgspec.to_builtins(self.decision),
            "attempts": [report.as_json() for report in self.attempts],
        }

    def lines(self) -> list[str]:
        """Format the attempts as lines of text, without the answer itself."""
        told: list[str] = []
        failure = ""
        for number, report in enumerate(self.attempts, 1):
            first, *rest = report.lines()
            if failure:
                # The line above already says why the previous attempt failed.
                first = first.replace(f": {failure}", "", 1)
            failure = report.failure.message if report.failure is not None else ""
            told += [f"{number}. {first}", *(f"   {line}" for line in rest)]
        if self.stopped:
            told.append(f"no other peer was tried: {self.stopped}")
        return told
