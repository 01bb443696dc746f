"""Events in the words of ACP."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import UNSET

from dragoman.bridge.speaking import SHOWN_OUTPUT, Speaker
from dragoman.dialects.acp import v1 as acp
from dragoman.events import model, parts
from dragoman.events.words import (
    FileOp,
    Outcome,
    PlanStatus,
    Role,
    Stage,
    ToolKind,
    ToolStatus,
)

BASE = (model.Source("codex", "c1"), 1, "s", "t", "native", None)


def delta(role: Role, text: str = "", *, replay: bool = False, **fields: Any) -> model.Event:
    return model.MessageDelta(*BASE, replay, role, text, **fields)


def whole(role: Role, message_id: str, *blocks: parts.Block, replay: bool = False) -> model.Event:
    return model.MessageSet(*BASE, replay, role, message_id, blocks)


def tool(tool_id: str = "x", **fields: Any) -> model.Event:
    return model.ToolChanged(*BASE, False, tool_id, **fields)


def printed(text: str, stream: str = "output") -> model.Event:
    return model.ToolDelta(*BASE, False, "x", stream, text)


def files(*changes: parts.FileChange, tool_id: str | None = "x") -> model.Event:
    return model.FilesChanged(*BASE, False, changes, Stage.APPLIED, tool_id)


def said(speaker: Speaker, *events: model.Event) -> list[Any]:
    return [update for event in events for update in speaker.updates(event)]


def only(event: model.Event) -> Any:
    (update,) = Speaker().updates(event)
    return update


def texts(update: Any) -> list[str]:
    """The texts among a tool call's content."""
    return [
        item.content.text
        for item in update.content
        if isinstance(item, acp.Content) and isinstance(item.content, acp.TextContent)
    ]


# -- messages


@pytest.mark.parametrize(
    ("role", "kind"),
    [(Role.AGENT, acp.AgentMessageChunk), (Role.THOUGHT, acp.AgentThoughtChunk)],
)
def test_a_piece_of_a_message_is_a_chunk_of_its_role(role: Role, kind: Any) -> None:
    update = only(delta(role, "hi", message_id="m"))
    assert update == kind(content=acp.TextContent(text="hi"), message_id="m")


def test_a_piece_that_is_no_text_keeps_its_content() -> None:
    update = only(delta(Role.AGENT, block=parts.Audio("aGk=", "audio/wav")))
    assert update.content == acp.AudioContent(data="aGk=", mime_type="audio/wav")


def test_a_client_does_not_hear_itself_but_in_a_replay() -> None:
    text = parts.Text("hi")
    assert said(Speaker(), delta(Role.USER, "hi"), whole(Role.USER, "m", text)) == []
    (update,) = said(Speaker(), delta(Role.USER, "hi", replay=True))
    assert isinstance(update, acp.UserMessageChunk)
    (update,) = said(Speaker(), whole(Role.USER, "m", text, replay=True))
    assert isinstance(update, acp.UserMessageChunk)


def test_a_whole_message_is_said_only_if_it_was_not_streamed() -> None:
    speaker = Speaker()
    updates = said(
        speaker,
        delta(Role.AGENT, "a", message_id="m1"),
        whole(Role.AGENT, "m1", parts.Text("a")),
        whole(Role.AGENT, "m2", parts.Text("b"), parts.Text("c")),
        whole(Role.AGENT, "m2", parts.Text("bc")),
    )
    assert [update.content.text for update in updates] == ["a", "b", "c"]


# -- tools


def test_a_tool_is_announced_once_and_then_updated() -> None:
    speaker = Speaker()
    first, second = said(
        speaker,
        tool(title="List", kind=ToolKind.EXECUTE, status=ToolStatus.RUNNING, input={"c": "ls"}),
        tool(status=ToolStatus.COMPLETED, locations=(parts.Location("/a", 2),)),
    )
    assert first == acp.ToolCall(
        tool_call_id="x",
        title="List",
        kind="execute",
        status="in_progress",
        raw_input={"c": "ls"},
    )
    assert second == acp.ToolCallProgress(
        tool_call_id="x",
        status="completed",
        locations=[acp.ToolCallLocation(path="/a", line=2)],
    )


def test_a_tool_without_a_title_is_called_by_its_name_or_its_id() -> None:
    assert only(tool(name="shell")).title == "shell"
    assert only(tool()).title == "x"


@pytest.mark.parametrize(
    ("status", "word"),
    [
        (ToolStatus.PENDING, "pending"),
        (ToolStatus.PAUSED, "in_progress"),
        (ToolStatus.FAILED, "failed"),
        (ToolStatus.DECLINED, "failed"),
        (ToolStatus.CANCELLED, "failed"),
        (ToolStatus.OTHER, None),
    ],
)
def test_a_status_without_a_word_of_its_own_is_never_called_completed(
    status: ToolStatus, word: str | None
) -> None:
    assert only(tool(status=status)).status == word


def test_every_update_repeats_what_a_tool_has_shown_so_far() -> None:
    speaker = Speaker()
    _, more, changed = said(
        speaker,
        tool(content=(parts.Text("first"),)),
        printed("out"),
        files(parts.FileChange("/a", FileOp.MODIFY, "x", "y")),
    )
    assert texts(more) == ["first", "out"]
    assert changed.content == [
        acp.Content(content=acp.TextContent(text="first")),
        acp.Diff(path="/a", old_text="x", new_text="y"),
        acp.Content(content=acp.TextContent(text="out")),
    ]


def test_a_tools_error_is_shown_behind_its_output() -> None:
    speaker = Speaker()
    updates = said(speaker, printed("out"), tool(status=ToolStatus.FAILED, error="no such file"))
    assert texts(updates[-1]) == ["out", "no such file"]


def test_a_tool_that_told_its_output_only_at_the_end_shows_it() -> None:
    update = only(tool(status=ToolStatus.COMPLETED, output="all of it"))
    assert texts(update) == ["all of it"]
    assert update.raw_output == "all of it"


def test_long_output_is_not_repeated_for_every_line_and_is_complete_at_the_end() -> None:
    speaker = Speaker()
    lines = [f"{number:04}\n" for number in range(1000)]
    updates = said(speaker, *(printed(line) for line in lines))
    assert 1 < len(updates) < 100
    (last,) = said(speaker, tool(status=ToolStatus.COMPLETED))
    assert texts(last) == ["".join(lines)]


def test_output_beyond_what_is_shown_still_ends_with_its_newest_lines() -> None:
    speaker = Speaker()
    said(speaker, printed("a" * SHOWN_OUTPUT), printed("b" * 10))
    (last,) = said(speaker, tool(status=ToolStatus.COMPLETED))
    assert texts(last) == ["a" * (SHOWN_OUTPUT - 10) + "b" * 10]


def test_output_beyond_what_is_shown_goes_on_being_shown_while_it_grows() -> None:
    speaker = Speaker()
    said(speaker, printed("a" * SHOWN_OUTPUT))
    updates = said(speaker, *(printed("b" * 1024) for _ in range(64)))
    assert 1 < len(updates) < 20
    assert texts(updates[-1])[0].endswith("b" * 1024)


def test_what_a_tool_reads_is_not_what_it_prints() -> None:
    assert said(Speaker(), printed("secret", "stdin")) == []


def test_an_item_of_a_running_tool_is_added_and_a_terminal_of_the_peer_is_not() -> None:
    speaker = Speaker()
    item = model.ToolDelta(*BASE, False, "x", "content", "", parts.Text("one"))
    terminal = model.ToolDelta(*BASE, False, "x", "content", "", parts.TerminalRef("t"))
    (update,) = said(speaker, item, terminal)
    assert texts(update) == ["one"]
    assert only(tool(content=(parts.TerminalRef("t"),))).content == []


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (parts.FileChange("/a", FileOp.MODIFY, diff="@@"), "modify /a\n```diff\n@@\n```"),
        (parts.FileChange("/a", FileOp.DELETE), "delete /a"),
    ],
)
def test_a_change_without_whole_texts_is_put_into_words(
    change: parts.FileChange, text: str
) -> None:
    assert texts(only(files(change))) == [text]


def test_the_sum_of_a_turns_changes_is_not_shown_again() -> None:
    assert said(Speaker(), files(parts.FileChange("/a"), tool_id=None)) == []


# -- the rest


def test_a_plan_keeps_its_entries_and_a_text_becomes_one() -> None:
    entries = (
        parts.PlanEntry("a", PlanStatus.RUNNING, "high"),
        parts.PlanEntry("b", PlanStatus.OTHER),
    )
    assert only(model.PlanSet(*BASE, False, entries)).entries == [
        acp.PlanEntry(content="a", priority="high", status="in_progress"),
        acp.PlanEntry(content="b", priority="medium", status="pending"),
    ]
    assert only(model.PlanSet(*BASE, False, text="do it")).entries == [
        acp.PlanEntry(content="do it", priority="medium", status="pending")
    ]
    assert only(model.PlanRemoved(*BASE, False)) == acp.Plan(entries=[])


def test_commands_keep_their_hints() -> None:
    commands = (parts.Command("a", "A", "what"), parts.Command("b", "B"))
    assert only(model.CommandsChanged(*BASE, False, commands)).available_commands == [
        acp.AvailableCommand(
            name="a", description="A", input=acp.UnstructuredCommandInput(hint="what")
        ),
        acp.AvailableCommand(name="b", description="B"),
    ]


def test_a_title_that_was_not_told_is_not_taken_away() -> None:
    assert only(model.SessionChanged(*BASE, False, title="T")).updated_at is UNSET
    assert only(model.SessionChanged(*BASE, False, title=None)).title is None
    assert said(Speaker(), model.SessionChanged(*BASE, False, status="idle")) == []


def test_usage_is_said_only_where_the_context_is_known() -> None:
    cost = parts.Cost(0.5, "USD")
    context = parts.Usage(context_used=5, context_size=10, cost=cost)
    assert only(model.UsageReported(*BASE, False, "context", context)) == acp.UsageUpdate(
        used=5, size=10, cost=acp.Cost(amount=0.5, currency="USD")
    )
    call = parts.Usage(total_tokens=7, context_size=10)
    assert only(model.UsageReported(*BASE, False, "call", call)).used == 7
    assert said(Speaker(), model.UsageReported(*BASE, False, "session", call)) == []
    assert said(Speaker(), model.UsageReported(*BASE, False, "call", parts.Usage(1))) == []


def test_a_notice_is_a_thought_for_a_client_that_knows_no_notices() -> None:
    notice = model.Noticed(*BASE, False, "warning", "slow", "very")
    assert only(notice) == acp.Notice(severity="warning", title="slow", description="very")
    (thought,) = Speaker(notices=False).updates(notice)
    assert thought == acp.AgentThoughtChunk(content=acp.TextContent(text="slow: very\n"))


def test_an_error_that_ends_nothing_is_a_notice() -> None:
    failure = parts.Failure("lost the network")
    update = only(model.ErrorReported(*BASE, False, "turn", failure))
    assert update == acp.Notice(severity="error", title="lost the network")


def test_a_compaction_is_said_only_to_clients_that_know_it() -> None:
    event = model.Compacted(*BASE, False, "completed", "k", "short")
    assert only(event) == acp.CompactionUpdate(
        compaction_id="k", status="completed", summary=[acp.TextContent(text="short")]
    )
    assert Speaker(compaction=False).updates(event) == ()


@pytest.mark.parametrize(
    "event",
    [
        model.TurnStarted(*BASE, False),
        model.TurnEnded(*BASE, False, Outcome.OK),
        model.PermissionAnswered(*BASE, False, "r", True),
        model.Unknown(*BASE, False),
    ],
)
def test_what_acp_has_no_update_for_is_not_said(event: model.Event) -> None:
    assert Speaker().updates(event) == ()
