"""Sessions, jobs and events are parts of one store."""

from __future__ import annotations

from pathlib import Path

from dragoman.store import Store, store_path
from tests.unit.store.stores import chunk, job, open_store, session


def test_the_store_is_a_file_in_the_state_folder(tmp_path: Path) -> None:
    with Store.open(store_path(tmp_path)) as store:
        assert store.path == tmp_path / "sessions.db"


def test_everything_is_there_after_it_was_closed_and_opened_again(tmp_path: Path) -> None:
    one = session(name="mine")
    made = job(one.key)
    with open_store(tmp_path) as store:
        store.create_session(one)
        store.create_job(made)
        store.append(one.key, 0, [chunk("a")], made.id)
    with open_store(tmp_path) as store:
        found = store.session(one.key)
        assert found is not None and found.next_event == 1
        assert store.job(made.id) == made
        assert list(store.lines(one.key)) == [(0, chunk("a"))]
    assert [file.name for file in (tmp_path / "state").iterdir()] == ["sessions.db"]
