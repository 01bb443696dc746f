"""Damage is found, told and set aside, and nothing is destroyed."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from dragoman.errors import StoreCorrupt
from dragoman.store.damage import MARK, aside_of, find_damage, identity_of, is_damage, set_aside
from dragoman.store.store import Store
from tests.unit.store.stores import job, open_store, session


def store_in(folder: Path) -> Path:
    with open_store(folder) as store:
        one = session()
        store.create_session(one)
        store.create_job(job(one.key))
        return store.path


def overwrite(path: Path, what: bytes, by: bytes) -> None:
    """Change what stands in a file, as a broken disk does."""
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    data = path.read_bytes()
    assert what in data and len(what) == len(by)
    path.write_bytes(data.replace(what, by))


def test_a_whole_file_and_a_missing_one_have_no_damage(tmp_path: Path) -> None:
    assert find_damage(store_in(tmp_path)) == []
    assert find_damage(tmp_path / "none.db") == []


def test_pages_texts_and_whole_files_that_are_damaged_are_found(tmp_path: Path) -> None:
    path = store_in(tmp_path)
    whole = path.read_bytes()
    overwrite(path, b"say hello", b"say \xff\xfe\xfdlo")
    assert "UTF-8" in find_damage(path)[0]
    path.write_bytes(whole[:8192] + b"\x5a" * (len(whole) - 8192))
    assert find_damage(path)
    path.write_bytes(b"no database at all " * 100)
    assert "not a database" in find_damage(path)[0]


def test_only_errors_of_content_are_damage() -> None:
    assert is_damage(sqlite3.OperationalError("Could not decode to UTF-8 column 'data'"))
    assert not is_damage(sqlite3.OperationalError("disk I/O error"))
    assert not is_damage(ValueError("x"))


def test_a_file_is_set_aside_with_its_companions_unless_another_took_its_place(
    tmp_path: Path,
) -> None:
    path = tmp_path / "x.db"
    path.write_bytes(b"old")
    path.with_name("x.db-wal").write_bytes(b"log")
    seen = identity_of(path)
    one = set_aside(path, seen)
    assert one is not None and one.read_bytes() == b"old"
    assert one.with_name(one.name + "-wal").read_bytes() == b"log"
    assert not path.exists() and set_aside(path, seen) is None
    path.write_bytes(b"new")
    assert set_aside(path, None) is None and path.read_bytes() == b"new"
    two = set_aside(path, identity_of(path))
    assert two is not None and two != one
    assert aside_of(path) == sorted([one, two])
    assert aside_of(tmp_path / "none" / "y.db") == []


def test_a_store_whose_file_is_garbage_begins_anew_and_says_so(tmp_path: Path) -> None:
    path = store_in(tmp_path)
    path.write_bytes(b"garbage " * 1000)
    with pytest.raises(StoreCorrupt), Store.open(path, read_only=True):
        pass
    with Store.open(path) as store:
        (aside,) = aside_of(path)
        assert str(aside) in store.replaced and MARK in store.replaced
        assert aside.read_bytes() == b"garbage " * 1000
        store.create_session(session())
    with Store.open(path) as store:
        assert store.replaced == "" and len(store.sessions()) == 1


@pytest.mark.parametrize("by", [b"say \xff\xfe\xfdlo", None])
def test_damage_that_shows_itself_later_is_reported_once_and_work_goes_on(
    tmp_path: Path, by: bytes | None
) -> None:
    path = store_in(tmp_path)
    if by is not None:
        overwrite(path, b"say hello", by)
    else:
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE jobs SET failure = '{not JSON'")
        connection.close()
    with Store.open(path) as store:
        assert store.replaced == ""
        with pytest.raises(StoreCorrupt) as told:
            store.jobs()
        assert told.value.replaced and "a new one was created" in str(told.value)
        assert store.jobs() == []
        store.create_session(session())
    assert len(aside_of(path)) == 1


def test_a_value_that_this_version_does_not_know_is_not_damage(tmp_path: Path) -> None:
    path = store_in(tmp_path)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE sessions SET next_event = 'later'")
    connection.close()
    with Store.open(path) as store, pytest.raises(StoreCorrupt, match="does not know") as told:
        store.sessions()
    assert not told.value.damaged and aside_of(path) == []


def test_damage_found_within_a_transaction_takes_it_back(tmp_path: Path) -> None:
    path = store_in(tmp_path)
    overwrite(path, b"say hello", b"say \xff\xfe\xfdlo")
    with Store.open(path) as store:
        with pytest.raises(StoreCorrupt) as told, store.transaction():
            store.create_session(session())
            store.jobs()
        assert told.value.replaced
        assert store.sessions() == []


def test_a_reader_changes_nothing(tmp_path: Path) -> None:
    path = store_in(tmp_path)
    overwrite(path, b"say hello", b"say \xff\xfe\xfdlo")
    with Store.open(path, read_only=True) as store, pytest.raises(StoreCorrupt) as told:
        store.jobs()
    assert told.value.damaged and not told.value.replaced
    assert aside_of(path) == []
