"""What cannot be sent raises where it was made."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dragoman.agent import checks
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import UsageError


class Loud(str):
    """A kind of text."""


def test_text_of_any_kind_and_blocks_are_content() -> None:
    assert checks.block(Loud("x"), "say") == acp.TextContent(text="x")
    image = acp.ImageContent(data="aGk=", mime_type="image/png")
    assert checks.block(image, "say") is image


@pytest.mark.parametrize(
    "content",
    [42, None, b"x", {"text": "x"}, ["x"], acp.TextContent(text=7)],  # type: ignore[arg-type]
    ids=repr,
)
def test_other_content_is_a_type_error(content: object) -> None:
    with pytest.raises(TypeError, match=r"turn\.say\(\) takes text|TextContent cannot be sent"):
        checks.block(content, "say")


@pytest.mark.parametrize(
    "update",
    [
        acp.AgentMessageChunk(content=acp.TextContent(text="x")),
        acp.AgentThoughtChunk(content=acp.ImageContent(data="aGk=", mime_type="image/png")),
        acp.ToolCall(tool_call_id="c", title="x", kind="a kind of tomorrow"),
        acp.ToolCallProgress(tool_call_id="c", raw_output={"any": ["thing"]}),
        acp.Plan(entries=[acp.PlanEntry(content="a", priority="low", status="pending")]),
        acp.UsageUpdate(used=1, size=2, extra={"more": 1}),
        acp.UnknownUpdate(raw={"sessionUpdate": "of tomorrow"}),
    ],
    ids=lambda update: type(update).__name__,
)
def test_an_update_of_the_protocol_passes(update: object) -> None:
    checks.update(update)


BAD: list[Any] = [
    acp.AgentMessageChunk(content=42),  # type: ignore[arg-type]
    acp.AgentMessageChunk(content=acp.TextContent(text=None)),  # type: ignore[arg-type]
    acp.Plan(entries="do a"),  # type: ignore[arg-type]
    acp.ToolCall(tool_call_id="c", title=5),  # type: ignore[arg-type]
    acp.ToolCallProgress(tool_call_id="c", raw_output=object()),
    acp.SessionInfoUpdate(title=5),  # type: ignore[arg-type]
    acp.ToolCallUpdate(tool_call_id="c"),
    acp.TextContent(text="x"),
    "hello",
    None,
]


@pytest.mark.parametrize("update", BAD, ids=lambda update: type(update).__name__)
def test_what_a_client_could_not_read_is_a_type_error(update: object) -> None:
    with pytest.raises(TypeError, match=r"turn\.update\(\) takes an ACP update|cannot be sent"):
        checks.update(update)


def test_a_plan_is_a_list_of_entries() -> None:
    entry = acp.PlanEntry(content="b", priority="low", status="pending")
    assert [each.content for each in checks.plan(["a", entry])] == ["a", "b"]
    for wrong in ("do a", b"x", 4, None, [4]):
        with pytest.raises(TypeError, match="plan"):
            checks.plan(wrong)


def test_words_about_a_tool_call_are_those_of_the_protocol() -> None:
    checks.tool(title="x", kind="edit", status="in_progress")
    checks.tool(title="x", kind=acp.ToolKind.EDIT)
    with pytest.raises(
        UsageError, match="a tool call cannot have the kind 'frobnicate'; use one of delete"
    ):
        checks.tool(kind="frobnicate")
    with pytest.raises(UsageError, match="cannot have the status 'done'"):
        checks.tool(status="done")
    for wrong in ({"kind": 4}, {"status": 4}, {"title": 4}):
        with pytest.raises(TypeError, match="of a tool call must be text"):
            checks.tool(**wrong)
    with pytest.raises(TypeError, match="locations must be a list"):
        checks.listed("/a", "the locations")


def test_a_permission_is_asked_for_a_tool_call_with_options() -> None:
    call = acp.ToolCallUpdate(tool_call_id="c", title="T")
    option = acp.PermissionOption(option_id="a", name="A", kind="allow_once")
    checks.permission(call, [option])
    for bad, options in ((42, [option]), (call, "yes"), (call, ["yes"]), (call, None)):
        with pytest.raises(TypeError):
            checks.permission(bad, options)


@pytest.mark.parametrize("field", acp.ToolCallUpdate.__struct_fields__)
def test_no_field_of_a_tool_call_is_sent_unchecked_with_a_question(field: str) -> None:
    good: dict[str, Any] = {"tool_call_id": "c", "title": "T", "kind": "edit"}
    with pytest.raises(TypeError, match="cannot be sent"):
        checks.permission(acp.ToolCallUpdate(**{**good, field: object()}), [])


def test_the_entries_of_a_plan_have_words_of_the_protocol() -> None:
    entry = acp.PlanEntry(content="a", priority="high", status="pending")
    assert checks.plan([entry]) == [entry]
    for bad in (
        acp.PlanEntry(content="a", priority="highest", status="pending"),
        acp.PlanEntry(content="a", priority="high", status="doing"),
    ):
        with pytest.raises(UsageError, match="use one of"):
            checks.plan([bad])
    with pytest.raises(TypeError, match="not dict"):
        checks.plan({"a": "b"})


def test_a_usage_counts_from_nothing_up() -> None:
    checks.update(acp.UsageUpdate(used=0, size=0))
    with pytest.raises(UsageError, match="-5 of 1"):
        checks.update(acp.UsageUpdate(used=-5, size=1))


def test_text_and_handlers_are_what_they_have_to_be() -> None:
    checks.text("/a", "the path")
    with pytest.raises(TypeError, match=r"the path must be text, not \w*Path .*: use str\(\)"):
        checks.text(Path("/a"), "the path")
    checks.handler(len, "agent.prompt", "turn")
    checks.handler(min, "agent.prompt", "turn")  # It does not tell what it takes.

    async def without() -> None: ...
    async def pieces(turn: object) -> AsyncIterator[str]:
        yield "a"

    with pytest.raises(UsageError, match=r"write `async def without\(session, replay\):`"):
        checks.handler(without, "agent.load_session", "session", "replay")
    checks.handler(without, "agent.logout")
    with pytest.raises(UsageError, match=r"must not `yield`: send each .*turn\.say"):
        checks.handler(pieces, "agent.prompt", "turn")
    for path in ("/a", "C:\\a", "\\\\host\\share\\a"):
        checks.file_path(path)
    with pytest.raises(UsageError, match=r"write str\(turn\.session\.cwd / 'a/b'\)"):
        checks.file_path("a/b")
    with pytest.raises(UsageError, match="decorate one with @agent.prompt"):
        checks.handler("x", "agent.prompt")


@pytest.mark.parametrize("answer", ["hello", "", True, 0, acp.PromptResponse(stop_reason="done")])
def test_a_handler_that_returns_no_end_is_an_error(answer: object) -> None:
    with pytest.raises(UsageError, match="a prompt handler"):
        checks.end(answer)


def test_a_handler_ends_a_turn_with_a_stop_reason_or_nothing() -> None:
    assert checks.end(None).stop_reason == "end_turn"
    assert checks.end("refusal").stop_reason == "refusal"
    whole = acp.PromptResponse(stop_reason="max_tokens")
    assert checks.end(whole) is whole
