"""What is old goes, and what still runs or is among the newest stays."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from dragoman.store.retention import RECENT_AGE
from tests.unit.store.stores import chunk, job, open_store, session


def test_only_sessions_that_were_not_used_for_long_are_deleted(tmp_path: Path) -> None:
    old, new = session(updated_at=100.0), session(updated_at=900.0)
    with open_store(tmp_path) as store:
        for one in (old, new):
            store.create_session(one)
            store.create_job(job(one.key, state="ended"))
        counts = store.prune(200.0, now=1000.0)
        assert (counts.sessions, counts.jobs, counts.keys) == (1, 1, (old.key,))
        assert store.sessions() == [new]


def test_the_newest_stay_however_old_they_are(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for age in range(5):
            store.create_session(session(updated_at=float(age)))
        assert store.prune(1.0, keep=2, now=1000.0).sessions == 3
        assert [one.updated_at for one in store.sessions()] == [4.0, 3.0]


def test_a_session_with_work_that_is_not_over_stays(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for state in ("queued", "running", "ended"):
            one = session()
            store.create_session(one)
            store.create_job(job(one.key, state=state))
        assert store.prune().sessions == 1
        assert {found.state for found in store.jobs()} == {"queued", "running"}


def test_what_to_delete_can_be_narrowed_and_tried(tmp_path: Path) -> None:
    closed, other = session(closed_at=1.0), session(peer="gemini")
    with open_store(tmp_path) as store:
        for one in (closed, other):
            store.create_session(one)
            store.append(one.key, 0, [chunk("a"), chunk("b")])
        tried = store.prune(dry_run=True)
        assert (tried.sessions, tried.events) == (2, 4)
        assert store.prune(closed_only=True, dry_run=True).keys == (closed.key,)
        assert len(store.sessions()) == 2
        assert store.prune(closed_only=True).keys == (closed.key,)
        assert [one.key for one in store.sessions()] == [other.key]


def test_work_that_never_had_a_session_goes_with_the_old(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        old, new, running = job(created_at=1.0), job(created_at=900.0), job(created_at=1.0)
        for made, state in ((old, "ended"), (new, "ended"), (running, "running")):
            store.create_job(made)
            store.update_job(made.id, state=state)
        assert store.prune(200.0, now=1000.0).jobs == 1
        assert {found.id for found in store.jobs()} == {new.id, running.id}


@pytest.mark.parametrize("older", [False, True])
def test_what_is_deleted_gives_its_space_back_to_the_disk(tmp_path: Path, older: bool) -> None:
    path = tmp_path / "state" / "sessions.db"
    with open_store(tmp_path) as store:
        for key in ("s-large", "s-small"):
            store.create_session(session(key=key, peer_session_id=key))
        store.append("s-large", 0, [b'"' + b"x" * 100_000 + b'"'] * 50)
        store.append("s-small", 0, [b"{}"])
    if older:
        # A file of a dragoman that did not give space back.
        connection = sqlite3.connect(path)
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("PRAGMA auto_vacuum = NONE")
        connection.execute("VACUUM")
        connection.close()
    assert path.stat().st_size > 5_000_000
    with open_store(tmp_path) as store:
        store.delete_session("s-large")
        assert path.stat().st_size < 500_000
        assert [number for number, _ in store.lines("s-small")] == [0]


def test_a_session_of_today_and_an_open_one_stay_however_large(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for key, closed_at in (("s-today", 1.0), ("s-open", None), ("s-old", 1.0)):
            store.create_session(session(key=key, closed_at=closed_at, peer_session_id=key))
            store.append(key, 0, [b'"' + b"x" * 100_000 + b'"'])
            store.update_session(key, updated_at=1000.0 if key == "s-today" else 1.0)
        gone = store.shrink(1, now=1000.0 + RECENT_AGE)
        assert gone.keys == ("s-old",) and (gone.sessions, gone.events) == (1, 1)
        assert store.shrink(10**9).keys == ()


@pytest.mark.parametrize("way", ["prune", "shrink"])
def test_another_process_can_write_between_two_deletions_and_what_it_uses_stays(
    tmp_path: Path, way: str
) -> None:
    with open_store(tmp_path) as store, open_store(tmp_path) as other:
        for key in ("s-1", "s-2", "s-3"):
            one = session(key=key, name=None, closed_at=1.0, updated_at=1.0)
            store.create_session(one)
        delete = store._delete

        def deleting(key: str, *args: object, **named: object) -> object:
            if key != "s-1":
                # As a process that resumes the session does.
                other.update_session("s-2", closed_at=None, updated_at=9e9)
            return delete(key, *args, **named)  # type: ignore[arg-type]

        store._delete = deleting  # type: ignore[method-assign, assignment]
        gone = store.prune() if way == "prune" else store.shrink(1)
        assert gone.keys == ("s-1", "s-3")
        assert [each.key for each in store.sessions()] == ["s-2"]
