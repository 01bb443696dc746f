"""The chained dialect: its document's examples, its chains, and every alternative name."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from dragoman.dialects.legacy import chained
from dragoman.events import model
from dragoman.events.parts import Image, Text
from dragoman.events.words import ErrorKind, Outcome, Role, ToolStatus, TurnPhase
from tests.fixtures.documents import load
from tests.unit.dialects.document_reading import (
    Places,
    answer,
    base,
    includes,
    opening,
    plain,
    round_trip,
    tell,
    tell_raw,
)

EXAMPLES = load("chained")
SHAPES: dict[str, Any] = {
    "list": chained.ListSessions,
    "sessions": chained.Sessions,
    "page": chained.Sessions,
    "create": chained.CreateSession,
    "created": chained.Created,
    "prompt": chained.Send,
    "prompt_image": chained.Send,
    "sent": chained.Sent,
    "sent_request": chained.Sent,
    "sent_message": chained.Sent,
    "delta": chained.Delta,
    "tool_start": chained.ToolStart,
    "tool_result": chained.ToolResult,
    "tool_failed": chained.ToolResult,
    "reasoning": chained.Reasoning,
    "status": chained.Status,
    "error": chained.ErrorNote,
    "list_bare": chained.ListSessions,
    "create_bare": chained.CreateSession,
    "prompt_bare": chained.Send,
    "sent_bare": chained.Sent,
    "delta_reasoning": chained.Delta,
    "delta_tool": chained.Delta,
    "reasoning_summary": chained.Reasoning,
    "status_processing": chained.Status,
    "status_error": chained.Status,
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_of_the_document_is_read_and_written_as_it_is(name: str) -> None:
    written = round_trip(EXAMPLES[name], SHAPES[name])
    if name.endswith("_bare"):
        assert includes(written, EXAMPLES[name].body)
    else:
        assert written == EXAMPLES[name].body


# -- chains


def test_the_chains_are_the_documents() -> None:
    end = chained.ClientEnd()
    assert [m for m, _ in end.listing(None)] == [
        "session/list",
        "sessions/list",
        "list_sessions",
        "listSessions",
    ]
    assert [m for m, _ in opening(end)] == [
        "session/create",
        "session/start",
        "create_session",
        "startSession",
    ]
    assert [m for m, _ in end.prompting("s", [Text("x")])] == [
        "prompt/send",
        "message/send",
        "chat/send",
        "sendMessage",
    ]


def test_the_family_that_answered_is_tried_first() -> None:
    end = chained.ClientEnd()
    end.worked("listSessions")
    assert [m for m, _ in opening(end)] == [
        "startSession",
        "session/create",
        "session/start",
        "create_session",
    ]
    assert next(iter(end.prompting("s", [Text("x")])))[0] == "sendMessage"
    end.worked("something else")
    assert end.family == 3


def test_limit_and_offset_are_a_cursor() -> None:
    end = chained.ClientEnd()
    first = EXAMPLES["list"]
    assert plain(end.listing(None))[0] == (first.method, first.body)
    sessions, cursor = end.listed(Raw(EXAMPLES["page"].raw))
    assert [s.id for s in sessions] == ["session-uuid-124"] and cursor == "50"
    assert plain(end.listing(cursor))[0][1] == {"limit": 50, "offset": 50}
    assert end.listed(Raw(EXAMPLES["sessions"].raw))[1] is None


def test_the_messages_of_a_listed_session_are_its_history() -> None:
    end = chained.ClientEnd()
    end.listed(Raw(EXAMPLES["page"].raw))
    assert opening(end, "session-uuid-124") == []
    id, events = end.opened(None, "session-uuid-124", "load", Places("chained"))
    assert id == "session-uuid-124"
    assert [(e.role, e.text, e.replay) for e in events if isinstance(e, model.MessageDelta)] == [
        (Role.USER, "What is the capital of France?", True),
        (Role.AGENT, "Paris", True),
    ]
    assert end.opened(None, "session-uuid-124", "resume", Places("chained"))[1] == []


def test_a_message_with_an_unknown_role_is_kept_in_the_history() -> None:
    session = chained.Session("s", messages=[chained.SessionMessage("system", "be nice")])
    (event,) = chained.history(session, Places("chained")("s"))
    assert isinstance(event, model.MessageDelta)
    assert event.block is not None and event.text == ""


def test_a_session_is_created_with_a_title_and_a_context() -> None:
    ((_, params), *_) = opening(chained.ClientEnd(), metadata={"title": "New session", "a": 1})
    assert params == {"title": "New session", "context": {"cwd": "/project", "a": 1}}
    opened = chained.ClientEnd().opened(
        Raw(EXAMPLES["created"].raw), None, "new", Places("chained")
    )
    assert opened == ("session-uuid-456", [])


def test_a_prompt_is_sent_as_the_document_shows_with_images_attached() -> None:
    end = chained.ClientEnd()
    prompt, image = EXAMPLES["prompt"], EXAMPLES["prompt_image"]
    sent = end.prompting("session-uuid-123", [Text("What is the capital of France?")])
    assert plain(sent)[0] == (prompt.method, prompt.body)
    sent = end.prompting("session-uuid-123", [Text("What is this?"), Image("aGk=", "image/png")])
    assert plain(sent)[0] == (image.method, image.body)


# -- answers and notifications


@pytest.mark.parametrize("name", ["sent", "sent_request", "sent_message"])
def test_an_acknowledgement_names_the_turn_and_ends_nothing(name: str) -> None:
    places = Places("chained")
    (event,) = answer(chained.ClientEnd(), EXAMPLES[name], places)
    assert isinstance(event, model.TurnState)
    assert (event.phase, event.turn) == (TurnPhase.RUNNING, "turn-uuid-789")


def test_an_answer_that_calls_itself_done_ends_the_turn() -> None:
    end = chained.ClientEnd()
    (event,) = end.answered(Raw(b'{"status": "completed"}'), Places("chained")("s"))
    assert isinstance(event, model.TurnEnded)
    (event,) = end.answered(Raw(b"null"), Places("chained")("s"))
    assert isinstance(event, model.TurnState)


def renamed(name: str, method: str) -> Any:
    return tell_raw(chained.ClientEnd(), method, EXAMPLES[name].body)[0]


@pytest.mark.parametrize("method", chained.TEXT)
def test_text_is_known_under_every_name(method: str) -> None:
    event = renamed("delta", method)
    assert isinstance(event, model.MessageDelta)
    assert (event.role, event.text, event.session) == (Role.AGENT, "Paris", "session-uuid-123")
    assert event.turn == "turn-uuid-789"


@pytest.mark.parametrize("method", chained.TOOL_START)
def test_the_start_of_a_tool_is_known_under_every_name(method: str) -> None:
    event = renamed("tool_start", method)
    assert isinstance(event, model.ToolChanged)
    assert (event.tool_id, event.status) == ("tool-call-abc", ToolStatus.RUNNING)
    assert event.input == {"query": "Paris population"}


@pytest.mark.parametrize("method", chained.TOOL_RESULT)
def test_the_result_of_a_tool_is_known_under_every_name(method: str) -> None:
    event = renamed("tool_result", method)
    assert isinstance(event, model.ToolChanged)
    assert (event.status, event.output) == (ToolStatus.COMPLETED, "2.1 million (city proper)")
    failed = renamed("tool_failed", method)
    assert (failed.status, failed.error) == (ToolStatus.FAILED, "no network")


@pytest.mark.parametrize("method", chained.REASONING)
def test_reasoning_is_known_under_every_name(method: str) -> None:
    event = renamed("reasoning", method)
    assert isinstance(event, model.MessageDelta)
    assert (event.role, event.part) == (Role.THOUGHT, "raw")


@pytest.mark.parametrize("method", chained.STATUS)
def test_a_status_under_every_name_ends_the_turn(method: str) -> None:
    event = renamed("status", method)
    assert isinstance(event, model.TurnEnded)
    assert event.outcome is Outcome.OK


def test_the_type_of_a_delta_decides() -> None:
    end = chained.ClientEnd()
    (event,) = tell_raw(end, "message/delta", {"delta": "hm", "type": "reasoning"})
    assert isinstance(event, model.MessageDelta) and event.role is Role.THOUGHT
    (event,) = tell_raw(end, "message/delta", {"delta": "out", "type": "tool"})
    assert isinstance(event, model.ToolDelta) and event.text == "out"


def test_processing_ends_nothing_and_an_unknown_status_neither() -> None:
    end = chained.ClientEnd()
    (event,) = tell_raw(end, "turn/status", {"sessionId": "s", "status": "processing"})
    assert isinstance(event, model.TurnState)
    (event,) = tell_raw(end, "turn/status", {"sessionId": "s", "status": "dreaming"})
    assert isinstance(event, model.Unknown)


def test_a_failed_status_says_why() -> None:
    params = {"sessionId": "s", "requestId": "r1", "status": "error", "detail": "it broke"}
    (event,) = tell_raw(chained.ClientEnd(), "turn/status", params)
    assert isinstance(event, model.TurnEnded)
    assert (event.outcome, event.turn) == (Outcome.FAILED, "r1")
    assert event.failure is not None and event.failure.message == "it broke"


def test_an_error_ends_the_turn() -> None:
    reported, ended = tell(chained.ClientEnd(), EXAMPLES["error"])
    assert isinstance(reported, model.ErrorReported) and isinstance(ended, model.TurnEnded)
    assert ended.outcome is Outcome.QUOTA
    assert ended.failure is not None and ended.failure.kind is ErrorKind.RATE_LIMITED


def test_a_late_word_about_an_ended_turn_does_not_end_the_next() -> None:
    end = chained.ClientEnd()
    places = Places("chained")
    tell(end, EXAMPLES["error"], places)
    (late,) = tell(end, EXAMPLES["status"], places)
    assert isinstance(late, model.Unknown)


def test_the_answer_to_a_prompt_may_name_the_id_of_an_ended_turn_again() -> None:
    end = chained.ClientEnd()
    places = Places("chained")
    tell(end, EXAMPLES["status"], places)
    end.answered(Raw(EXAMPLES["sent"].raw), places("session-uuid-123"))
    (said,) = tell(end, EXAMPLES["delta"], places)
    (ended,) = tell(end, EXAMPLES["status"], places)
    assert isinstance(said, model.MessageDelta) and isinstance(ended, model.TurnEnded)
    (late,) = tell(end, EXAMPLES["status"], places)
    assert isinstance(late, model.Unknown)


@pytest.mark.parametrize(
    ("method", "params"), [("message/delta", {"delta": 7}), ("message/dance", {})]
)
def test_what_is_not_known_or_not_as_expected_is_kept(method: str, params: Any) -> None:
    (event,) = tell_raw(chained.ClientEnd(), method, params)
    assert isinstance(event, model.Unknown)


# -- the agent's end


def voice(family: int = 0) -> chained.AgentEnd:
    return chained.AgentEnd("session-uuid-123", "turn-uuid-789", family)


def test_the_agents_words_are_the_documents() -> None:
    start = model.ToolChanged(
        *base(), "tool-call-abc", title="search_web", input={"query": "Paris population"}
    )
    done = model.ToolChanged(
        *base(), "tool-call-abc", status=ToolStatus.COMPLETED, output="2.1 million (city proper)"
    )
    speaking = voice()
    for name, event in (
        ("delta", model.MessageDelta(*base(), Role.AGENT, "Paris")),
        ("reasoning", model.MessageDelta(*base(), Role.THOUGHT, "First, I need to consider...")),
        ("tool_start", start),
        ("tool_result", done),
    ):
        example = EXAMPLES[name]
        assert plain(speaking.tell(event)) == [(example.method, example.body)]
    assert plain([speaking.ended("completed")]) == [("turn/status", EXAMPLES["status"].body)]
    failed = speaking.failed(-32000, "Rate limit exceeded")
    assert plain([failed]) == [("error", EXAMPLES["error"].body)]


@pytest.mark.parametrize(
    ("family", "names"),
    [
        (1, ["stream/chunk", "thinking/delta", "message/status"]),
        (3, ["text/delta", "thinking/delta", "completion/status"]),
    ],
)
def test_an_agent_answers_in_the_family_of_its_client(family: int, names: list[str]) -> None:
    speaking = voice(family)
    told = [
        *speaking.tell(model.MessageDelta(*base(), Role.AGENT, "a")),
        *speaking.tell(model.MessageDelta(*base(), Role.THOUGHT, "b")),
        speaking.ended("completed"),
    ]
    assert [method for method, _ in told] == names


def test_a_tool_that_fails_at_once_is_started_first() -> None:
    event = model.ToolChanged(
        *base(), "t", title="x", status=ToolStatus.FAILED, content=(Text("out"),)
    )
    told = plain(voice().tell(event))
    assert [method for method, _ in told] == ["tool/start", "tool/result"]
    assert told[1][1]["error"] == "failed" and told[1][1]["output"] == "out"
    assert voice().tell(model.PlanSet(*base())) == []


def test_families_are_known_by_any_of_their_names() -> None:
    assert [chained.family_of(m) for m in ("chat/send", "session/start", "nothing")] == [2, 1, None]


@pytest.mark.parametrize(
    ("code", "message", "kind"),
    [
        (-32603, "Rate limit exceeded", ErrorKind.RATE_LIMITED),
        (-32603, "It broke", ErrorKind.INTERNAL),
        (-32000, "Rate limit exceeded", ErrorKind.RATE_LIMITED),
        (401, "No rate limit, but a login", ErrorKind.AUTH_REQUIRED),
    ],
)
def test_the_words_of_an_error_refine_a_code_that_says_little(
    code: int, message: str, kind: ErrorKind
) -> None:
    params = {"sessionId": "s", "error": {"code": code, "message": message}}
    reported, ended = tell_raw(chained.ClientEnd(), "error", params)
    assert (reported.failure.kind, ended.failure.kind) == (kind, kind)
