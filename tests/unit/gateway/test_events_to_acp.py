"""Events in the words of ACP."""

from __future__ import annotations

import difflib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1 import translate
from dragoman.events import model, parts
from dragoman.events.fold import fold
from dragoman.events.words import (
    ChangeStage,
    FileOp,
    Outcome,
    PlanStatus,
    Role,
    ToolKind,
    ToolStatus,
    TurnPhase,
)
from dragoman.gateway import events_to_acp
from dragoman.gateway.events_to_acp import AcpTranslator, hunks_of
from tests.amounts import SOME
from tests.unit.events.sayings import make, place


def spoken(*events: model.Event, speaker: AcpTranslator | None = None) -> list[Any]:
    speaker = speaker or AcpTranslator()
    return [update for event in events for update in speaker.updates(event)]


def again(*events: model.Event) -> Any:
    """What a client makes of what is said."""
    return fold(
        event
        for update in spoken(*events)
        for event in translate.of_update(acp.decode(acp.encode(update), type(update)), place(), b"")
    )


def delta(text: str, role: Role = Role.AGENT, **fields: Any) -> model.Event:
    return make(model.MessageDelta, role, text, **fields)


def test_pieces_of_messages_are_chunks_with_their_ids_and_content() -> None:
    image = parts.Image("d", "image/png")
    chunks = spoken(
        delta("a", message_id="m"),
        delta("b", Role.THOUGHT),
        make(model.MessageDelta, Role.AGENT, "", image),
    )
    assert chunks == [
        acp.AgentMessageChunk(content=acp.TextContent(text="a"), message_id="m"),
        acp.AgentThoughtChunk(content=acp.TextContent(text="b")),
        acp.AgentMessageChunk(content=acp.ImageContent(data="d", mime_type="image/png")),
    ]


def test_a_whole_message_is_said_unless_its_pieces_were() -> None:
    whole = make(model.MessageSet, Role.AGENT, "m", (parts.Text("all"),))
    assert [update.content.text for update in spoken(whole, whole)] == ["all"]
    assert len(spoken(delta("al", message_id="m"), whole)) == 1


def test_what_the_user_said_is_repeated_in_history_only() -> None:
    live = make(model.MessageSet, Role.USER, "m", (parts.Text("hi"),))
    assert spoken(live, delta("hi", Role.USER)) == []
    where = place()
    where.replay = True
    replayed = model.MessageSet(*where.base("x", None), Role.USER, "m", (parts.Text("hi"),))
    assert spoken(replayed) == [
        acp.UserMessageChunk(content=acp.TextContent(text="hi"), message_id="m")
    ]


def test_a_tool_call_looks_the_same_to_the_client() -> None:
    events: list[model.Event] = [
        make(model.ToolChanged, "t", title="Edit", kind=ToolKind.EDIT, input={"a": 1},
             locations=(parts.Location("/a", 2),)),
        make(model.ToolChanged, "t", status=ToolStatus.RUNNING, content=(parts.Text("x"),)),
        make(model.FilesChanged, (parts.FileChange("/a", FileOp.MODIFY, "o", "n"),),
             ChangeStage.PROPOSED, "t"),
        make(model.ToolChanged, "t", status=ToolStatus.COMPLETED, output={"done": True}),
    ]  # fmt: skip
    tool = again(*events).tools["t"]
    assert (tool.title, tool.kind, tool.status) == ("Edit", ToolKind.EDIT, ToolStatus.COMPLETED)
    assert (tool.input, tool.output) == ({"a": 1}, {"done": True})
    assert tool.locations == (parts.Location("/a", 2),)
    assert tool.content == (parts.Text("x"),)
    assert [(c.path, c.old_text, c.new_text) for c in tool.changes] == [("/a", "o", "n")]
    kinds = [type(update).__name__ for update in spoken(*events)]
    assert kinds == ["ToolCall", *["ToolCallProgress"] * 3]


@pytest.mark.parametrize(
    ("status", "word"),
    [
        (ToolStatus.DECLINED, "failed"),
        (ToolStatus.CANCELLED, "failed"),
        (ToolStatus.PAUSED, "in_progress"),
        (ToolStatus.OTHER, None),
    ],
)
def test_states_that_acp_lacks_become_the_nearest_one(status: ToolStatus, word: str | None) -> None:
    (update,) = spoken(make(model.ToolChanged, "t", status=status))
    assert update.status == word


def test_a_call_that_is_first_heard_of_by_its_output_is_announced() -> None:
    first, second = spoken(
        make(model.ToolDelta, "t", "output", "a"), make(model.ToolDelta, "t", "output", "b")
    )
    assert (type(first), first.title) == (acp.ToolCall, "t")
    assert type(second) is acp.ToolCallProgress


def test_long_output_is_sent_less_and_less_often_and_complete_at_the_end() -> None:
    speaker = AcpTranslator()
    pieces = [make(model.ToolDelta, "t", "output", f"{n:04} ") for n in range(1000)]
    updates = spoken(*pieces, speaker=speaker)
    assert len(updates) < 60
    (last,) = spoken(make(model.ToolChanged, "t", status=ToolStatus.COMPLETED), speaker=speaker)
    assert last.content[0].content.text == "".join(f"{n:04} " for n in range(1000))


def test_output_is_shown_up_to_a_limit_and_the_newest_of_it() -> None:
    (update,) = spoken(
        make(model.ToolDelta, "t", "output", "x" * events_to_acp.SHOWN_OUTPUT + "the end")
    )
    text = update.content[0].content.text
    assert len(text) == events_to_acp.SHOWN_OUTPUT
    assert text.endswith("the end")


def test_output_that_comes_only_with_the_end_is_shown() -> None:
    (update,) = spoken(
        make(model.ToolChanged, "t", status=ToolStatus.COMPLETED, output="printed", error="bad")
    )
    assert [item.content.text for item in update.content] == ["printed", "bad"]


def test_what_belongs_to_no_client_is_left_out() -> None:
    (update,) = spoken(
        make(model.ToolChanged, "t", content=(parts.TerminalRef("x"), parts.Text("y")))
    )
    assert update.content == [acp.Content(content=acp.TextContent(text="y"))]
    assert spoken(make(model.ToolDelta, "t", "content", "", parts.TerminalRef("x"))) == []
    assert spoken(make(model.ToolDelta, "t", "stdin", "typed")) == []
    assert spoken(make(model.FilesChanged, (), ChangeStage.UNKNOWN)) == []


def test_a_change_without_its_texts_is_shown_as_a_diff_in_words() -> None:
    changes = (
        parts.FileChange("/a", FileOp.MODIFY, diff="@@ -1 +1 @@"),
        parts.FileChange("/b", FileOp.DELETE),
    )
    (update,) = spoken(make(model.FilesChanged, changes, ChangeStage.APPLIED, "t"))
    one, two = [item.content.text for item in update.content]
    assert "/a" in one and "```diff\n@@ -1 +1 @@" in one
    assert two == "delete /b"


def test_a_change_is_shown_as_diffs_wherever_its_texts_are_known() -> None:
    changes = (
        parts.FileChange("/a", FileOp.ADD, new_text="new"),
        parts.FileChange("/b", FileOp.DELETE, old_text="old"),
        parts.FileChange("/c", FileOp.MODIFY, diff="@@ -1 +1 @@\n-x\n+y\n@@ -7 +7 @@\n-v\n+w\n"),
    )
    (update,) = spoken(make(model.FilesChanged, changes, ChangeStage.APPLIED, "t"))
    assert update.content == [
        acp.Diff(path="/a", new_text="new"),
        acp.Diff(path="/b", new_text="", old_text="old"),
        acp.Diff(path="/c", new_text="y\n", old_text="x\n"),
        acp.Diff(path="/c", new_text="w\n", old_text="v\n"),
    ]


def test_plans_commands_titles_and_usage_are_said() -> None:
    view = again(
        make(model.PlanSet, (parts.PlanEntry("look", PlanStatus.RUNNING, "high"),)),
        make(model.CommandsChanged, (parts.SlashCommand("go", "Go", "where"),)),
        make(model.SessionChanged, title="T"),
        make(model.UsageReported, "context", parts.Usage(context_used=1, context_size=2,
                                                         cost=parts.Cost(0.5, "USD"))),
    )  # fmt: skip
    assert view.plans["main"].entries == (parts.PlanEntry("look", PlanStatus.RUNNING, "high"),)
    assert view.commands == (parts.SlashCommand("go", "Go", "where"),)
    assert view.title == "T"
    assert view.usage["context"].cost == parts.Cost(0.5, "USD")


def test_a_plan_that_is_a_text_is_one_entry_and_a_removed_one_is_empty() -> None:
    (plan,) = spoken(make(model.PlanSet, (), "do it"))
    assert [entry.content for entry in plan.entries] == ["do it"]
    assert spoken(make(model.PlanRemoved)) == [acp.Plan(entries=[])]


def test_usage_of_the_last_call_is_what_the_context_holds() -> None:
    usage = parts.Usage(total_tokens=9, context_size=100)
    assert spoken(make(model.UsageReported, "call", usage)) == [acp.UsageUpdate(used=9, size=100)]
    assert spoken(make(model.UsageReported, "session", usage)) == []


def test_notices_are_thoughts_for_clients_that_have_none_and_compactions_are_silent() -> None:
    events: list[model.Event] = [
        make(model.Noticed, "warning", "Look", "there"),
        make(model.ErrorReported, "turn", parts.Failure("bad")),
        make(model.Compacted, "completed", "c", "sum", "err"),
    ]
    kinds = [type(update) for update in spoken(*events)]
    assert kinds == [acp.Notice, acp.Notice, acp.CompactionUpdate]
    plain = spoken(*events, speaker=AcpTranslator(notices=False, compaction=False))
    assert [update.content.text for update in plain] == ["Look: there\n", "bad\n"]


def test_what_acp_has_no_word_for_is_not_said() -> None:
    assert spoken(
        make(model.TurnStarted),
        make(model.TurnState, TurnPhase.RUNNING),
        make(model.TurnEnded, Outcome.OK),
        make(model.Unknown, "x"),
        make(model.Answered),
        make(model.SessionChanged, status="idle"),
        make(model.PlanDelta, "x"),
    ) == []  # fmt: skip


def test_output_beyond_the_limit_still_ends_with_its_newest_lines() -> None:
    speaker = AcpTranslator()
    full = make(model.ToolDelta, "t", "output", "a" * events_to_acp.SHOWN_OUTPUT)
    spoken(full, make(model.ToolDelta, "t", "output", "b" * 10), speaker=speaker)
    (last,) = spoken(make(model.ToolChanged, "t", status=ToolStatus.COMPLETED), speaker=speaker)
    assert last.content[0].content.text == "a" * (events_to_acp.SHOWN_OUTPUT - 10) + "b" * 10


def test_output_beyond_the_limit_goes_on_being_shown_while_it_grows() -> None:
    speaker = AcpTranslator()
    spoken(make(model.ToolDelta, "t", "output", "a" * events_to_acp.SHOWN_OUTPUT), speaker=speaker)
    pieces = (make(model.ToolDelta, "t", "output", "b" * 1024) for _ in range(64))
    updates = spoken(*pieces, speaker=speaker)
    assert 1 < len(updates) < 20
    assert updates[-1].content[0].content.text.endswith("b" * 1024)


def test_a_title_that_was_not_told_is_not_taken_away() -> None:
    (told,) = spoken(make(model.SessionChanged, title="T"))
    assert (told.title, told.updated_at) == ("T", UNSET)
    (cleared,) = spoken(make(model.SessionChanged, title=None))
    assert cleared.title is None
    assert spoken(make(model.SessionChanged, status="idle")) == []


@pytest.mark.parametrize(
    ("streamed", "whole", "told"),
    [
        ([], "all of it", "all of it"),
        (["all ", "of it"], "all of it", ""),
        (["all "], "all of it", "of it"),
        (["first.", "last."], "last.", ""),
        (["something"], "else", "else"),
        (["all"], None, ""),
        ([], "", ""),
    ],
)
def test_an_answer_that_comes_whole_at_the_end_is_said_as_far_as_it_was_not(
    streamed: list[str], whole: str | None, told: str
) -> None:
    speaker = AcpTranslator()
    for _ in range(2):
        spoken(make(model.TurnStarted), *map(delta, streamed), speaker=speaker)
        ended = make(model.TurnEnded, Outcome.OK, text=whole)
        last = spoken(ended, speaker=speaker)
        assert "".join(update.content.text for update in last) == told


def test_a_whole_message_counts_as_said() -> None:
    message = make(model.MessageSet, Role.AGENT, "m", (parts.Text("all of it"),))
    assert len(spoken(message, make(model.TurnEnded, Outcome.OK, text="all of it"))) == 1


def test_changes_that_no_tool_call_is_known_for_are_a_call_of_their_own() -> None:
    one = parts.FileChange("/a", diff="--- a\n+++ b\n@@ -1 +1 @@\n-old\n+new\n")
    two = parts.FileChange("/b", FileOp.ADD, new_text="new")
    first, second = spoken(
        make(model.FilesChanged, (one,), ChangeStage.UNKNOWN),
        make(model.FilesChanged, (one, two), ChangeStage.UNKNOWN),
    )
    assert (first.title, first.kind, first.status) == ("Changed files", "edit", "completed")
    assert isinstance(second, acp.ToolCallProgress) and second.content is not None
    assert [item.path for item in second.content if isinstance(item, acp.Diff)] == ["/a", "/b"]


def test_changes_that_a_tool_call_has_shown_are_not_shown_again() -> None:
    change = (parts.FileChange("/a", FileOp.ADD, new_text="new"),)
    shown = make(model.FilesChanged, change, ChangeStage.APPLIED, "t")
    assert len(spoken(shown, make(model.FilesChanged, change, ChangeStage.UNKNOWN))) == 1
    # The difference of a whole turn, as Codex tells it, names no file.
    whole = parts.FileChange("", diff="diff --git a/a b/a\n")
    assert spoken(make(model.FilesChanged, (whole,), ChangeStage.UNKNOWN)) == []


def test_an_output_is_cut_between_two_words() -> None:
    key = "ghp_" + "a1B2c3D4" * 5
    for number in range(0, events_to_acp.SHOWN_OUTPUT + 200, 7):
        said = "w " * 20 + key + " " + "x" * number
        (update,) = spoken(make(model.ToolDelta, "t", "output", said))
        shown = update.content[0].content.text
        assert key in shown or "B2c3D4" not in shown, number


def test_each_hunk_is_a_pair_of_texts_with_what_stands_around_it() -> None:
    diff = "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n@@ -9 +9,2 @@ def f\n nine\n+ten\n"
    assert hunks_of(diff) == [("one\ntwo\n", "one\n2\n"), ("nine\n", "nine\nten\n")]


def test_a_diff_without_the_names_of_files_is_read_too() -> None:
    assert hunks_of("@@ -1 +1 @@\n-old\n+new\n") == [("old\n", "new\n")]


def test_removed_lines_that_look_like_a_header_are_lines() -> None:
    assert hunks_of("@@ -1,2 +1 @@\n--- a\n-@@ -1 +1 @@\n+++ b\n") == [
        ("-- a\n@@ -1 +1 @@\n", "++ b\n")
    ]


def test_a_missing_newline_is_missing_on_its_own_side() -> None:
    bare = "\\ No newline at end of file"
    assert hunks_of(f"@@ -1 +1 @@\n-a\n{bare}\n+a\n") == [("a", "a\n")]
    assert hunks_of(f"@@ -1 +1 @@\n-a\n+a\n{bare}\n") == [("a\n", "a")]
    assert hunks_of(f"@@ -1,2 +1 @@\n-a\n b\n{bare}\n") == [("a\nb", "b")]


@pytest.mark.parametrize(
    "diff",
    [
        "",
        "some content\n",
        "@@ what @@\n",
        "@@ -1,2 +1,2 @@\n one\n",
        "@@ -1 +1 @@\n-a\n+b\ndiff --git a/y b/y\n@@ -1 +1 @@\n-a\n+b\n",
        "@@ -1 +1 @@\n*a\n+b\n",
        "@@ -1 +0,0 @@\n+a\n",
        "@@ -1 +1 @@\n\\ No newline at end of file\n",
        f"@@ -1,{'9' * 5000} +1 @@\n-a\n+b\n",
    ],
)
def test_what_is_not_the_diff_of_one_file_gives_nothing(diff: str) -> None:
    assert hunks_of(diff) == []


LINES = st.lists(st.text(st.characters(exclude_characters="\n\r"), max_size=3), max_size=12)


@SOME
@given(LINES, LINES)
def test_a_hunk_of_a_whole_file_holds_the_whole_file(old: list[str], new: list[str]) -> None:
    before, after = ([line + "\n" for line in lines] for lines in (old, new))
    diff = "".join(difflib.unified_diff(before, after, n=len(old) + len(new)))
    expected = [("".join(before), "".join(after))] if before != after else []
    assert hunks_of(diff) == expected


@SOME
@given(st.text())
def test_garbage_is_never_an_exception(diff: str) -> None:
    hunks_of(f"@@ -1,2 +1,2 @@\n{diff}")


def test_the_file_changes_of_every_turn_are_shown() -> None:
    speaker = AcpTranslator()
    for name in ("/a", "/b"):
        change = parts.FileChange(name, FileOp.MODIFY, "old", "new")
        told = spoken(
            make(model.TurnStarted),
            make(model.FilesChanged, (change,), ChangeStage.APPLIED),
            speaker=speaker,
        )
        assert [update.content[0].path for update in told] == [name]
