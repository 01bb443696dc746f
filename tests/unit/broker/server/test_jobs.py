"""Jobs: prompts with an id."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from msgspec import Raw

from dragoman.broker.server.jobs import MAX_NOTICES, MAX_PROMPT_SIZE, Job, Jobs
from dragoman.errors import UsageError
from dragoman.events.words import Outcome
from tests.unit.broker.near import notice


def job(id: str = "j-1", *blocks: Any) -> Job:
    prompt = Raw(msgspec.json.encode(blocks))
    return Job(id, cast(Any, None), {"prompt": prompt})


def test_a_prompt_is_known_again_by_its_text() -> None:
    text = {"type": "text", "text": "hello"}
    assert job("j", text, {"type": "image"}).prompt_text == "hello\n[image]"
    link = {"type": "resource_link", "uri": "file:///a", "name": "a"}
    assert job("j", text, link).prompt_text == "hello\n[link]"
    long = job("j", {"type": "text", "text": "x" * 10**6})
    assert len(long.prompt_text) == 10**6, "the store cuts it"
    long.settled()
    assert len(long.prompt_text) == MAX_PROMPT_SIZE
    assert Job("j", cast(Any, None), {"prompt": Raw(b"{")}).prompt_text == ""


def test_a_waiter_is_notified_of_the_end_once() -> None:
    one = job()
    told: list[str] = []
    one.when_ended(lambda: told.append("first"))
    one.begin(3)
    one.end(Outcome.OK, next_event=5, stop="end_turn")
    assert told == []
    one.settled()
    one.when_ended(lambda: told.append("late"))
    assert told == ["first", "late"]
    assert (one.first_event, one.next_event, one.state) == (3, 5, "ended")
    assert one.params == {}, "what it held is let go"


@pytest.mark.parametrize(
    ("text", "acted", "denied", "outcome"),
    [
        ("x", True, False, Outcome.OK),
        ("", True, False, Outcome.OK),
        (" ", False, False, Outcome.EMPTY),
        ("", True, True, Outcome.DENIED),
    ],
)
def test_a_success_with_nothing_in_it_is_none(
    text: str, acted: bool, denied: bool, outcome: Outcome
) -> None:
    one = job()
    one.end(Outcome.OK, next_event=0)
    one.answer.add([bytes(notice("s1", text).params)])
    one.answer.acted, one.denied = acted, denied
    one.conclude()
    assert one.outcome is outcome


@pytest.mark.parametrize(
    ("said", "cancelled", "outcome"),
    [
        (Outcome.OK, False, Outcome.DENIED),
        (Outcome.FAILED, False, Outcome.DENIED),
        (Outcome.CANCELLED, False, Outcome.DENIED),
        (Outcome.CANCELLED, True, Outcome.CANCELLED),
        (Outcome.CRASHED, False, Outcome.CRASHED),
    ],
)
def test_where_nothing_was_approved_and_something_denied_it_was_denied(
    said: Outcome, cancelled: bool, outcome: Outcome
) -> None:
    for approved in (False, True):
        one = job()
        one.decided(allowed=False)
        if approved:
            one.decided(allowed=True)
        one.cancelled = cancelled
        one.end(said, next_event=0)
        one.answer.add([bytes(notice("s1", "all is well").params)])
        one.conclude()
        assert one.outcome is (said if approved else outcome)


def test_an_id_is_used_once() -> None:
    jobs = Jobs()
    jobs.add(job())
    with pytest.raises(UsageError, match="not sent twice"):
        jobs.add(job())


def test_ended_jobs_are_forgotten_one_day_and_others_never() -> None:
    jobs = Jobs(max_ended=3)
    running = job("running")
    jobs.add(running)
    for number in range(10):
        ended = job(f"j-{number}")
        jobs.add(ended)
        ended.end(Outcome.OK, next_event=0)
        ended.settled()
    assert jobs.get("running") is running
    assert jobs.get("j-0") is None
    assert jobs.get("j-9") is not None
    assert len(list(jobs)) <= 7


def test_a_callback_that_fails_is_logged_and_the_others_are_called(
    caplog: pytest.LogCaptureFixture,
) -> None:
    one = job()
    called: list[str] = []
    one.when_ended(lambda: called.append("first"))
    one.when_ended(lambda: 1 // 0)
    one.when_ended(lambda: called.append("last"))
    one.settled()
    assert called == ["first", "last"]
    assert one.params == {}
    assert "a callback for the end of job j-1 failed" in caplog.text


def test_every_declined_question_is_kept_up_to_a_limit_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    notes: list[tuple[str, dict[str, Any]]] = []
    session: Any = SimpleNamespace(note=lambda kind, data: notes.append((kind, data)))
    one = Job("j-1", session, {})
    for number in range(MAX_NOTICES + 5):
        one.declined(f"question {number}")
    assert len(one.notices) == MAX_NOTICES + 1
    assert "'question 0' was declined" in one.notices[0]
    assert "'question 1' was declined" in one.notices[1]
    assert "the log of the broker has them" in one.notices[-1]
    assert notes == [("notice", {"job": "j-1", "text": text}) for text in one.notices]
    assert len(caplog.records) == MAX_NOTICES + 5
