"""One file that is opened with care and fails with words."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dragoman.errors import (
    StoreBusy,
    StoreConflict,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreRefused,
    StoreTooNew,
)
from dragoman.store import Store, damage, database
from dragoman.store.schema import VERSION
from tests.unit.store.stores import chunk, open_store, session


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_folder_and_files_are_the_users_own(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.create_session(session())
        assert mode(store.path.parent) == 0o700
        files = sorted(store.path.parent.iterdir())
        assert [file.name for file in files] == [
            "sessions.db",
            "sessions.db-shm",
            "sessions.db-wal",
        ]
        assert [mode(file) for file in files] == [0o600] * 3


def test_a_file_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    path = tmp_path / "state" / "sessions.db"
    path.chmod(0o644)
    open_store(tmp_path).close()
    assert mode(path) == 0o600


def test_a_newer_form_is_refused_by_name_and_left_alone(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        path = store.path
    with sqlite3.connect(path) as other:
        other.execute(f"PRAGMA user_version = {VERSION + 1}")
    other.close()
    before = path.read_bytes()
    for read_only in (True, False):
        with pytest.raises(StoreTooNew, match=f"version {VERSION + 1}.* DRAGOMAN_STATE_HOME"):
            Store.open(path, read_only=read_only)
    assert path.read_bytes() == before


def test_a_newer_form_in_a_syntax_that_this_sqlite_does_not_know_is_not_damage(
    tmp_path: Path,
) -> None:
    with open_store(tmp_path) as store:
        path = store.path
    with sqlite3.connect(path) as other:
        other.execute("PRAGMA writable_schema = ON")
        other.execute(
            "INSERT INTO sqlite_master (type, name, tbl_name, rootpage, sql)"
            " VALUES ('table', 'later', 'later', 0, 'CREATE TABLE later (a !!) LATER')"
        )
        other.execute(f"PRAGMA user_version = {VERSION + 1}")
    other.close()
    for read_only in (True, False):
        with pytest.raises(StoreTooNew):
            Store.open(path, read_only=read_only)
    assert [each.name for each in path.parent.iterdir()] == [path.name]


@pytest.mark.skipif(os.name != "posix", reason="an open file cannot be moved")
@pytest.mark.parametrize("how", ["set aside by another process", "deleted"])
def test_a_file_that_is_gone_is_followed_and_nothing_is_written_where_none_reads(
    tmp_path: Path, how: str
) -> None:
    with open_store(tmp_path) as store:
        store.create_session(session())
        if how == "deleted":
            shutil.rmtree(store.path.parent)
        else:
            with open_store(tmp_path) as other:
                other.replace()
        with pytest.raises(StoreCorrupt, match="moved or deleted") as told:
            store.create_session(session())
        assert told.value.replaced
        store.create_session(session())
        with open_store(tmp_path) as other:
            assert len(other.sessions()) == 1


def test_garbage_is_called_damaged_and_left_alone_by_readers(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    path.write_bytes(b"this is no database at all " * 400)
    before = path.read_bytes()
    with pytest.raises(StoreCorrupt, match="move it away"):
        Store.open(path, read_only=True)
    assert path.read_bytes() == before


def test_a_file_of_another_program_is_not_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE theirs (x)")
    other.close()
    with pytest.raises(StoreCorrupt, match="another program"):
        Store.open(path)
    with sqlite3.connect(path) as other:
        assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("theirs",)]
    other.close()


def test_a_folder_in_the_place_of_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sessions.db").mkdir()
    with pytest.raises(StoreRefused, match="DRAGOMAN_STATE_HOME"):
        Store.open(tmp_path / "sessions.db")
    with pytest.raises(StoreCorrupt, match="not a regular file"):
        Store.open(tmp_path / "sessions.db", read_only=True)


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    for read_only in (True, False):
        with pytest.raises(StoreRefused):
            Store.open(tmp_path / "state" / "sessions.db", read_only=read_only)


def test_reading_makes_no_file_and_finds_nothing(tmp_path: Path) -> None:
    with Store.open(tmp_path / "sessions.db", read_only=True) as store:
        assert store.sessions() == []
        with pytest.raises(StoreRefused):
            store.create_session(session())
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_was_only_begun_reads_as_empty_and_is_finished_by_a_writer(
    tmp_path: Path,
) -> None:
    path = tmp_path / "sessions.db"
    path.touch()
    with Store.open(path, read_only=True) as store:
        assert store.jobs() == []
    with Store.open(path) as store:
        store.create_session(session())
        assert len(store.sessions()) == 1


def test_a_reader_sees_what_a_writer_has_stored_and_cannot_write(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.create_session(session())
        with Store.open(store.path, read_only=True) as reader:
            assert len(reader.sessions()) == 1
            with pytest.raises(StoreRefused):
                reader.create_session(session())


def test_a_transaction_is_stored_whole_or_not_at_all(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        with pytest.raises(RuntimeError), store.transaction():
            store.create_session(session())
            raise RuntimeError
        assert store.sessions() == []


def test_an_inner_block_that_fails_takes_back_only_its_own_part(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        one = session()
        with store.transaction():
            store.create_session(one)
            with pytest.raises(RuntimeError), store.transaction():
                store.create_session(session())
                raise RuntimeError
        assert store.sessions() == [one]


def test_after_a_long_wait_the_error_says_that_another_process_holds_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_TIMEOUT", 0.05)
    with open_store(tmp_path) as one, open_store(tmp_path) as other:
        with one.transaction():
            with pytest.raises(StoreBusy, match="another process"):
                other.create_session(session())
            # Readers do not wait.
            assert other.sessions() == []


def test_an_older_file_that_another_process_holds_is_busy_and_not_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_TIMEOUT", 0.05)
    with open_store(tmp_path) as store:
        path = store.path
    newer = dataclasses.replace(Store.form, migrations=(*Store.form.migrations, ()))
    monkeypatch.setattr(Store, "form", newer)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusy, match="another process"):
            Store.open(path, read_only=True)


def test_threads_share_a_store_by_waiting_for_each_other(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:

        def create() -> None:
            for _ in range(20):
                store.create_session(session())

        threads = [threading.Thread(target=create) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=30)
        assert len(store.sessions()) == 80


def test_a_new_file_that_is_opened_concurrently_is_created_once(tmp_path: Path) -> None:
    troubles: list[StoreError] = []

    def opens(path: Path, together: threading.Barrier) -> None:
        together.wait()
        try:
            Store.open(path).close()
        except StoreError as error:
            troubles.append(error)

    for number in range(30):
        together = threading.Barrier(6)
        path = tmp_path / str(number) / "sessions.db"
        threads = [threading.Thread(target=opens, args=(path, together)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=30)
    assert troubles == []


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (sqlite3.SQLITE_FULL, StoreFull),
        (sqlite3.SQLITE_BUSY, StoreBusy),
        (sqlite3.SQLITE_LOCKED, StoreBusy),
        (sqlite3.SQLITE_READONLY_DBMOVED, StoreRefused),
        (sqlite3.SQLITE_CANTOPEN, StoreRefused),
        (sqlite3.SQLITE_CORRUPT, StoreCorrupt),
        (sqlite3.SQLITE_NOTADB, StoreCorrupt),
        (sqlite3.SQLITE_CONSTRAINT_UNIQUE, StoreConflict),
        (sqlite3.SQLITE_IOERR_WRITE, StoreError),
        (sqlite3.SQLITE_ERROR, StoreError),
    ],
)
def test_every_error_of_the_database_has_its_own_kind(
    tmp_path: Path, code: int, kind: type[StoreError]
) -> None:
    error = sqlite3.OperationalError("it went wrong")
    error.sqlite_errorcode = code
    explained = database.explain(tmp_path / "sessions.db", error)
    assert type(explained) is kind
    assert str(tmp_path) in str(explained)


def test_a_write_that_fails_on_a_full_disk_is_reported_as_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_WRITE
    monkeypatch.setattr(database, "FULL_SIZE", 1 << 62)
    assert type(database.explain(tmp_path / "x", error)) is StoreFull
    gone = database.explain(tmp_path / "gone" / "x", error)
    assert type(gone) is StoreError


def test_no_space_for_the_folder_is_reported_as_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.mkdir", fail)
    with pytest.raises(StoreFull, match="prune"):
        Store.open(tmp_path / "state" / "sessions.db")


def test_a_second_connection_of_a_process_takes_no_locks_away_from_the_first(
    tmp_path: Path,
) -> None:
    path = tmp_path / "sessions.db"
    with Store.open(path) as first:
        first.create_session(session(key="s-one"))
        Store.open(path).close()
        # A process that believes to be the last one takes the log away when it ends.
        other = f"import sqlite3; sqlite3.connect({str(path)!r}).execute('SELECT 1 FROM sessions')"
        subprocess.run([sys.executable, "-c", other], check=True, timeout=30)
        first.create_session(session(key="s-two", peer_session_id="two"))
        with Store.open(path, read_only=True) as reader:
            assert {one.key for one in reader.sessions()} == {"s-one", "s-two"}


def test_a_damaged_file_that_cannot_be_set_aside_yet_is_set_aside_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = session()
    with open_store(tmp_path) as store:
        store.create_session(one)
        store.append(one.key, 0, [chunk("x")] * 2000)
    data = bytearray(store.path.read_bytes())
    size = int.from_bytes(data[16:18], "big")
    # The first page stays, so that the file can be opened.
    data[size:] = b"\xa5" * (len(data) - size)
    store.path.write_bytes(data)
    monkeypatch.setattr(damage, "LOCK_TIMEOUT", 0.0)
    with open_store(tmp_path) as store:
        with damage._alone_in(store.path.parent):
            for _ in range(2):
                with pytest.raises(StoreBusy, match="holds the lock") as busy:
                    store.create_session(one)
                assert "stopped dragoman process" in busy.value.remedy
        with pytest.raises(StoreCorrupt, match="a new one was created"):
            store.create_session(one)
        store.create_session(one)
        with Store.open(store.path, read_only=True) as reader:
            assert [each.key for each in reader.sessions()] == [one.key]
