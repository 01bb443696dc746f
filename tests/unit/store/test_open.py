"""The user's store, as surfaces open it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.errors import StoreError
from dragoman.store.damage import identity_of
from dragoman.store.open import open_store, replace_damaged
from tests.unit.runs.stored import job, paths_in, session

SECRET = "correct-horse-battery-staple"


def test_opening_for_reading_creates_no_file(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    with open_store(read_only=True, paths=paths) as store:
        assert store.sessions() == []
    assert not paths.state.exists()


def test_values_of_credentials_do_not_get_in(tmp_path: Path) -> None:
    environ = {"ACME": SECRET, "MY_API_KEY": SECRET[::-1]}
    paths = paths_in(tmp_path)
    with open_store(paths=paths, credentials=["ACME"], environ=environ) as store:
        store.create_session(session())
        store.create_job(job(text=f"it is {SECRET} or {SECRET[::-1]}"))
        text = store.job("j-0000000001")
    assert text is not None
    assert SECRET not in text.text
    assert SECRET[::-1] not in text.text
    for file in paths.state.iterdir():
        assert SECRET.encode() not in file.read_bytes()


def test_a_folder_that_is_none_is_an_error_with_words(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    paths.state.write_text("no folder")
    with pytest.raises(StoreError, match="state"):
        open_store(paths=paths)


def test_a_damaged_store_is_replaced_but_not_the_new_one_of_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAGOMAN_STATE_HOME", str(tmp_path))
    path = tmp_path / "sessions.db"
    with open_store():
        damaged = identity_of(path)
    assert "a new one was created" in replace_damaged(damaged)
    assert identity_of(path) != damaged
    with open_store() as store:
        store.create_session(session())
    assert "a new one was created" in replace_damaged(damaged)
    with open_store(read_only=True) as store:
        assert len(store.sessions()) == 1
