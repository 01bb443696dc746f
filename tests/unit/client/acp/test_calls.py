"""What an agent told of its tool calls, for the questions that tell less."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from dragoman.client.acp import calls
from dragoman.client.acp.calls import Calls, question_of
from dragoman.dialects.acp import v1 as acp


def begun(**fields: Any) -> acp.ToolCall:
    told = {"sessionUpdate": "tool_call", "toolCallId": "c", "title": "It", **fields}
    return msgspec.convert(told, acp.ToolCall)


def changed(**fields: Any) -> acp.ToolCallProgress:
    told = {"sessionUpdate": "tool_call_update", "toolCallId": "c", **fields}
    return msgspec.convert(told, acp.ToolCallProgress)


def asked(**fields: Any) -> acp.RequestPermissionRequest:
    call = msgspec.convert({"toolCallId": "c", **fields}, acp.ToolCallUpdate)
    return acp.RequestPermissionRequest(session_id="s", tool_call=call, options=())


def completed(
    question: acp.RequestPermissionRequest, updates: Iterable[acp.SessionUpdate]
) -> acp.ToolCallUpdate:
    call: acp.ToolCallUpdate = question_of(question, updates).tool_call
    return call


def test_a_question_with_an_id_alone_means_what_was_reported_before() -> None:
    known = Calls()
    known.heard(begun(kind="edit", locations=[{"path": "/w/a"}]))
    known.heard(changed(title="Change a", rawInput={"path": "/w/a", "content": "x"}))
    known.heard(changed(locations=[], rawInput={}, title=""))
    call = known.question(asked()).tool_call
    assert (call.title, call.kind) == ("Change a", "edit")
    assert call.raw_input == {"path": "/w/a", "content": "x"}
    assert call.locations is not None and call.locations[0].path == "/w/a"


def test_what_the_question_says_itself_counts() -> None:
    call = completed(
        asked(title="New", kind="execute", rawInput={"command": "b"}),
        [begun(kind="other", rawInput={"command": "a"})],
    )
    assert (call.title, call.kind, call.raw_input) == ("New", "execute", {"command": "b"})


@pytest.mark.parametrize(
    ("earlier", "question", "kind"),
    [
        ("edit", {"kind": "read"}, "edit"),
        ("execute", {"kind": "search", "rawInput": {"path": "/w/a"}}, "execute"),
        ("other", {"kind": "read"}, "other"),
        ("other", {"kind": "read", "locations": [{"path": "/w/a"}]}, "read"),
        ("read", {"kind": "search"}, "search"),
        ("read", {"kind": "edit"}, "edit"),
        (None, {"kind": "read"}, "read"),
        ("read", {}, "read"),
    ],
)
def test_a_call_does_not_become_a_reading_by_being_asked_about(
    earlier: str | None, question: dict[str, Any], kind: str
) -> None:
    assert completed(asked(**question), [begun(kind=earlier)]).kind == kind


def test_a_question_about_an_unknown_call_stays_as_it_is() -> None:
    question = asked(kind="read")
    assert Calls().question(question).tool_call is question.tool_call
    another = begun(toolCallId="another", kind="edit")
    assert completed(question, [another]) is question.tool_call


def test_only_open_calls_are_remembered_and_not_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(calls, "MAX_CALLS", 2)
    known = Calls()
    known.heard(begun(kind="edit"))
    known.heard(changed(status="completed"))
    assert len(known) == 0
    for name in ("1", "2", "3"):
        known.heard(begun(toolCallId=name, kind="edit"))
    assert len(known) == 2
    assert known.question(asked(toolCallId="1")).kind == "other"
    assert known.question(asked(toolCallId="3")).kind == "edit"


def written(text: str, **fields: Any) -> acp.ToolCall:
    block = {"type": "content", "content": {"type": "text", "text": text}}
    return begun(kind="edit", content=[block], **fields)


def test_an_input_that_stands_as_json_in_the_announcement_is_the_input_of_the_question() -> None:
    call = completed(asked(title="Write"), [written('{"path": "/w/a", "content": "x"}')])
    assert call.raw_input == {"path": "/w/a", "content": "x"}


@pytest.mark.parametrize(
    "update",
    [
        written('{"path": "/w/a"'),
        written("[1]"),
        written("plain words"),
        written("{}"),
        written('{"path": "/w/a"}', status="in_progress"),
        begun(content=[{"type": "diff", "path": "/w/a", "newText": "{}"}]),
    ],
    ids=["cut off", "a list", "words", "empty", "may be a result", "a diff"],
)
def test_other_content_is_not_taken_for_an_input(update: acp.ToolCall) -> None:
    assert completed(asked(title="Write"), [update]).raw_input is None


def test_an_input_that_was_reported_goes_before_one_that_was_written() -> None:
    call = completed(asked(), [written('{"path": "/w/b"}', rawInput={"path": "/w/a"})])
    assert call.raw_input == {"path": "/w/a"}


def test_a_request_becomes_a_question_whose_kind_is_other_where_the_agent_did_not_say() -> None:
    call = acp.ToolCallUpdate(tool_call_id="t")
    options = [acp.PermissionOption(option_id="yes", name="Yes", kind="allow_once")]
    request = acp.RequestPermissionRequest(session_id="s", tool_call=call, options=options)
    question = Calls().question(request, "q1")
    assert (question.session_id, question.tool_call_id, question.request_id) == ("s", "t", "q1")
    assert (question.title, question.kind) == ("", "other")
    assert question.options == options
