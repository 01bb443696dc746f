"""What a successful turn changes in the ledger."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

from dragoman.catalogue.descriptor import Credentials, Descriptor, Launch
from dragoman.catalogue.launch import surroundings_of
from dragoman.paths import find_paths
from dragoman.rpc.tasks import TaskOwner
from dragoman.store.ledger import Ledger, ledger_path
from dragoman.store.peer_recovery import LEDGER, NO_TROUBLE, note_success, unpark_after_success
from dragoman.store.values import Health, Park
from tests.aio import aio


def store(state: Path, health: Health) -> None:
    with Ledger.open(ledger_path(state)) as ledger:
        ledger.change_health(health.peer, lambda _: health)


def stored(state: Path) -> Health:
    with Ledger.open(ledger_path(state)) as ledger:
        return ledger.health("a")


def test_a_success_unparks_a_peer_in_its_surroundings_and_forgets_its_quota(tmp_path: Path) -> None:
    logins = {"here": Park(9e9, "x"), "else": Park(9e9)}
    store(tmp_path, Health(peer="a", logins=logins, parked_until=9e9, parked_why="quota"))
    unpark_after_success("a", tmp_path, "here")
    assert stored(tmp_path) == Health(peer="a", logins={"else": Park(9e9)})


def test_a_success_ends_a_row_of_failures(tmp_path: Path) -> None:
    store(tmp_path, Health(peer="a", failures=4, opened_at=1.0, trial_at=2.0, last_error="x"))
    unpark_after_success("a", tmp_path, "")
    assert stored(tmp_path) == Health(peer="a", last_error="x")


def test_a_success_does_not_open_the_ledger_where_nothing_is_wrong(tmp_path: Path) -> None:
    unpark_after_success("a", tmp_path, "")
    assert not ledger_path(tmp_path).exists()
    assert ledger_path(tmp_path).name == LEDGER
    store(tmp_path, Health(peer="a"))
    with Ledger.open(ledger_path(tmp_path)) as ledger, ledger.transaction() as connection:
        (data,) = connection.execute("SELECT data FROM health").fetchone()
    assert all(words in data for words in NO_TROUBLE)


def test_a_ledger_that_cannot_be_used_is_left_alone(tmp_path: Path) -> None:
    ledger_path(tmp_path).write_text("this is not a database")
    unpark_after_success("a", tmp_path, "")
    assert ledger_path(tmp_path).read_text() == "this is not a database"


@aio
async def test_surroundings_are_the_credentials_that_are_set(tmp_path: Path) -> None:
    known = Descriptor(
        name="a", title="A", launch=(Launch(),), credentials=Credentials(env=("A_KEY",))
    )
    paths = find_paths({"HOME": str(tmp_path), "DRAGOMAN_STATE_HOME": str(tmp_path)})
    here = surroundings_of(known, environ={})
    store(tmp_path, Health(peer="a", logins={here: Park(9e9), "else": Park(9e9)}))
    await note_success("a", known, paths=paths, environ={"A_KEY": "x"})
    assert set(stored(tmp_path).logins) == {here, "else"}
    await note_success("a", known, paths=paths, environ={})
    assert set(stored(tmp_path).logins) == {"else"}


@aio
async def test_the_loop_runs_on_while_another_process_holds_the_ledger(tmp_path: Path) -> None:
    paths = find_paths({"HOME": str(tmp_path), "DRAGOMAN_STATE_HOME": str(tmp_path)})
    store(tmp_path, Health(peer="a", failures=4))
    with closing(sqlite3.connect(ledger_path(tmp_path), isolation_level=None)) as held:
        held.execute("BEGIN IMMEDIATE")
        noting = TaskOwner("test").start(note_success("a", None, paths=paths), "note")
        await asyncio.sleep(0)
        assert not noting.done()
    await noting
    assert stored(tmp_path).failures == 0
