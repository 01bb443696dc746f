"""Records of the ledger: an attempt, its ending, tokens, spending and statistics rows.

The table modules of `store.ledger` keep them. `store.values` has charges and their provenance.
"""

from __future__ import annotations

import secrets
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from dragoman.events.parts import Usage
from dragoman.store.values import UNKNOWN, Charge, Provenance

RuntimeRole: TypeAlias = Literal["peer", "host"]
"""Who did the work: another agent, or this process itself (a local model, scout)."""

Verdict: TypeAlias = Literal["good", "bad"]
VerdictSource: TypeAlias = Literal["user", "check", "outcome"]
By: TypeAlias = Literal["work", "role", "peer", "model", "day"]
"""What sums are grouped by; `work` is each role with each peer."""

WAYS: Final[tuple[By, ...]] = ("work", "role", "peer", "model", "day")


class Tokens(Struct, frozen=True, kw_only=True):
    """Tokens of a turn. None is "not told", never zero."""

    input: int | None = None
    output: int | None = None
    total: int | None = None
    provenance: Provenance = Provenance.UNKNOWN


NO_TOKENS: Final = Tokens()


def tokens_of(usage: Usage | None) -> Tokens:
    """What a peer has told of its tokens."""
    if usage is None:
        return NO_TOKENS
    input, output, total = usage.input_tokens, usage.output_tokens, usage.total_tokens
    if input is None and output is None and total is None:
        return NO_TOKENS
    if total is None and input is not None and output is not None:
        total = input + output
    return Tokens(input=input, output=output, total=total, provenance=Provenance.REPORTED)


class AttemptRecord(Struct, frozen=True, kw_only=True):
    """One try of one peer at one piece of work."""

    id: int = 0
    """The ledger gives it."""
    job: str
    decision_id: str
    number: int
    """1 for the first attempt of a job; those after it are fallbacks or tries again."""
    peer: str
    role: str
    tier: str | None = None
    size: str | None = None
    model: str | None = None
    """The model that worked, as far as it is known; before the end, the one that was asked for."""
    runtime_role: RuntimeRole = "peer"
    reason: str = ""
    """Why this peer was tried."""
    started_at: float
    ended_at: float | None = None
    outcome: str | None = None
    """A word of `dragoman.events.words.Outcome`; None while it runs, or if its end was lost."""
    error_class: str | None = None
    tokens: Tokens = NO_TOKENS
    cost: Charge = UNKNOWN
    first_event_at: float | None = None
    files_changed: int | None = None
    unenforced: str | None = None
    """Why the policy did not restrict the peer; None if it did."""
    violations: int | None = None
    """How many files changed although no request for that was allowed."""
    verdict: Verdict | None = None
    verdict_source: VerdictSource | None = None
    runner: dict[str, Any] = {}
    """Which process made it: the fields of a `ProcessIdentity`."""

    @property
    def seconds(self) -> float | None:
        return None if self.ended_at is None else self.ended_at - self.started_at


class Ending(Struct, frozen=True, kw_only=True):
    """What the end of an attempt adds to its record."""

    ended_at: float
    outcome: str
    error_class: str | None = None
    model: str | None = None
    """The model that worked; None leaves what was asked for."""
    tokens: Tokens = NO_TOKENS
    cost: Charge = UNKNOWN
    first_event_at: float | None = None
    files_changed: int | None = None
    unenforced: str | None = None
    violations: int | None = None
    verdict: Verdict | None = None
    verdict_source: VerdictSource | None = None


class Spent(Struct, frozen=True, kw_only=True):
    """What was used up since some time. Turns that are still running count as turns."""

    turns: int = 0
    seconds: float = 0.0
    tokens: int = 0
    tokens_unknown: int = 0
    """Turns that told no tokens: the real sum is greater by theirs."""
    cost: float = 0.0
    """In US dollars."""
    other_costs: dict[str, float] = {}
    """In other currencies and units."""
    cost_unknown: int = 0
    """Turns whose cost nobody knows."""


class StatRow(Struct, frozen=True, kw_only=True):
    """The attempts of one role, peer, model or day."""

    key: str | None
    """None where the attempts tell none, such as a peer that names no model."""
    attempts: int
    ok: int
    unfinished: int
    """Attempts that run, or whose end was lost."""
    fallbacks: int
    """Attempts that were not the first of their job."""
    good: int
    bad: int
    seconds: float | None
    """Of an attempt, on average."""
    first_event_seconds: float | None
    input_tokens: int | None
    output_tokens: int | None
    tokens_unknown: int
    costs: dict[str, float]
    """By currency."""
    cost_unknown: int
    cost_estimated: int
    peer: str | None = None
    """The peer, where the rows are by work; `key` is its role then."""
    rejected: int = 0
    """Attempts that were ok, and that a check or a verdict found bad."""

    @property
    def finished(self) -> int:
        return self.attempts - self.unfinished

    @property
    def done(self) -> int:
        """Attempts that were ok and not rejected."""
        return self.ok - self.rejected

    @property
    def success(self) -> float | None:
        """The part of the finished attempts that was done."""
        return self.done / self.finished if self.finished else None


def new_decision_id() -> str:
    """A name for a decision that nobody else has."""
    return f"d-{secrets.token_hex(6)}"
