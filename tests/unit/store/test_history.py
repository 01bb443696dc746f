"""A stored session is read without its peer, turn by turn."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from msgspec import structs

from dragoman.errors import UnknownSession
from dragoman.events import model
from dragoman.events.fold import fold
from dragoman.events.model import EventEnvelope, Source
from dragoman.events.words import ErrorKind, Outcome, Role
from dragoman.store import JobRecord, Store
from dragoman.store.history import TurnMarks, history, text_of
from tests.unit.store.stores import chunk, job, open_store, session, update


def talk(store: Store) -> tuple[str, JobRecord, JobRecord]:
    """Two turns of two events each, and an event before them."""
    one = session(title="A talk")
    store.create_session(one)
    first = job(
        one.key,
        prompt="say hello",
        state="ended",
        outcome="ok",
        stop="end_turn",
        started_at=1.0,
        first_event=1,
        next_event=3,
        usage={"inputTokens": 4},
    )
    second = job(one.key, prompt="again", state="running", started_at=2.0, first_event=3)
    for made in (first, second):
        store.create_job(made)
    lines = [
        update("current_mode_update", currentModeId="plan"),
        *(chunk("hel"), chunk("lo")),
        *(chunk("once "), chunk("more")),
    ]
    store.append(one.key, 0, lines)
    return one.key, first, second


def test_turns_begin_and_end_where_they_did(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        key, first, second = talk(store)
        events = list(history(store, key))
    assert [type(event).__name__ for event in events] == [
        "SessionOpened",
        "SettingsChanged",
        "TurnStarted",
        "MessageDelta",
        "MessageDelta",
        "TurnEnded",
        "TurnStarted",
        "MessageDelta",
        "MessageDelta",
    ]
    assert all(event.replay for event in events)
    assert [event.seq for event in events] == list(range(1, 10))
    assert events[3].turn == first.id and events[7].turn == second.id
    ended = events[5]
    assert isinstance(ended, model.TurnEnded)
    assert ended.outcome is Outcome.OK and ended.usage is not None
    assert ended.usage.input_tokens == 4


def test_missing_events_are_noted_where_they_would_be(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        key, _, _ = talk(store)
        store.skip(key, 8, "no room")
        store.append(key, 8, [chunk("and on")])
        store.skip(key, 9 + 2, "no room again")
        events = list(history(store, key))
    assert [type(event).__name__ for event in events[-5:]] == [
        "MessageDelta",
        "MessageDelta",
        "Noticed",
        "MessageDelta",
        "Noticed",
    ]
    told = events[-3]
    assert isinstance(told, model.Noticed)
    assert (told.severity, told.title) == (
        "warning",
        "3 events missing here: storing failed",
    )
    assert told.detail == "no room"


def test_a_stored_history_folds_to_what_was_said(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        view = fold(history(store, talk(store)[0]))
    assert [(message.role, str(message.said)) for message in view.messages] == [
        (Role.USER, "say hello"),
        (Role.AGENT, "hello"),
        (Role.USER, "again"),
        (Role.AGENT, "once more"),
    ]


def test_a_line_that_is_not_understood_is_not_lost(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        one = session()
        store.create_session(one)
        store.append(one.key, 0, [b"[broken"])
        unknown = list(history(store, one.key))[-1]
        assert isinstance(unknown, model.Unknown) and b"[broken" in (unknown.raw or b"")


def test_a_turn_without_events_has_its_beginning_and_its_end(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        one = session()
        store.create_session(one)
        store.create_job(
            job(
                one.key,
                state="ended",
                outcome="something new",
                started_at=1.0,
                failure={"message": "no", "kind": "quota", "code": 7},
                usage={"inputTokens": "many"},
            )
        )
        store.create_job(job(one.key))
        opened, started, ended = history(store, one.key)
    assert isinstance(started, model.TurnStarted)
    assert isinstance(ended, model.TurnEnded) and ended.failure is not None
    assert (ended.outcome, ended.failure.kind) == (Outcome.UNKNOWN, ErrorKind.QUOTA)
    assert ended.usage is None


def test_a_delegated_job_and_its_attempt_are_one_turn(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        key, first, _ = talk(store)
        store.create_job(structs.replace(first, id=f"{first.id}-1"))
        started = [each for each in history(store, key) if isinstance(each, model.TurnStarted)]
    assert [each.turn for each in started][:1] == [f"{first.id}-1"]
    assert len(started) == 2


def test_what_was_said_so_far_is_the_text_of_a_job_that_has_none(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        key, first, second = talk(store)
        assert text_of(store, first) == "hello"
        assert text_of(store, second) == "once more"
        assert text_of(store, job(key)) == ""
        assert text_of(store, job(key, text="whole", started_at=1.0)) == "whole"


def test_a_session_that_is_not_there_has_no_history(tmp_path: Path) -> None:
    with open_store(tmp_path) as store, pytest.raises(UnknownSession):
        list(history(store, "s-gone"))


def test_turns_are_marked_while_the_session_goes_on() -> None:
    marks = TurnMarks(EventEnvelope(Source("acp", "x"), itertools.count(1), "s"))
    running = job("s", state="running", started_at=1.0, first_event=2)
    assert not marks.covers(2)
    marks.take([running])
    assert marks.covers(2) and not marks.covers(1)
    assert list(marks.before(1)) == []
    assert [type(event) for event in marks.before(2)] == [model.TurnStarted]
    assert list(marks.before(5)) == []
    fields = {name: getattr(running, name) for name in running.__struct_fields__}
    ended = JobRecord(**fields | {"state": "ended", "outcome": "ok", "next_event": 6})
    marks.take([ended])
    assert list(marks.before(5)) == []
    assert [type(event) for event in marks.before(6)] == [model.TurnEnded]
    marks.take([ended])
    assert list(marks.before(9)) == []
