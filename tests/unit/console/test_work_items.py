"""The state of an item of the work screen, computed from its jobs."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.console.work_items import summary_of, with_delegations
from dragoman.store.values import Park
from tests.unit.store.stores import job


@pytest.mark.parametrize(
    ("jobs", "waiting", "state"),
    [
        ([], False, "idle"),
        ([{"state": "queued"}], False, "queued"),
        ([{"state": "queued"}, {"state": "running"}], False, "working"),
        ([{"state": "running"}], True, "waiting"),
        ([{"state": "ended", "outcome": "ok", "ended_at": 2.0}], False, "done"),
        ([{"state": "ended", "outcome": "crashed", "ended_at": 2.0}], False, "failed"),
        ([{"state": "ended", "outcome": "cancelled", "ended_at": 2.0}], False, "idle"),
    ],
)
def test_the_state_of_a_session_is_that_of_its_jobs(
    jobs: list[dict[str, Any]], waiting: bool, state: str
) -> None:
    item = summary_of("s-1", [job("s-1", **each) for each in jobs], waiting=waiting)
    assert item["state"] == state


def test_the_cost_of_a_session_is_the_sum_of_its_turns() -> None:
    usage = {"cost": {"amount": 0.25, "unit": "USD"}}
    ended = [job("s", state="ended", outcome="ok", usage=usage) for _ in range(2)]
    assert summary_of("s", ended, waiting=False)["cost"] == {"amount": 0.5, "unit": "USD"}


def test_a_delegation_has_not_ended_before_its_check() -> None:
    times: dict[str, Any] = {"started_at": 1.0, "created_at": 1.0}
    over: dict[str, Any] = {"state": "ended", "ended_at": 3.0}
    whole = job(id="j-1", state="running", **times)
    first = job("s-1", id="j-1-1", outcome="crashed", **times | over)
    last = job("s-2", id="j-1-2", outcome="ok", **times | over | {"created_at": 2.0})
    running = with_delegations([last, first, whole])
    assert [(one.id, one.state, one.outcome) for one in running] == [
        ("j-1-2", "running", None),
        ("j-1-1", "ended", "crashed"),
    ]
    refused = job(id="j-1", outcome="failed", **times | over | {"ended_at": 5.0})
    shown, other = with_delegations([last, first, refused])
    assert (shown.state, shown.outcome, shown.ended_at) == ("ended", "failed", 5.0)
    assert "the check failed" in (shown.failure or {})["message"]
    assert (other.outcome, other.ended_at) == ("crashed", 3.0)


def test_a_delegation_without_an_attempt_is_a_job_of_its_own() -> None:
    alone = job(id="j-1", state="running")
    assert with_delegations([alone]) == [alone]
    orphan = job("s-1", id="j-2-1", state="ended", outcome="ok", ended_at=1.0)
    assert with_delegations([orphan]) == [orphan]


@pytest.mark.parametrize("outcome", ["quota", "auth_required"])
def test_work_of_a_parked_peer_shows_until_when(outcome: str) -> None:
    ended = job("s-1", state="ended", outcome=outcome, ended_at=1.0)
    item = summary_of("s-1", [ended], waiting=False, parked=Park(50.0, "no quota"))
    assert item["state"] == "parked" and item["parked"] == {"until": 50.0, "why": "no quota"}
    free = summary_of("s-1", [ended], waiting=False)
    assert free["state"] == "failed" and free["parked"] is None


def test_successful_work_of_a_parked_peer_is_done() -> None:
    ended = job("s-1", state="ended", outcome="ok", ended_at=1.0)
    assert summary_of("s-1", [ended], waiting=False, parked=Park(50.0))["state"] == "done"
