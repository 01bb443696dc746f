"""What a broker could not store before it ended is noted by the next one."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.broker.server import gap_notes
from dragoman.store.records import Gap
from tests.unit.store.stores import open_store, session


def test_a_slip_is_taken_once_and_only_for_its_store(tmp_path: Path) -> None:
    one, other = tmp_path / "one.db", tmp_path / "other.db"
    gap_notes.leave(tmp_path, one, {"s-1": 3}, why="the disk was full")
    (tmp_path / gap_notes.FOLDER / "0.json").write_text("no slip")
    assert gap_notes.take(tmp_path, other) == []
    (slip,) = gap_notes.take(tmp_path, one)
    assert (slip.lost, slip.why) == ({"s-1": 3}, "the disk was full")
    assert gap_notes.take(tmp_path, one) == []
    assert gap_notes.take(tmp_path / "nowhere", one) == []


def test_a_note_that_cannot_be_removed_is_kept_and_logged_and_the_next_one_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = tmp_path / "one.db"
    gap_notes.leave(tmp_path, store, {"s-1": 3}, why="")
    gap_notes.leave(tmp_path, store, {"s-2": 4}, why="")
    stuck = min((tmp_path / gap_notes.FOLDER).iterdir())
    unlink = Path.unlink

    def refuse(path: Path, missing_ok: bool = False) -> None:
        if path == stuck:
            raise PermissionError(13, "Permission denied")
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse)
    assert [slip.lost for slip in gap_notes.take(tmp_path, store)] == [{"s-2": 4}]
    assert f"{stuck}: cannot remove the note" in caplog.text


def test_a_slip_that_cannot_be_left_is_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / gap_notes.FOLDER).write_text("in the way")
    gap_notes.leave(tmp_path, tmp_path / "one.db", {"s-1": 3}, why="")
    assert "{'s-1': 3}" in caplog.text
    assert gap_notes.take(tmp_path, tmp_path / "one.db") == []


def test_what_is_lost_is_noted_behind_what_is_stored_by_now(tmp_path: Path) -> None:
    one = session()
    with open_store(tmp_path) as store:
        store.create_session(one)
        store.append(one.key, 0, [b"0", b"1"])
        lost = {one.key: 3, "s-gone": 4}
        gap_notes.note(store, gap_notes.UnstoredNote(store="", why="the disk was full", lost=lost))
        assert store.gaps(one.key) == [Gap(first=2, next=5, why="the disk was full")]
        found = store.session(one.key)
        assert found is not None and found.next_event == 5
