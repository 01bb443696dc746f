"""What items mean."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
from msgspec import UNSET, Raw

from dragoman.dialects.codex import items, shapes
from dragoman.events import model, parts
from dragoman.events.model import EventEnvelope
from dragoman.events.words import ChangeStage, FileOp, Role, ToolKind, ToolStatus


def place() -> EventEnvelope:
    here = EventEnvelope(model.Source("codex", "c"), itertools.count(1), "t")
    here.turn = "u"
    return here


def events_of(final: bool = True, **fields: Any) -> list[model.Event]:
    item = msgspec.convert({"id": "i", **fields}, type=shapes.Item)
    return items.of_item(item, place(), b"raw", "item/completed", final=final)


def only(final: bool = True, **fields: Any) -> Any:
    (event,) = events_of(final, **fields)
    assert (event.session, event.turn, event.raw) == ("t", "u", b"raw")
    assert event.native == f"item/completed:{fields['type']}"
    return event


def test_an_agents_message_is_empty_when_it_begins_and_whole_when_it_ends() -> None:
    begun = only(False, type="agentMessage", text="")
    assert (begun.role, begun.message_id, begun.blocks, begun.final) == (
        Role.AGENT,
        "i",
        UNSET,
        False,
    )
    ended = only(type="agentMessage", text="said")
    assert (ended.blocks, ended.final) == ((parts.Text("said"),), True)


def test_a_users_message_has_every_kind_of_input() -> None:
    event = only(
        type="userMessage",
        content=[
            {"type": "text", "text": "look"},
            {"type": "image", "url": "data:image/png;base64,AAAA"},
            {"type": "audio", "url": "data:audio/wav;base64,BBBB"},
            {"type": "image", "url": "https://example.org/x.png"},
            {"type": "mention", "name": "a", "path": "/a"},
            "nonsense",
        ],
    )
    assert event.role is Role.USER
    assert event.blocks == (
        parts.Text("look"),
        parts.Image("AAAA", "image/png"),
        parts.Audio("BBBB", "audio/wav"),
        parts.Link("https://example.org/x.png", "image"),
        parts.OtherBlock("mention", {"type": "mention", "name": "a", "path": "/a"}),
    )
    assert only(type="userMessage", content=None).blocks == ()


def test_thoughts_are_the_parts_of_the_summary_and_what_was_thought() -> None:
    assert only(type="reasoning", summary=["a", "b"], content=[]).blocks == (parts.Text("a\n\nb"),)
    assert only(type="reasoning", summary=[], content=["raw", 3]).blocks == (parts.Text("raw"),)
    assert only(type="reasoning").blocks == ()


def test_a_plan_is_reported_when_it_is_ready() -> None:
    (begun,) = events_of(False, type="plan", text="")
    assert isinstance(begun, model.PlanDelta) and (begun.text, begun.plan_id) == ("", "i")
    event = only(type="plan", text="# Plan")
    assert (event.text, event.plan_id) == ("# Plan", "i")


def test_a_compaction_begins_and_ends() -> None:
    assert only(False, type="contextCompaction").status == "in_progress"
    assert only(type="contextCompaction").status == "completed"


def test_a_command_has_its_output_and_exit_code() -> None:
    event = only(
        type="commandExecution",
        command="bash -lc x",
        commandActions=[{"type": "unknown"}],
        status="completed",
        aggregatedOutput="out",
        exitCode=3,
    )
    assert (event.title, event.kind, event.status) == (
        "bash -lc x",
        ToolKind.EXECUTE,
        ToolStatus.COMPLETED,
    )
    assert (event.input, event.output, event.exit_code) == ({"command": "bash -lc x"}, "out", 3)


@pytest.mark.parametrize(
    ("actions", "kind"),
    [
        (["read"], ToolKind.READ),
        (["search"], ToolKind.SEARCH),
        (["listFiles", "search"], ToolKind.SEARCH),
        (["read", "search"], ToolKind.READ),
        (["read", "unknown"], ToolKind.EXECUTE),
        ([None], ToolKind.EXECUTE),
        ([], ToolKind.EXECUTE),
    ],
)
def test_a_command_reads_only_if_every_part_of_it_does(actions: list[Any], kind: ToolKind) -> None:
    assert items.command_kind([{"type": action} for action in actions]) is kind


MOVED = "@@ -1 +1 @@\n-x\n+y\n\n\nMoved to: /c"


def test_a_change_of_files_tells_every_file() -> None:
    tool, files = events_of(
        type="fileChange",
        status="completed",
        changes=[
            {"path": "/a", "kind": {"type": "add"}, "diff": "+"},
            {"path": "/b", "kind": {"type": "update", "move_path": "/c"}, "diff": MOVED},
            {"path": "/d", "kind": {"type": "delete"}, "diff": "-"},
            {"path": "/e", "kind": "odd", "diff": ""},
        ],
    )
    assert isinstance(tool, model.ToolChanged)
    assert (tool.title, tool.kind) == ("Edit /a, /b, /d, /e", ToolKind.EDIT)
    assert isinstance(files, model.FilesChanged)
    assert (files.stage, files.tool_id) == (ChangeStage.APPLIED, "i")
    assert [(c.path, c.op, c.old_path) for c in files.changes] == [
        ("/a", FileOp.ADD, None),
        ("/c", FileOp.MOVE, "/b"),
        ("/d", FileOp.DELETE, None),
        ("/e", FileOp.UNKNOWN, None),
    ]
    # The field is called diff, and is one only for a file that stays.
    assert [(c.old_text, c.new_text, c.diff) for c in files.changes] == [
        (None, "+", None),
        (None, None, "@@ -1 +1 @@\n-x\n+y\n"),
        ("-", None, None),
        (None, None, ""),
    ]


@pytest.mark.parametrize(
    ("status", "stage"),
    [
        ("inProgress", ChangeStage.PROPOSED),
        ("declined", ChangeStage.DECLINED),
        ("failed", ChangeStage.FAILED),
        ("new word", ChangeStage.UNKNOWN),
    ],
)
def test_a_change_is_made_or_not(status: str, stage: ChangeStage) -> None:
    changes = [{"path": "/a", "kind": {"type": "add"}, "diff": "+"}]
    _, files = events_of(type="fileChange", status=status, changes=changes)
    assert isinstance(files, model.FilesChanged)
    assert files.stage is stage


@pytest.mark.parametrize(
    ("fields", "title", "kind"),
    [
        ({"type": "fileChange"}, "Edit files", ToolKind.EDIT),
        ({"type": "mcpToolCall", "server": "s", "tool": "t"}, "s: t", ToolKind.OTHER),
        ({"type": "webSearch", "query": "q"}, "Search the web: q", ToolKind.FETCH),
        ({"type": "imageView", "path": "/p"}, "Look at /p", ToolKind.READ),
        ({"type": "dynamicToolCall", "tool": "t"}, "t", ToolKind.OTHER),
        ({"type": "sleep"}, "sleep", ToolKind.OTHER),
        ({"type": "newInTheNextVersion"}, "newInTheNextVersion", ToolKind.OTHER),
    ],
)
def test_every_other_item_is_a_tool_with_a_title(
    fields: dict[str, Any], title: str, kind: ToolKind
) -> None:
    event = only(**fields)
    assert (event.title, event.kind, event.status) == (title, kind, ToolStatus.COMPLETED)


def test_a_tool_that_runs_has_no_result_yet() -> None:
    event = only(False, type="mcpToolCall", arguments={"a": 1})
    assert event.status is ToolStatus.RUNNING
    assert (event.input, event.output, event.exit_code, event.error) == (
        {"a": 1},
        UNSET,
        UNSET,
        UNSET,
    )


def test_a_tool_that_failed_says_why() -> None:
    assert only(type="mcpToolCall", error={"message": "no"}).error == "no"
    assert only(type="mcpToolCall", error="no").error == "no"


@pytest.mark.parametrize("kind", ["enteredReviewMode", "exitedReviewMode", "hookPrompt"])
def test_an_item_without_a_common_word_is_kept(kind: str) -> None:
    assert isinstance(only(type=kind), model.Unknown)


def test_an_item_of_a_history_that_is_not_as_expected_is_kept() -> None:
    (event,) = items.of_history(Raw(b'{"type": 3}'), place(), "thread/load")
    assert isinstance(event, model.Unknown)
    assert event.raw == b'{"type": 3}'
    (event,) = items.of_history(
        Raw(b'{"type": "agentMessage", "id": "i", "text": "x"}'), place(), "n"
    )
    assert isinstance(event, model.MessageSet)
