"""What cannot be sent raises where it was made."""

from __future__ import annotations

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
    with pytest.raises(TypeError, match=r"turn\.update\(\) takes an update|cannot be sent"):
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
    with pytest.raises(UsageError, match="no kind 'frobnicate' of a tool call; there are delete"):
        checks.tool(kind="frobnicate")
    with pytest.raises(UsageError, match="no status 'done'"):
        checks.tool(status="done")
    for wrong in ({"kind": 4}, {"status": 4}, {"title": 4}):
        with pytest.raises(TypeError, match="of a tool call is text"):
            checks.tool(**wrong)
    with pytest.raises(TypeError, match="locations are a list"):
        checks.listed("/a", "the locations")
