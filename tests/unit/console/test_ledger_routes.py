"""The API of the ledger screen."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from dragoman.console.ledger_routes import sums_of
from dragoman.paths import Paths
from dragoman.store.ledger import Ledger, ledger_path
from dragoman.store.values import UNKNOWN
from tests.aio import aio
from tests.unit.console.place import console, short_paths
from tests.unit.store.ledger.samples import START, attempt, done, ending


@pytest.fixture
def paths() -> Iterator[Paths]:
    with short_paths() as paths:
        yield paths


def test_every_day_has_a_row_and_unknown_costs_are_counted_but_not_summed(paths: Paths) -> None:
    path = ledger_path(paths.state)
    with Ledger.open(path) as ledger:
        done(ledger, attempt("j-1", machine="box"))
        done(ledger, attempt("j-2", peer="gemini"), ending(cost=UNKNOWN, outcome="crashed"))
        ledger.begin("d-3", {}, attempt("j-3", role="plan"))
        done(ledger, attempt("j-4", started_at=START - 40 * 86400))
    told = sums_of(path, 7, now=START)
    assert len(told["day"]) == 7
    assert [row["attempts"] for row in told["day"]] == [0, 0, 0, 0, 0, 0, 3]
    assert told["day"][0]["costs"] == {} and told["day"][0]["seconds"] is None
    today = told["day"][-1]
    assert (today["done"], today["failed"], today["unfinished"]) == (1, 1, 1)
    assert (today["costs"], today["costUnknown"]) == ({"USD": 0.5}, 1)
    assert (today["totalSeconds"], today["seconds"]) == (8.0, 4.0)
    assert {row["key"]: row["attempts"] for row in told["machine"]} == {"box": 1, None: 2}
    assert [row["key"] for row in told["role"]] == ["review", "plan"]
    peers = {row["key"]: row for row in told["peer"]}
    assert peers["gemini"]["costs"] == {} and peers["gemini"]["costUnknown"] == 1


@aio
async def test_the_period_can_be_chosen_and_an_invalid_one_is_refused(paths: Paths) -> None:
    async with console(paths) as place, place.browser("read") as client:
        empty = (await client.get("/api/v1/ledger")).json()
        assert empty["days"] == 30 and empty["peer"] == [] and len(empty["day"]) == 30
        with Ledger.open(ledger_path(paths.state)) as ledger:
            begun = attempt(started_at=time.time() - 1)
            done(ledger, begun, ending(ended_at=time.time(), first_event_at=None))
        week = (await client.get("/api/v1/ledger?days=7")).json()
        assert len(week["day"]) == 7 and week["peer"][0]["attempts"] == 1
        for odd in ("0", "1000", "x"):
            answer = await client.get(f"/api/v1/ledger?days={odd}")
            assert answer.status_code == 400, odd
