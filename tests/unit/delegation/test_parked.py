"""Which surroundings a missing login parks, and what ends it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.catalogue.descriptor import Credentials, Descriptor, Launch
from dragoman.catalogue.launch import surroundings_of
from dragoman.delegation.parked import note_success, unpark
from dragoman.paths import Paths, find_paths
from dragoman.store.ledger import Ledger, ledger_path
from dragoman.store.values import Health, Park

KNOWN = Descriptor(
    name="a",
    title="A",
    launch=(Launch(),),
    credentials=Credentials(env=("A_KEY", "B_KEY"), endpoints=("A_URL",)),
)


def mark(environ: dict[str, str]) -> str:
    return surroundings_of(KNOWN, environ=environ)


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return find_paths({"HOME": str(tmp_path), "DRAGOMAN_STATE_HOME": str(tmp_path / "state")})


def parked(paths: Paths) -> Health:
    here = mark({})
    with Ledger.open(ledger_path(paths.state)) as ledger:
        return ledger.change_health(
            "a", lambda _: Health(peer="a", logins={here: Park(9e9, "x"), "else": Park(9e9)})
        )


def test_a_success_ends_what_parked_a_peer_in_the_same_surroundings(paths: Paths) -> None:
    note_success("a", KNOWN, paths=paths, environ={})
    assert not ledger_path(paths.state).exists(), "nothing is made for it"
    parked(paths)
    note_success("a", KNOWN, paths=paths, environ={"A_KEY": "x"})
    with Ledger.open(ledger_path(paths.state)) as ledger:
        assert ledger.health("a").parking(1.0, mark({})) == Park(9e9, "x")
    note_success("a", KNOWN, paths=paths, environ={})
    with Ledger.open(ledger_path(paths.state)) as ledger:
        health = ledger.health("a")
    assert health.parking(1.0, mark({})) is None
    assert health.parking(1.0, "else") == Park(9e9)


def test_a_user_ends_it_everywhere(paths: Paths) -> None:
    assert unpark(["a"], paths) == []
    parked(paths)
    assert unpark(["a", "b"], paths) == ["a"]
    assert unpark(["a", "b"], paths) == []
    with Ledger.open(ledger_path(paths.state)) as ledger:
        assert ledger.health("a").logins == {}
