"""The file as a whole."""

from __future__ import annotations

import stat
from pathlib import Path

from dragoman.store.ledger.ledger import Ledger, ledger_path
from tests.unit.store.ledger.samples import attempt, done, new_ledger


def test_the_ledger_is_in_the_state_folder() -> None:
    assert ledger_path(Path("state")) == Path("state/ledger.db")


def test_only_this_user_may_read_it(tmp_path: Path) -> None:
    with new_ledger(tmp_path / "state") as ledger:
        done(ledger, attempt())
        for file in (tmp_path / "state").iterdir():
            assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
        assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700


def test_reading_where_there_is_none_makes_none(tmp_path: Path) -> None:
    with Ledger.open(ledger_path(tmp_path), read_only=True) as ledger:
        assert list(ledger.export()) == []
    assert list(tmp_path.iterdir()) == []


def test_a_reader_sees_what_a_writer_has_just_kept(tmp_path: Path) -> None:
    with new_ledger(tmp_path) as writer, Ledger.open(writer.path, read_only=True) as reader:
        done(writer, attempt())
        assert len(reader.attempts("j-1")) == 1
