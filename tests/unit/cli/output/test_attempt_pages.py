"""Attempts of delegations as rows and lines."""

from __future__ import annotations

from dragoman.cli.output.attempt_pages import DROP, HEAD, as_cells, as_json
from dragoman.store.ledger.records import AttemptRecord
from dragoman.store.values import Charge

RUNNING = AttemptRecord(
    job="j-1", decision_id="d-1", number=1, peer="codex", role="review", started_at=100.0
)


def test_an_attempt_without_an_end_is_running_and_its_cost_unknown() -> None:
    row = dict(zip(HEAD, as_cells(RUNNING, 160.0), strict=True))
    assert (row["outcome"], row["begun"], row["took"], row["cost"]) == (
        "running", "1 min ago", "", "unknown",
    )  # fmt: skip
    assert set(DROP) < set(HEAD)


def test_a_free_attempt_is_not_an_unknown_one() -> None:
    ended = AttemptRecord(
        job="j-1",
        decision_id="d-1",
        number=1,
        peer="codex",
        role="review",
        started_at=100.0,
        ended_at=102.0,
        outcome="ok",
        cost=Charge(amount=0.0, currency="USD"),
    )
    row = dict(zip(HEAD, as_cells(ended, 160.0), strict=True))
    assert (row["outcome"], row["took"], row["cost"]) == ("ok", "2.0 s", "0.0000 USD")
    assert as_json(ended)["type"] == "Attempt" and as_json(ended)["job"] == "j-1"
