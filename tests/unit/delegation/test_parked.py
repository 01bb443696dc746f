"""What ends the parking of a peer."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.delegation.parked import unpark
from dragoman.paths import Paths, find_paths
from dragoman.store.ledger import Ledger, ledger_path
from dragoman.store.values import Health, Park


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
