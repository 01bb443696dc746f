"""What ends the parking of a peer."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from dragoman.delegation.parked import parked_peers, unpark
from dragoman.paths import Paths, find_paths
from dragoman.store.ledger import Ledger, ledger_path
from dragoman.store.values import Health, Park
from tests.unit.runs.contexts import place_in


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return find_paths({"HOME": str(tmp_path), "DRAGOMAN_STATE_HOME": str(tmp_path / "state")})


def parked(paths: Paths) -> Health:
    with Ledger.open(ledger_path(paths.state)) as ledger:
        return ledger.change_health(
            "a", lambda _: Health(peer="a", logins={"here": Park(9e9, "x"), "else": Park(9e9)})
        )


def test_a_user_ends_it_everywhere(paths: Paths) -> None:
    assert unpark(["a"], paths) == []
    parked(paths)
    assert unpark(["a", "b"], paths) == ["a"]
    assert unpark(["a", "b"], paths) == []
    with Ledger.open(ledger_path(paths.state)) as ledger:
        assert ledger.health("a").logins == {}


def test_a_peer_that_failed_three_times_in_a_row_is_listed_until_its_next_trial(
    tmp_path: Path,
) -> None:
    place = place_in(tmp_path)
    failed = Health(peer="a", failures=3, opened_at=100.0, last_error="no\nanswer")
    place.paths.state.mkdir(parents=True, exist_ok=True)
    with Ledger.open(ledger_path(place.paths.state)) as ledger:
        ledger.change_health("a", lambda _: failed)
        ledger.change_health("b", lambda _: Health(peer="b", failures=2))
    (found,) = parked_peers(place, now=101.0).items()
    assert found == ("a", Park(160.0, "it failed 3 times in a row: no answer"))
    assert parked_peers(place, now=161.0) == {}
    with Ledger.open(ledger_path(place.paths.state)) as ledger:
        ledger.change_health("a", lambda health: structs.replace(health, trial_at=161.0))
    assert parked_peers(place, now=162.0)["a"].until == 761.0


def test_a_ledger_that_cannot_be_read_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = place_in(tmp_path)
    place.paths.state.mkdir(parents=True, exist_ok=True)
    ledger_path(place.paths.state).write_bytes(b"no database")
    assert parked_peers(place, now=101.0) == {}
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "cannot read which peers are parked: " in record.getMessage()
