from __future__ import annotations

import os
from pathlib import Path

import pytest

from dragoman.scout import store
from dragoman.scout.store import RememberedTurn, SessionFiles, state_folder, timestamp, title_of

ID = "0123456789abcdef0123456789abcdef"


def test_a_session_is_remembered_with_its_turns(tmp_path: Path) -> None:
    first = SessionFiles(tmp_path / "a" / "b")
    assert first.begin(ID, "/project")
    assert first.add(ID, RememberedTurn("why?", "because", answered=False))
    known = SessionFiles(tmp_path / "a" / "b").load(ID)
    assert known is not None
    assert (known.id, known.cwd, known.title) == (ID, "/project", "why?")
    assert known.entries == [RememberedTurn("why?", "because", answered=False)]


def test_others_cannot_read_it(tmp_path: Path) -> None:
    SessionFiles(tmp_path / "s").begin(ID, "/project")
    assert (tmp_path / "s").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "s" / f"{ID}.jsonl").stat().st_mode & 0o777 == 0o600


def test_the_latest_come_first_and_a_folder_chooses(tmp_path: Path) -> None:
    kept = SessionFiles(tmp_path)
    for number, cwd in enumerate(("/a", "/b", "/a/")):
        id = f"{number:032x}"
        kept.begin(id, cwd)
        os.utime(tmp_path / f"{id}.jsonl", (number, number))
    assert [one.id[-1] for one in kept.listed()] == ["2", "1", "0"]
    assert [one.id[-1] for one in kept.listed("/a")] == ["2", "0"]


@pytest.mark.parametrize("id", ["", "../x", "a/b", "A" * 32, "x" * 32, "0" * 100, "\0" * 32])
def test_an_id_that_is_none_of_ours_names_no_file(id: str, tmp_path: Path) -> None:
    kept = SessionFiles(tmp_path)
    assert kept.load(id) is None
    assert not kept.begin(id, "/")
    assert not kept.add(id, RememberedTurn("a", "b"))
    kept.delete(id)
    assert list(tmp_path.iterdir()) == []


def test_what_is_broken_is_passed_over(tmp_path: Path) -> None:
    kept = SessionFiles(tmp_path)
    kept.begin(ID, "/project")
    with (tmp_path / f"{ID}.jsonl").open("ab") as file:
        file.write(b'{"question": 3}\nnot json\n\xff\n{"question":"a","answer":"b"}\n{"quest')
    (tmp_path / f"{'1' * 32}.jsonl").write_bytes(b"\xff\0")
    (tmp_path / f"{'2' * 32}.jsonl").write_bytes(b'{"id":"other","cwd":"/"}\n')
    (known,) = kept.listed()
    assert [entry.question for entry in known.entries] == ["a"]


def test_the_same_id_is_not_taken_twice(tmp_path: Path) -> None:
    kept = SessionFiles(tmp_path)
    assert kept.begin(ID, "/a")
    assert not kept.begin(ID, "/b")


def test_a_session_can_be_forgotten(tmp_path: Path) -> None:
    kept = SessionFiles(tmp_path)
    kept.begin(ID, "/a")
    kept.delete(ID)
    kept.delete(ID)
    assert kept.load(ID) is None
    assert not kept.add(ID, RememberedTurn("a", "b")), "a forgotten session does not come back"


def test_the_oldest_go_when_there_are_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MAX_SESSIONS", 3)
    kept = SessionFiles(tmp_path)
    for number in range(5):
        id = f"{number:032x}"
        kept.begin(id, "/a")
        os.utime(tmp_path / f"{id}.jsonl", (number, number))
    assert sorted(one.id[-1] for one in kept.listed()) == ["2", "3", "4"]


def test_a_file_and_an_answer_have_their_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "MAX_ANSWER_SIZE", 10)
    monkeypatch.setattr(store, "MAX_FILE_SIZE", 300)
    kept = SessionFiles(tmp_path)
    kept.begin(ID, "/a")
    assert kept.add(ID, RememberedTurn("q", "x" * 100))
    added = [kept.add(ID, RememberedTurn("q", "x")) for _ in range(20)]
    assert not all(added)
    known = kept.load(ID)
    assert known is not None
    assert known.entries[0].answer == "x" * 10


def test_a_directory_that_cannot_be_created_does_not_fail_the_turn(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    kept = SessionFiles(tmp_path / "file" / "below")
    assert not kept.begin(ID, "/a")
    assert not kept.add(ID, RememberedTurn("a", "b"))
    assert kept.listed() == []
    assert kept.load(ID) is None


def test_the_state_folder_is_the_users_and_can_be_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    assert state_folder({"DRAGOMAN_STATE_HOME": "/s"}) == Path("/s/scout")
    monkeypatch.setenv("XDG_STATE_HOME", "/x")
    monkeypatch.delenv("DRAGOMAN_STATE_HOME", raising=False)
    assert state_folder() == Path("/x/dragoman/scout")


def test_titles_are_short_and_times_are_those_of_the_protocol() -> None:
    assert title_of("a\n b") == "a b"
    assert len(title_of("x" * 500)) == 80
    assert timestamp(0.0) == "1970-01-01T00:00:00Z"
