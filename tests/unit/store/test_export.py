"""A session leaves as lines and comes back as it was, or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from dragoman.errors import UnknownSession, UsageError
from dragoman.store import Store
from dragoman.store.records import CHECK, EVENT_SPAN
from tests.unit.store.stores import SECRET, chunk, job, open_store, session


def filled(store: Store, **fields: object) -> str:
    one = session(name="mine", **fields)
    store.create_session(one)
    made = job(one.key, state="ended", outcome="ok", started_at=1.0, next_event=3)
    store.create_job(made)
    store.append(one.key, 0, [chunk("a"), chunk("b"), chunk("c")], made.id)
    store.note(one.key, 1, "permission", {"allowed": True})
    return one.key


def test_what_left_comes_back_as_it_was(tmp_path: Path) -> None:
    with open_store(tmp_path / "one") as store, open_store(tmp_path / "two") as other:
        key = filled(store)
        lines = list(store.export(key))
        taken = other.import_(lines)
        assert taken == other.session(key) == store.session(key)
        assert list(other.lines(key)) == list(store.lines(key))
        assert other.jobs() == store.jobs()
        assert [note.data for note in other.notes(key)] == [{"allowed": True}]
        assert list(other.export(key))[:-2] == lines[:-2]


@pytest.mark.parametrize("first", [0, 2])
def test_what_is_missing_stays_missing_where_it_was(tmp_path: Path, first: int) -> None:
    one = session()
    with open_store(tmp_path / "one") as store, open_store(tmp_path / "two") as other:
        store.create_session(one)
        store.append(one.key, 0, [chunk("a"), chunk("b")][:first])
        store.skip(one.key, 5, "no room")
        store.append(one.key, 5, [chunk("c")])
        store.skip(one.key, 9, "again")
        taken = other.import_(list(store.export(one.key)))
        assert list(other.lines(one.key)) == list(store.lines(one.key))
        assert other.gaps(one.key) == store.gaps(one.key)
        assert len(other.gaps(one.key)) == 2
        assert taken.next_event == 9
        assert other.notes(one.key)[0].data["why"] == "no room"


def test_numbers_that_were_skipped_stay_so(tmp_path: Path) -> None:
    one = session()
    with open_store(tmp_path / "one") as store, open_store(tmp_path / "two") as other:
        store.create_session(one)
        number = 0
        for text in ("a", "b", "c"):
            store.append(one.key, number, [chunk(text)])
            number += 1 + EVENT_SPAN
            store.go_on_at(one.key, number)
        taken = other.import_(list(store.export(one.key)))
        assert list(other.lines(one.key)) == list(store.lines(one.key))
        assert taken.events == 3
        assert other.gaps(one.key) == []


def test_every_line_is_json_and_the_last_counts_them(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        lines = [msgspec.json.decode(line) for line in store.export(filled(store))]
    assert lines[0]["format"] == 1 and lines[0]["session"]["name"] == "mine"
    assert [line["event"] for line in lines if "event" in line] == [0, 1, 2]
    assert lines[-1] == {"end": {"jobs": 1, "events": 3, "notes": 1}}


def test_beside_the_first_a_second_gets_a_key_and_ids_of_its_own(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        key = filled(store)
        taken = store.import_(store.export(key))
        assert taken.key != key and taken.name is None
        assert len({found.id for found in store.jobs()}) == 2
        assert len(list(store.lines(taken.key))) == 3


def test_work_that_ran_elsewhere_does_not_run_here(tmp_path: Path) -> None:
    with open_store(tmp_path / "one") as store, open_store(tmp_path / "two") as other:
        one = session()
        store.create_session(one)
        store.create_job(job(one.key, state="running", runner={"pid": 1}, endpoint="x"))
        other.import_(store.export(one.key))
        (found,) = other.jobs()
        assert (found.state, found.outcome) == ("ended", "unknown")
        assert (found.runner, found.endpoint) == ({}, None)


def test_a_session_whose_oldest_events_are_gone_keeps_its_numbers(tmp_path: Path) -> None:
    with open_store(tmp_path / "one") as store, open_store(tmp_path / "two") as other:
        key = filled(store)
        store.append(key, 3, [chunk("d")])
        with store.transaction() as connection:
            connection.execute("DELETE FROM events WHERE first < 3")
        other.import_(store.export(key))
        assert list(other.lines(key)) == [(3, chunk("d"))]


def test_secrets_in_an_imported_file_are_removed(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        key = filled(store)
        lines = list(store.export(key))
        store.delete_session(key)
        where = next(i for i, line in enumerate(lines) if line.startswith(b'{"event":1'))
        lines[where] = b'{"event":1,"params":%b}' % chunk(f"it is {SECRET}.")
        store.import_(lines)
        assert SECRET.encode() not in b"".join(line for _, line in store.lines(key))


@pytest.mark.parametrize("left_out", [0, 1, 2, 3, 4, 5, 6])
def test_a_file_with_a_line_missing_is_refused_whole(tmp_path: Path, left_out: int) -> None:
    with open_store(tmp_path) as store:
        key = filled(store)
        lines = list(store.export(key))
        assert len(lines) == 7
        store.delete_session(key)
        del lines[left_out]
        with pytest.raises(UsageError):
            store.import_(lines)
        assert store.sessions() == [] and store.jobs() == []


@pytest.mark.parametrize("lines", [[], [b"hello"], [b"{}"], [b"\xff"], [b'{"session":{}}']])
def test_what_is_not_an_exported_session_is_refused(tmp_path: Path, lines: list[bytes]) -> None:
    with open_store(tmp_path) as store, pytest.raises(UsageError, match="line 1"):
        store.import_(lines)


def test_the_counts_that_differ_are_named(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        lines = list(store.export(filled(store)))
        lines[-1] = b'{"end":{"jobs":1,"events":900,"notes":0}}'
        with pytest.raises(UsageError, match="counts 1 jobs, 900 events, 0 notes, but it has 1 "):
            store.import_(lines)


def test_another_format_is_refused_by_its_number(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        lines = list(store.export(filled(store)))
        lines[0] = lines[0].replace(b'"format":1', b'"format":2')
        with pytest.raises(UsageError, match="format 2"):
            store.import_(lines)


def test_a_session_that_is_not_there_cannot_leave(tmp_path: Path) -> None:
    with open_store(tmp_path) as store, pytest.raises(UnknownSession):
        list(store.export("s-gone"))


def test_notes_that_name_files_and_commands_of_a_machine_neither_leave_nor_come_in(
    tmp_path: Path,
) -> None:
    command = {"result": {"command": "rm -rf /", "ok": True}}
    with open_store(tmp_path / "a") as store, open_store(tmp_path / "b") as other:
        key = filled(store)
        store.note(key, 1, CHECK, command)
        lines = list(store.export(key))
        assert b"rm -rf" not in b"".join(lines)
        # A file that another program has made.
        foreign = {"note": {"atEvent": 1, "kind": CHECK, "data": command, "at": 1.0}}
        end = json.loads(lines[-1])
        end["end"]["notes"] += 1
        lines[-1:] = [json.dumps(foreign).encode(), json.dumps(end).encode()]
        taken = other.import_(lines)
        assert [note.kind for note in other.notes(taken.key)] == ["permission"]


HUGE = 10**20


@pytest.mark.parametrize(
    ("line", "name"), [(0, "firstEvent"), (1, "firstEvent"), (2, "event"), (-2, "atEvent")]
)
def test_a_number_that_cannot_be_stored_is_refused_and_leaves_nothing(
    tmp_path: Path, line: int, name: str
) -> None:
    with open_store(tmp_path / "a") as store, open_store(tmp_path / "b") as other:
        lines = list(store.export(filled(store)))
        told = json.loads(lines[line])
        holder = next(each for each in (told, *told.values()) if name in each)
        holder[name] = HUGE
        lines[line] = json.dumps(told).encode()
        with pytest.raises(UsageError):
            other.import_(lines)
        assert other.sessions() == []
