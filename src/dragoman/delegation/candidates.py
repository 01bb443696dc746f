"""Decide which peers can take a request, apply the fallback setting, and build the NoPeer error.

Starts and writes nothing. `collect_facts` collects the inputs, `routing` makes the decision,
`execution` carries it out.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Final

from dragoman.config.schema import Fallback
from dragoman.delegation.collect_facts import LOCAL, gather
from dragoman.delegation.request import DelegationRequest
from dragoman.delegation.routing import Candidate, Decision, Reason, decide
from dragoman.errors import NoPeer
from dragoman.runs.lineage import Lineage, inherited
from dragoman.store.ledger.ledger import Ledger, ledger_path

if TYPE_CHECKING:
    from dragoman.runs.context import RunContext

UNSUITED: Final = frozenset(
    {Reason.ROLE_NOT_CLAIMED, Reason.NOT_WISHED, Reason.NOT_INSTALLED, Reason.NOT_ENABLED}
)
"""Reasons for which a peer is not considered for the request at all: it does not suit the request,
or is not set up."""

SHOWN_REASONS: Final = 3
"""Maximum number of peers whose reasons a notice lists."""


def decide_for(
    request: DelegationRequest,
    place: RunContext,
    *,
    ledger: Ledger | None = None,
    lineage: Lineage | None = None,
    rng: random.Random | None = None,
    now: float | None = None,
) -> Decision:
    """Make the routing decision for a request without starting or writing anything. Opens the
    ledger if none is given. Raises what `collect_facts.gather` and `routing.decide` raise."""
    now = time.time() if now is None else now
    lineage = inherited(place.environ) if lineage is None else lineage
    if ledger is None:
        with Ledger.open(ledger_path(place.paths.state), read_only=True) as opened:
            inputs = gather(request, place, ledger=opened, lineage=lineage, now=now)
    else:
        inputs = gather(request, place, ledger=ledger, lineage=lineage, now=now)
    return decide(inputs, rng or random.Random(), now)


def allowed(decision: Decision, fallback: Fallback) -> list[Candidate]:
    """Return the candidates that the fallback setting allows, in order: ``all`` of them, only
    ``peers`` (not the local model or a last resort), or for ``none`` just the first one that is not
    a last resort."""
    peers = [one for one in decision.candidates if not one.last_resort]
    match fallback:
        case "all":
            return list(decision.candidates)
        case "peers":
            return [one for one in peers if one.peer != LOCAL]
        case "none":
            return peers[:1]


def reason_for_first(decision: Decision, first: Candidate, wished: str | None) -> str:
    """Return why this candidate is tried first. If the peer that the request names (`wished`) is
    passed over, the text also says why."""
    missed = next((one for one in decision.passed_over if one.peer == wished), None)
    if missed is None:
        return first.why
    return f"{missed.peer} was requested but is passed over: {missed.detail}; {first.why}"


def only_last_resort(decision: Decision) -> str:
    """Return why only a last resort or nothing can be tried, and what to do; an empty string if an
    ordinary peer can be tried."""
    if any(not one.last_resort for one in decision.candidates):
        return ""
    role = decision.role
    unusable = [one for one in decision.passed_over if one.reason not in UNSUITED]
    if unusable:
        reasons = "; ".join(f"{one.peer}: {one.detail}" for one in unusable[:SHOWN_REASONS])
        return (
            f"no enabled peer can be used for {role} now: {reasons}; "
            f"`dragoman explain {role}` shows all"
        )
    installed = [one.peer for one in decision.passed_over if one.reason is Reason.NOT_ENABLED]
    if installed:
        return (
            f"no peer is enabled for {role}: `dragoman init` sets up those that are installed "
            f"({', '.join(installed)})"
        )
    return (
        f"no agent with a model is installed for {role}: `dragoman peers` lists the agents that "
        "you can install, and `dragoman init` sets them up"
    )


def nobody(decision: Decision) -> NoPeer:
    """Return the error for a decision without a candidate that the fallback setting allows."""
    claiming = [one for one in decision.passed_over if one.reason is not Reason.ROLE_NOT_CLAIMED]
    # If the request names a peer, the reason against that peer must not get lost among the others.
    near = [one for one in claiming if one.reason is not Reason.NOT_WISHED] or claiming
    reasons = {one.peer: one.detail for one in near}
    for one in decision.candidates:
        reasons[one.peer] = "it is a last resort, which the fallback setting excludes"
    budget = [one for one in decision.passed_over if one.reason not in UNSUITED]
    over = bool(budget) and all(one.reason is Reason.OVER_BUDGET for one in budget)
    return NoPeer(decision.role, reasons, over_budget=over)
