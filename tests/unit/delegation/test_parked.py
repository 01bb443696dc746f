"""Which surroundings a missing login parks, and what ends it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.catalogue.descriptor import Credentials, Descriptor, Launch
from dragoman.delegation.parked import LEDGER, note_success, surroundings_of, unpark
from dragoman.paths import Paths, find_paths
from dragoman.store.ledger import Ledger, ledger_path
from dragoman.store.values import Health, Park

KNOWN = Descriptor(
    name="a",
    title="A",
    launch=(Launch(),),
    credentials=Credentials(env=("A_KEY", "B_KEY"), endpoints=("A_URL",)),
)


def mark(environ: dict[str, str], *env: str) -> str:
    return surroundings_of(KNOWN, env=env, environ=environ)


def test_surroundings_differ_by_which_variables_are_set_and_not_by_their_values() -> None:
    assert mark({"A_KEY": "x", "C": "1"}) == mark({"A_KEY": "y"})
    assert len({mark({}), mark({"A_KEY": "x"}), mark({"B_KEY": "x"}), mark({"A_URL": "x"})}) == 4
    assert mark({"A_KEY": ""}) == mark({})
    assert surroundings_of(None, environ={"A_KEY": "x"}) == ""


def test_variables_that_the_user_lets_through_count() -> None:
    assert mark({"MINE": "x"}) == mark({})
    assert mark({"MINE": "x"}, "MINE") != mark({}, "MINE")
    assert mark({"MINE_1": "x"}, "MINE_*") != mark({}, "MINE_*")


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


def test_a_success_ends_a_row_of_failures(paths: Paths) -> None:
    failing = Health(peer="a", failures=4, opened_at=1.0, trial_at=2.0, last_error="x")
    with Ledger.open(ledger_path(paths.state)) as ledger:
        ledger.change_health("a", lambda _: failing)
    note_success("a", KNOWN, paths=paths, environ={})
    with Ledger.open(ledger_path(paths.state)) as ledger:
        assert ledger.health("a") == Health(peer="a", last_error="x")


def test_a_ledger_that_cannot_be_used_is_left_alone(paths: Paths) -> None:
    ledger_path(paths.state).parent.mkdir(parents=True, exist_ok=True)
    ledger_path(paths.state).write_text("this is not a database")
    note_success("a", KNOWN, paths=paths, environ={})
    assert ledger_path(paths.state).read_text() == "this is not a database"


def test_a_user_ends_it_everywhere(paths: Paths) -> None:
    assert ledger_path(paths.state).name == LEDGER
    assert unpark(["a"], paths) == []
    parked(paths)
    assert unpark(["a", "b"], paths) == ["a"]
    assert unpark(["a", "b"], paths) == []
    with Ledger.open(ledger_path(paths.state)) as ledger:
        assert ledger.health("a").logins == {}
