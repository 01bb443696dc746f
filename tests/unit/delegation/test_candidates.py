"""Who may be asked, and what is said where nobody may."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from msgspec import structs

from dragoman.config.schema import Fallback
from dragoman.delegation.candidates import (
    allowed,
    decide_for,
    nobody,
    only_last_resort,
    reason_for_first,
)
from dragoman.delegation.collect_facts import LOCAL
from dragoman.delegation.request import DelegationRequest
from dragoman.delegation.routing import Candidate, PassedOver, Reason
from tests.unit.delegation.test_result import DECISION
from tests.unit.runs.contexts import place_in


def candidate(peer: str, *, last_resort: bool = False) -> Candidate:
    return Candidate(peer=peer, tier="default", model=None, why="x", last_resort=last_resort)


QUEUE = structs.replace(
    DECISION,
    candidates=(
        candidate("alpha"),
        candidate(LOCAL),
        candidate("beta"),
        candidate("scout", last_resort=True),
    ),
)


@pytest.mark.parametrize(
    ("fallback", "names"),
    [("all", ["alpha", LOCAL, "beta", "scout"]), ("peers", ["alpha", "beta"]), ("none", ["alpha"])],
)
def test_who_may_be_asked_depends_on_what_is_wished(fallback: Fallback, names: list[str]) -> None:
    assert [one.peer for one in allowed(QUEUE, fallback)] == names


def test_a_last_resort_is_a_fallback_also_where_it_is_the_first() -> None:
    only = structs.replace(DECISION, candidates=(candidate("scout", last_resort=True),))
    assert allowed(only, "none") == [] and len(allowed(only, "all")) == 1
    assert "scout: it is a last resort" in str(nobody(only))


def test_the_no_peer_error_has_a_reason_for_every_possible_peer() -> None:
    passed = (
        PassedOver(peer="a", reason=Reason.ROLE_NOT_CLAIMED, detail="no claim"),
        PassedOver(peer="b", reason=Reason.OVER_BUDGET, detail="spent"),
        PassedOver(peer="c", reason=Reason.NOT_ENABLED, detail="not on"),
    )
    error = nobody(structs.replace(DECISION, candidates=(), passed_over=passed))
    assert error.reasons == {"b": "spent", "c": "not on"} and error.over_budget
    parked = PassedOver(peer="d", reason=Reason.PARKED, detail="parked")
    mixed = structs.replace(DECISION, candidates=(), passed_over=(*passed, parked))
    assert not nobody(mixed).over_budget
    assert not nobody(structs.replace(DECISION, candidates=(), passed_over=passed[:1])).over_budget


def test_the_reason_against_the_requested_peer_is_shown_first() -> None:
    passed = (
        PassedOver(peer="a", reason=Reason.NOT_WISHED, detail="b was requested"),
        PassedOver(peer="b", reason=Reason.PARKED, detail="parked"),
    )
    decision = structs.replace(DECISION, candidates=(candidate("scout"),), passed_over=passed)
    told = reason_for_first(decision, decision.candidates[0], "b")
    assert told == "b was requested but is passed over: parked; x"
    assert reason_for_first(decision, decision.candidates[0], None) == "x"
    assert nobody(structs.replace(decision, candidates=())).reasons == {"b": "parked"}
    strangers = structs.replace(decision, candidates=(), passed_over=passed[:1])
    assert nobody(strangers).reasons == {"a": "b was requested"}


def test_a_decision_is_the_same_for_the_same_chance_and_writes_nothing(tmp_path: Path) -> None:
    place = place_in(tmp_path)
    wish = DelegationRequest(role="review", prompt="look", workspace=place.cwd)
    first, second = (decide_for(wish, place, rng=random.Random(3), now=5.0) for _ in range(2))
    assert first == second and not place.paths.state.exists()
    everybody = [one.peer for one in first.candidates]
    everybody += [one.peer for one in first.passed_over]
    assert sorted(everybody) == sorted(place.catalogue.names)


def test_a_last_resort_is_announced_with_what_would_bring_a_real_peer() -> None:
    def passed(peer: str, reason: Reason, detail: str = "x") -> PassedOver:
        return PassedOver(peer=peer, reason=reason, detail=detail)

    only = structs.replace(DECISION, role="review", candidates=QUEUE.candidates[-1:])
    assert only_last_resort(QUEUE) == ""
    missing = passed("gamma", Reason.NOT_INSTALLED)
    nothing = structs.replace(only, passed_over=(missing,))
    assert "no agent with a model is installed for review" in only_last_resort(nothing)
    idle = [passed(name, Reason.NOT_ENABLED) for name in ("alpha", "beta")]
    told = only_last_resort(structs.replace(only, passed_over=(*idle, missing)))
    assert "no peer is enabled for review: `dragoman init`" in told and "(alpha, beta)" in told
    parked = passed("alpha", Reason.PARKED, "it requires a login")
    told = only_last_resort(structs.replace(only, passed_over=(parked, missing)))
    assert told == (
        "no enabled peer can be used for review now: alpha: it requires a login; "
        "`dragoman explain review` shows all"
    )
