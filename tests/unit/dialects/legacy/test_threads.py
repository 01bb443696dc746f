"""The dialect of threads: its document's examples, as shapes, events, and an agent's words."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from dragoman.dialects.legacy import threads
from dragoman.events import model
from dragoman.events.parts import Text, Usage
from dragoman.events.words import ErrorKind, Outcome, Role
from tests.fixtures.documents import load
from tests.unit.dialects.document_reading import (
    Places,
    answer,
    base,
    opening,
    plain,
    round_trip,
    tell_raw,
)

EXAMPLES = load("threads")
SHAPES: dict[str, Any] = {
    "initialize": threads.Service,
    "initialized": threads.Thread,
    "start": threads.Service,
    "started": threads.Thread,
    "resume": threads.Thread,
    "resumed": threads.State,
    "turn": threads.Turn,
    "complete": threads.Result,
    "error": threads.Result,
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_of_the_document_is_read_and_written_as_it_is(name: str) -> None:
    assert round_trip(EXAMPLES[name], SHAPES[name]) == EXAMPLES[name].body


# -- the client's end


def test_without_a_handshake_a_thread_is_started() -> None:
    end = threads.ClientEnd()
    assert end.hello() is None
    start = EXAMPLES["start"]
    # An agent may want the handshake first, which starts a thread, too.
    assert opening(end) == [(start.method, start.body), ("initialize", start.body)]
    end.worked("threadStart")
    assert opening(end) == [(start.method, start.body)]
    opened = end.opened(Raw(EXAMPLES["started"].raw), None, "new", Places("threads"))
    assert opened == ("thread-abc123", [])


def test_a_handshake_gives_the_first_thread_and_the_next_is_started() -> None:
    end = threads.ClientEnd(handshake=True)
    hello = EXAMPLES["initialize"]
    assert plain([end.hello()]) == [(hello.method, hello.body)]
    end.greeted(Raw(EXAMPLES["initialized"].raw))
    assert opening(end) == []
    assert end.opened(None, None, "new", Places("threads")) == ("thread-abc123", [])
    assert [method for method, _ in opening(end)] == ["threadStart"]


def test_the_name_of_the_service_can_be_set() -> None:
    (_, params), _ = opening(threads.ClientEnd(service_name="mine"))
    assert params == {"service_name": "mine", "experimentalRawEvents": False}


def test_a_turn_is_sent_as_the_document_shows() -> None:
    turn = EXAMPLES["turn"]
    sent = threads.ClientEnd().prompting("thread-abc123", [Text("Execute the build command")])
    assert plain(sent) == [(turn.method, turn.body)]


def test_loading_replays_the_history_and_the_last_result() -> None:
    end = threads.ClientEnd()
    resume = EXAMPLES["resume"]
    assert opening(end, "thread-abc123") == [(resume.method, resume.body)]
    thread_id, events = end.opened(
        Raw(EXAMPLES["resumed"].raw), "thread-abc123", "load", Places("threads")
    )
    assert thread_id == "thread-abc123"
    assert all(event.replay for event in events)
    said = [(e.role, e.text, e.turn) for e in events if isinstance(e, model.MessageDelta)]
    assert said == [
        (Role.USER, "Does it build?", "turn-1"),
        (Role.AGENT, "It builds.", "turn-1"),
        (Role.AGENT, "Done.", "turn-xyz"),
    ]
    ends = [e.turn for e in events if isinstance(e, model.TurnEnded)]
    assert ends == ["turn-1", "turn-xyz"]


def test_resuming_replays_nothing() -> None:
    opened = threads.ClientEnd().opened(
        Raw(EXAMPLES["resumed"].raw), "thread-abc123", "resume", Places("threads")
    )
    assert opened == ("thread-abc123", [])


def test_a_last_result_that_is_also_in_the_history_comes_once() -> None:
    turn = threads.Result(turn_id="turn-1", status="complete", content="x")
    place = Places("threads")("thread")
    state = threads.State("thread", history=[turn], last_result=turn)
    ends = [e for e in threads.history(state, place) if isinstance(e, model.TurnEnded)]
    assert len(ends) == 1
    assert place.replay is False and place.turn is None


@pytest.mark.parametrize(("last", "ends"), [("x", 1), ("y", 2), ("", 1)])
def test_a_last_result_may_be_only_its_text(last: str, ends: int) -> None:
    turns = [{"turnId": "turn-1", "status": "complete", "content": "x"}]
    body = {"threadId": "thread", "turns": turns, "lastResult": last}
    _, events = threads.ClientEnd().opened(
        Raw(json.dumps(body).encode()), "thread", "load", Places("threads")
    )
    assert sum(isinstance(event, model.TurnEnded) for event in events) == ends


def test_a_complete_turn_ends_well_with_text_and_usage() -> None:
    (event,) = answer(threads.ClientEnd(), EXAMPLES["complete"])
    assert isinstance(event, model.TurnEnded)
    assert (event.outcome, event.text, event.turn) == (Outcome.OK, "...", "turn-xyz")
    assert event.usage == Usage(input_tokens=1234, output_tokens=5678)


def test_a_turn_that_failed_is_an_outcome() -> None:
    reported, ended = answer(threads.ClientEnd(), EXAMPLES["error"])
    assert isinstance(reported, model.ErrorReported) and isinstance(ended, model.TurnEnded)
    assert ended.outcome is Outcome.QUOTA
    assert ended.failure is not None
    assert ended.failure.kind is ErrorKind.RATE_LIMITED
    assert ended.failure.code == "rate_limit" and ended.failure.retryable


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        ("auth_required", Outcome.AUTH_REQUIRED),
        ("quota_exceeded", Outcome.QUOTA),
        ("context_full", Outcome.TRUNCATED),
        ("something_new", Outcome.FAILED),
    ],
)
def test_codes_of_errors_have_outcomes(code: str, outcome: Outcome) -> None:
    result = threads.Result(status="error", error=threads.Error(code, "m"))
    ended = threads.of_result(result, Places("threads")("t"), None)[-1]
    assert isinstance(ended, model.TurnEnded)
    assert ended.outcome is outcome


def test_an_unknown_status_is_never_a_success() -> None:
    result = threads.Result(status="paused")
    ended = threads.of_result(result, Places("threads")("t"), None)[-1]
    assert isinstance(ended, model.TurnEnded)
    assert ended.outcome is Outcome.UNKNOWN


@pytest.mark.parametrize("field", ["text", "delta", "content"])
def test_progress_of_any_name_tells_the_answer_so_far(field: str) -> None:
    (event,) = tell_raw(threads.ClientEnd(), "item/whatever", {"threadId": "t1", field: "..."})
    assert isinstance(event, model.MessageDelta)
    assert (event.session, event.native, event.text) == ("t1", "item/whatever", "...")


def test_progress_that_is_not_the_answer_is_a_notice_or_kept_as_it_is() -> None:
    (event,) = tell_raw(threads.ClientEnd(), "progress", {"message": "compiling"})
    assert isinstance(event, model.Noticed)
    assert (event.severity, event.title) == ("progress", "compiling")
    (event,) = tell_raw(threads.ClientEnd(), "progress", {"threadId": "t1", "percent": 3})
    assert isinstance(event, model.Unknown)
    assert event.session == "t1"
    (event,) = tell_raw(threads.ClientEnd(), "progress", [1, 2])
    assert isinstance(event, model.Unknown)
    assert event.session is None


@pytest.mark.parametrize(
    ("pieces", "content", "added"),
    [
        (["Half ", "done."], "Half done.", []),
        (["Half "], "Half done.", ["done."]),
        (["compiling"], "Done.", ["Done."]),
        ([], "Done.", []),
        (["Half"], None, []),
    ],
)
def test_an_answer_adds_what_progress_did_not_tell(
    pieces: list[str], content: str | None, added: list[str]
) -> None:
    end = threads.ClientEnd()
    for piece in pieces:
        tell_raw(end, "progress", {"threadId": "t1", "text": piece})
    result = {"threadId": "t1", "turnId": "u1", "status": "complete", "content": content}
    *told, ended = end.answered(Raw(json.dumps(result).encode()), Places("threads")("t1"))
    assert [event.text for event in told if isinstance(event, model.MessageDelta)] == added
    assert isinstance(ended, model.TurnEnded) and ended.text == content


# -- the agent's end


def test_the_agents_words_are_progress_and_become_the_content() -> None:
    voice = threads.AgentEnd("thread-1", "turn-1")
    told = plain(voice.tell(model.MessageDelta(*base(), Role.AGENT, "hi")))
    assert told == [("turn_progress", {"threadId": "thread-1", "turnId": "turn-1", "text": "hi"})]
    assert voice.tell(model.MessageDelta(*base(), Role.THOUGHT, "hm")) == []
    assert voice.text == "hi"


def test_error_numbers_become_words() -> None:
    assert threads.error_code(-32000) == "auth_required"
    assert threads.error_code(429) == "rate_limit"
    assert threads.error_code(-32099) == "error_32099"


@pytest.mark.parametrize("code", ["internal_error", "e42", ""])
def test_the_words_of_a_vague_error_tell_that_a_limit_was_reached(code: str) -> None:
    error = threads.Error(code, "Rate limit exceeded")
    result = threads.Result("t", "u", "error", error=error)
    _, ended = threads.of_result(result, Places("threads")("t"), None)
    assert isinstance(ended, model.TurnEnded)
    assert ended.outcome is Outcome.QUOTA and ended.failure is not None
    assert (ended.failure.kind, ended.failure.retryable) == (ErrorKind.RATE_LIMITED, True)
