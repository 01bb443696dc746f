"""No event is lost, none is there twice, and they are read from any number on."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.errors import StoreConflict, UnknownSession
from dragoman.store import events
from dragoman.store.records import EVENT_SPAN, Gap
from tests.unit.store.stores import SECRET, open_store, session


def numbered(start: int, stop: int) -> list[bytes]:
    return [b'{"n":%d}' % number for number in range(start, stop)]


def test_events_are_read_from_any_number_to_any_other(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        one = session()
        store.create_session(one)
        for start, stop in ((0, 3), (3, 4), (4, 10)):
            store.append(one.key, start, numbered(start, stop))
        for start in range(12):
            for stop in (*range(12), None):
                wanted = range(start, 10 if stop is None else min(stop, 10))
                assert list(store.lines(one.key, start, stop)) == [
                    (number, b'{"n":%d}' % number) for number in wanted
                ]


@pytest.mark.parametrize("first", [0, 1, 2, 4, 9])
def test_a_gap_or_an_overlap_is_refused_and_changes_nothing(tmp_path: Path, first: int) -> None:
    with open_store(tmp_path) as store:
        one = session()
        store.create_session(one)
        store.append(one.key, 0, numbered(0, 3))
        with pytest.raises(StoreConflict, match="the next is 3"):
            store.append(one.key, first, [b"{}"])
        assert len(list(store.lines(one.key))) == 3
        store.append(one.key, 3, [])
        found = store.session(one.key)
        assert found is not None and found.next_event == 3
        assert found.updated_at > one.updated_at


def test_nothing_is_stored_for_a_session_that_is_not_there(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        with pytest.raises(UnknownSession):
            store.append("s-gone", 0, [b"{}"])
        with pytest.raises(UnknownSession):
            list(store.lines("s-gone"))
        with pytest.raises(UnknownSession):
            store.note("s-gone", 0, "permission", {})
        with pytest.raises(UnknownSession):
            store.first_event("s-gone")


def test_many_bytes_are_spread_over_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "ROW_SIZE", 20)
    with open_store(tmp_path) as store:
        one = session()
        store.create_session(one)
        store.append(one.key, 0, numbered(0, 50))
        assert [line for _, line in store.lines(one.key)] == numbered(0, 50)
        assert next(iter(store.lines(one.key, 33))) == (33, b'{"n":33}')
        with store.transaction() as connection:
            rows = connection.execute("SELECT count(*) FROM events").fetchone()[0]
        assert rows > 10


def test_a_line_break_between_the_parts_of_a_line_makes_no_two_events(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        one = session()
        store.create_session(one)
        store.append(one.key, 0, [b'{\n"n": 0}', b'{"n":1}'])
        assert list(store.lines(one.key)) == [(0, b'{ "n": 0}'), (1, b'{"n":1}')]


def test_a_reader_gets_what_was_there_when_it_began(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        one = session()
        store.create_session(one)
        store.append(one.key, 0, numbered(0, 2))
        reader = store.lines(one.key)
        assert next(reader)[0] == 0
        store.append(one.key, 2, numbered(2, 4))
        assert [number for number, _ in reader] == [1]


def test_a_reader_whose_session_is_deleted_meanwhile_comes_to_an_end(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        one = session()
        store.create_session(one)
        store.append(one.key, 0, numbered(0, 2))
        store.append(one.key, 2, numbered(2, 4))
        reader = store.lines(one.key)
        next(reader)
        store.delete_session(one.key)
        assert [number for number, _ in reader] == [1]


def test_notes_stand_where_they_were_made_and_hold_no_secret(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        one = session()
        store.create_session(one)
        store.note(one.key, 5, "permission", {"title": f"echo {SECRET}"})
        store.note(one.key, 2, "permission", {"allowed": True})
        notes = store.notes(one.key)
        assert [(note.at_event, note.kind, note.data) for note in notes] == [
            (2, "permission", {"allowed": True}),
            (5, "permission", {"title": "echo [redacted]"}),
        ]


def test_numbers_are_skipped_when_another_process_takes_a_session_up(tmp_path: Path) -> None:
    one = session()
    with open_store(tmp_path) as store:
        store.create_session(one)
        store.append(one.key, 0, [b"0", b"1"])
        before = store.session(one.key)
        assert before is not None and before.resumed_event == 2 + EVENT_SPAN
        store.go_on_at(one.key, before.resumed_event)
        store.append(one.key, before.resumed_event, [b"2"])
        store.go_on_at(one.key, 5)
        record = store.session(one.key)
        assert record is not None and (record.next_event, record.events) == (EVENT_SPAN + 3, 3)
        assert list(store.lines(one.key, 1)) == [(1, b"1"), (EVENT_SPAN + 2, b"2")]
        assert store.gaps(one.key) == []


def test_events_that_could_not_be_stored_leave_a_gap_that_says_so(tmp_path: Path) -> None:
    one = session()
    with open_store(tmp_path) as store:
        store.create_session(one)
        store.append(one.key, 0, [b"0", b"1"])
        store.skip(one.key, 5, "no room")
        store.skip(one.key, 4, "there already")
        store.append(one.key, 5, [b"5"])
        assert list(store.lines(one.key)) == [(0, b"0"), (1, b"1"), (5, b"5")]
        assert list(store.lines(one.key, 3)) == [(5, b"5")]
        assert store.gaps(one.key) == [Gap(first=2, next=5, why="no room")]
        assert [note.at_event for note in store.notes(one.key)] == [2]
        with pytest.raises(UnknownSession):
            store.skip("s-gone", 1, "")


def test_the_first_event_is_the_next_where_none_is_stored(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        one = session(next_event=7)
        store.create_session(one)
        assert store.first_event(one.key) == 7
        store.append(one.key, 7, [b"{}"])
        assert store.first_event(one.key) == 7
