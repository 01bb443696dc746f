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
By: TypeAlias = Literal["work", "role", "peer", "model", "day", "machine"]
"""What totals are grouped by; `work` is each role with each peer of each machine."""


class Tokens(Struct, frozen=True, kw_only=True):
    """Tokens of a turn. None means "not reported", never zero."""

    input: int | None = None
    output: int | None = None
    total: int | None = None
    provenance: Provenance = Provenance.UNKNOWN


NO_TOKENS: Final = Tokens()

MAX_TOKENS: Final = 10**12
"""Maximum number of tokens of a turn. A larger number cannot be right, and SQLite could not add up
such numbers."""


def plausible_count(count: int | None) -> int | None:
    """Return a number of tokens, or None if it is unknown, negative or above `MAX_TOKENS`."""
    return count if count is not None and 0 <= count <= MAX_TOKENS else None


def tokens_of(usage: Usage | None) -> Tokens:
    """Return the tokens as reported by a peer, without implausible numbers. A missing total is the
    sum of input and output, if both are known."""
    if usage is None:
        return NO_TOKENS
    reported = (usage.input_tokens, usage.output_tokens, usage.total_tokens)
    input, output, total = map(plausible_count, reported)
    if input is None and output is None and total is None:
        return NO_TOKENS
    if total is None and input is not None and output is not None:
        total = input + output
    return Tokens(input=input, output=output, total=total, provenance=Provenance.REPORTED)


class AttemptRecord(Struct, frozen=True, kw_only=True):
    """One attempt of one peer at a task."""

    id: int = 0
    """Assigned by the ledger."""
    job: str
    decision_id: str
    number: int
    """1 for the first attempt of a job; later ones are fallbacks or retries."""
    peer: str
    role: str
    tier: str | None = None
    size: str | None = None
    model: str | None = None
    """The model that was used, if known; before the end, the requested one."""
    runtime_role: RuntimeRole = "peer"
    machine: str | None = None
    """The machine on which the peer worked; None is this one."""
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
    """How many files changed although no request to change them was granted."""
    verdict: Verdict | None = None
    verdict_source: VerdictSource | None = None
    runner: dict[str, Any] = {}
    """The process that ran it: the fields of a `ProcessIdentity`."""

    @property
    def seconds(self) -> float | None:
        return None if self.ended_at is None else self.ended_at - self.started_at


class Ending(Struct, frozen=True, kw_only=True):
    """What the end of an attempt adds to its record."""

    ended_at: float
    outcome: str
    error_class: str | None = None
    model: str | None = None
    """The model that was used; None keeps the requested one."""
    tokens: Tokens = NO_TOKENS
    cost: Charge = UNKNOWN
    first_event_at: float | None = None
    files_changed: int | None = None
    unenforced: str | None = None
    violations: int | None = None
    verdict: Verdict | None = None
    verdict_source: VerdictSource | None = None


class Spent(Struct, frozen=True, kw_only=True):
    """Usage since a time. Running turns count as turns."""

    turns: int = 0
    seconds: float = 0.0
    tokens: int = 0
    tokens_unknown: int = 0
    """Number of turns that reported no tokens. If there are any, the real sum is higher."""
    cost: float = 0.0
    """Cost in US dollars."""
    other_costs: dict[str, float] = {}
    """Costs in other currencies and units."""
    cost_unknown: int = 0
    """Number of turns of unknown cost."""


class StatRow(Struct, frozen=True, kw_only=True):
    """The totals of all attempts of one role, peer, model, day or machine, or of one peer in one
    role on one machine (`work`)."""

    key: str | None
    """None if the attempts have no such value, for example because a peer reports no model. For
    machines, None is this one."""
    attempts: int
    ok: int
    unfinished: int
    """Attempts that are running, or whose end was lost."""
    fallbacks: int
    """Attempts that were not the first of their job."""
    good: int
    bad: int
    seconds: float | None
    """Average duration of an attempt."""
    first_event_seconds: float | None
    input_tokens: int | None
    output_tokens: int | None
    tokens_unknown: int
    costs: dict[str, float]
    """Cost by currency."""
    cost_unknown: int
    cost_estimated: int
    peer: str | None = None
    """The peer, if rows are grouped by work; `key` is then the role."""
    total_seconds: float = 0.0
    """Total duration of all attempts that have ended."""
    rejected: int = 0
    """Attempts that were ok but rejected by a check or a verdict."""
    machine: str | None = None
    """The machine, if rows are grouped by work or machine; None is this one."""

    @property
    def finished(self) -> int:
        return self.attempts - self.unfinished

    @property
    def done(self) -> int:
        """Attempts that were ok and not rejected."""
        return self.ok - self.rejected

    @property
    def success(self) -> float | None:
        """The share of finished attempts that succeeded, from 0 to 1; None if none has finished."""
        return self.done / self.finished if self.finished else None


def new_decision_id() -> str:
    """Return a unique id for a decision."""
    return f"d-{secrets.token_hex(6)}"
