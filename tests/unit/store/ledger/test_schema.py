"""The form of the ledger's file."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from dragoman.errors import StoreCorrupt
from dragoman.store.ledger.attempt_table import COLUMNS
from dragoman.store.ledger.schema import APPLICATION_ID, FORM
from dragoman.store.store import Store
from tests.unit.store.ledger.samples import new_ledger


def test_a_new_file_has_our_mark_and_the_number_of_the_form(tmp_path: Path) -> None:
    with new_ledger(tmp_path) as ledger:
        path = ledger.path
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    assert connection.execute("PRAGMA user_version").fetchone() == (FORM.version,)
    connection.close()


def test_the_table_has_a_column_for_every_field_and_the_day(tmp_path: Path) -> None:
    with new_ledger(tmp_path) as ledger, ledger.transaction() as connection:
        found = {row[1] for row in connection.execute("PRAGMA table_info(attempts)")}
    assert found == {*COLUMNS, "day"}


def test_the_store_of_sessions_is_not_taken_for_a_ledger_nor_the_other_way(tmp_path: Path) -> None:
    new_ledger(tmp_path).close()
    with pytest.raises(StoreCorrupt, match="another program"):
        Store.open(tmp_path / "ledger.db")
    Store.open(tmp_path / "other" / "ledger.db").close()
    with pytest.raises(StoreCorrupt, match="another program"):
        new_ledger(tmp_path / "other")
