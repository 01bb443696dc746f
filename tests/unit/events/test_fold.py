"""The folding rules, one after another."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.events import model, parts
from dragoman.events.fold import apply_briefly, apply_outline, apply_settings, fold
from dragoman.events.view import View
from dragoman.events.words import (
    ChangeStage,
    FileOp,
    Outcome,
    PermissionKind,
    PlanStatus,
    Role,
    ToolKind,
    ToolStatus,
    TurnPhase,
)
from tests.unit.events.sayings import make


def delta(text: str, role: Role = Role.AGENT, message_id: str | None = None) -> model.Event:
    return make(model.MessageDelta, role, text, message_id=message_id)


def tool(tool_id: str = "t", **fields: Any) -> model.Event:
    return make(model.ToolChanged, tool_id, **fields)


# -- messages


def test_pieces_without_ids_are_one_message_until_something_else_comes() -> None:
    view = fold([delta("a"), delta("b"), tool(), delta("c"), delta("d", Role.THOUGHT)])
    assert [(m.role, m.text) for m in view.messages] == [
        (Role.AGENT, "ab"),
        (Role.AGENT, "c"),
        (Role.THOUGHT, "d"),
    ]


def test_pieces_with_ids_find_their_message_wherever_they_come() -> None:
    view = fold(
        [delta("a", message_id="1"), delta("x", message_id="2"), delta("b", message_id="1")]
    )
    assert [m.text for m in view.messages] == ["ab", "x"]


def test_a_whole_message_replaces_its_pieces_and_keeps_other_content() -> None:
    image = parts.Image("d", "image/png")
    view = fold(
        [
            delta("dra", message_id="1"),
            make(model.MessageSet, Role.AGENT, "1", (parts.Text("final"), image)),
            make(model.MessageSet, Role.AGENT, "2"),
        ]
    )
    assert (view.messages[0].text, view.messages[0].blocks) == ("final", [image])
    assert view.messages[1].text == ""


def test_content_that_is_not_text_is_kept_in_order() -> None:
    image = parts.Image("d", "image/png")
    view = fold([delta("a"), make(model.MessageDelta, Role.AGENT, "", image)])
    assert (view.messages[0].text, view.messages[0].blocks) == ("a", [image])


def test_a_prompt_is_the_users_message_and_its_repetition_takes_its_place() -> None:
    started = make(model.TurnStarted, (parts.Text("do it"),))
    silent = fold([started, delta("done")])
    assert [(m.role, m.text) for m in silent.messages] == [
        (Role.USER, "do it"),
        (Role.AGENT, "done"),
    ]
    echoed = fold(
        [started, delta("do ", Role.USER, "u"), delta("it", Role.USER, "u"), delta("done")]
    )
    assert [m.text for m in echoed.messages] == ["do it", "done"]
    again = fold([started, make(model.TurnStarted)])
    assert len(again.messages) == 1


def test_words_of_the_user_after_the_agent_spoke_are_a_message_of_their_own() -> None:
    started = make(model.TurnStarted, (parts.Text("do it"),))
    view = fold([started, delta("working"), delta("faster", Role.USER)])
    assert [m.text for m in view.messages] == ["do it", "working", "faster"]


# -- tools


@pytest.mark.parametrize(
    ("status", "stage"),
    [
        (ToolStatus.RUNNING, ChangeStage.PROPOSED),
        (ToolStatus.COMPLETED, ChangeStage.APPLIED),
        (ToolStatus.FAILED, ChangeStage.FAILED),
        (ToolStatus.DECLINED, ChangeStage.DECLINED),
    ],
)
def test_a_proposed_change_is_made_or_not_with_its_tool_call(
    status: ToolStatus, stage: ChangeStage
) -> None:
    """Whichever of the two comes first: an agent may say each of them once."""
    change = make(model.FilesChanged, (parts.FileChange("/a"),), ChangeStage.PROPOSED, "t")
    for events in ([change, tool(status=status)], [tool(status=status), change]):
        assert fold(events).tools["t"].stage is stage
    assert fold([tool(status=status)]).tools["t"].stage is ChangeStage.UNKNOWN


def test_the_first_event_of_a_tool_makes_it_and_the_next_ones_patch_it() -> None:
    view = fold(
        [
            tool(title="Edit", kind=ToolKind.EDIT, input={"a": 1}, content=(parts.Text("x"),)),
            tool(status=ToolStatus.COMPLETED, output="out", exit_code=0, content=None),
        ]
    )
    found = view.tools["t"]
    assert (found.title, found.kind, found.status) == ("Edit", ToolKind.EDIT, ToolStatus.COMPLETED)
    assert (found.input, found.output, found.exit_code, found.content) == ({"a": 1}, "out", 0, ())


def test_what_is_over_does_not_become_pending_again() -> None:
    done = tool(status=ToolStatus.COMPLETED)
    assert fold([done, tool(status=ToolStatus.PENDING)]).tools["t"].status is ToolStatus.COMPLETED
    assert fold([done, tool(status=ToolStatus.RUNNING)]).tools["t"].status is ToolStatus.RUNNING


def test_output_of_a_tool_adds_up_and_items_are_appended() -> None:
    view = fold(
        [
            make(model.ToolDelta, "t", "output", "a"),
            make(model.ToolDelta, "t", "output", "b"),
            make(model.ToolDelta, "t", "stdin", "never"),
            make(model.ToolDelta, "t", "content", "", parts.TerminalRef("x")),
        ]
    )
    assert (view.tools["t"].text, view.tools["t"].content) == ("ab", (parts.TerminalRef("x"),))


def test_changed_files_belong_to_their_tool_or_to_the_turn() -> None:
    change = parts.FileChange("/a", FileOp.MODIFY)
    view = fold(
        [
            make(model.FilesChanged, (change,), ChangeStage.APPLIED, "t"),
            make(model.FilesChanged, (change,), ChangeStage.UNKNOWN),
        ]
    )
    assert (view.tools["t"].changes, view.tools["t"].stage) == ((change,), ChangeStage.APPLIED)
    assert view.changes == (change,)


# -- plans, settings, usage


def test_plans_are_replaced_grown_and_removed() -> None:
    entry = parts.PlanEntry("look", PlanStatus.RUNNING)
    view = fold(
        [
            make(model.PlanSet, (entry,)),
            make(model.PlanDelta, "a", "text"),
            make(model.PlanDelta, "b", "text"),
            make(model.PlanSet, (), "gone", "other"),
            make(model.PlanRemoved, "other"),
        ]
    )
    assert view.plans["main"].entries == (entry,)
    assert view.plans["text"].text == "ab"
    assert set(view.plans) == {"main", "text"}


def test_only_reported_settings_change() -> None:
    option = parts.SessionOption("o", "O", "v")
    view = fold(
        [
            make(model.SessionOpened, "new", "/w", "Title", "model-1"),
            make(model.SettingsChanged, mode="m", options=(option,)),
            make(model.SettingsChanged, mode="n"),
            make(model.CommandsChanged, (parts.SlashCommand("go", "Go"),)),
            make(model.SessionChanged, updated_at="now"),
        ]
    )
    assert (view.cwd, view.title, view.model, view.mode) == ("/w", "Title", "model-1", "n")
    assert (view.options, view.commands) == ((option,), (parts.SlashCommand("go", "Go"),))
    assert fold([make(model.SessionChanged, title=None)], view).title is None


def test_usage_replaces_and_never_adds() -> None:
    view = fold(
        [make(model.UsageReported, "turn", parts.Usage(total_tokens=n)) for n in (5, 7)]
        + [make(model.TurnEnded, Outcome.OK, usage=parts.Usage(total_tokens=8))]
    )
    assert view.usage == {"turn": parts.Usage(total_tokens=8)}


# -- turns and questions


def test_a_turn_runs_from_its_start_to_its_end() -> None:
    started = make(model.TurnStarted)
    asked = make(
        model.PermissionAsked, "q", (parts.PermissionOption("y", "Y", PermissionKind.ALLOW_ONCE),)
    )
    running = fold([started, asked, make(model.InputAsked, "i", "form")])
    assert (running.running, running.waiting) == (True, {"q", "i"})
    answered = fold([make(model.PermissionAnswered, "q", True)], running)
    assert answered.waiting == {"i"}
    failure = parts.Failure("no")
    ended = fold([make(model.TurnEnded, Outcome.FAILED, "error", failure)], answered)
    assert (ended.running, ended.waiting) == (False, set())
    assert [(turn.outcome, turn.stop, turn.failure) for turn in ended.turns] == [
        (Outcome.FAILED, "error", failure)
    ]


def test_the_whole_answer_at_the_end_completes_what_was_streamed() -> None:
    ended = make(model.TurnEnded, Outcome.OK, text="hello world")
    assert fold([ended]).text == "hello world"
    assert fold([delta("hello "), ended]).text == "hello world"
    assert fold([delta("hello world"), ended]).text == "hello world"
    assert fold([delta("I say: hello world"), ended]).text == "I say: hello world"
    assert len(fold([delta("other"), ended]).messages) == 2


def test_notices_and_errors_are_kept_and_the_rest_changes_nothing() -> None:
    failure = parts.Failure("no")
    view = fold([make(model.Noticed, "info", "look"), make(model.ErrorReported, "turn", failure)])
    assert (view.notices, view.failures) == (["look"], [failure])
    before = fold([])
    for event in (
        make(model.Unknown, "x"),
        make(model.Answered),
        make(model.TurnState, TurnPhase.RUNNING),
        make(model.ServiceCalled, "fs", "read"),
    ):
        assert fold([event]) == before


# -- readers who do not keep what is said


def test_a_turn_without_usage_does_not_show_that_of_the_turn_before() -> None:
    used = parts.Usage(total_tokens=8)
    first: list[model.Event] = [
        make(model.TurnStarted),
        make(model.TurnEnded, Outcome.OK, usage=used),
    ]
    second: list[model.Event] = [
        make(model.TurnStarted),
        make(model.TurnEnded, Outcome.CANCELLED),
    ]
    assert fold(first).usage == {"turn": used}
    assert fold(first + second).usage == {}
    # The start of one turn may be reported twice.
    reported = make(model.UsageReported, "turn", used)
    twice: list[model.Event] = [make(model.TurnStarted), reported, make(model.TurnStarted)]
    assert fold(twice).usage == {"turn": used}


def test_a_brief_view_has_tools_and_usage_and_nothing_that_was_said() -> None:
    view = View()
    for event in (
        make(model.TurnStarted, (parts.Text("go"),)),
        delta("a"),
        make(model.PlanDelta, "p", "text"),
        tool(title="read"),
        make(model.TurnEnded, Outcome.OK, "end_turn", text="all of it"),
    ):
        apply_briefly(view, event)
    assert (view.messages, view.plans, view.prompt) == ([], {}, None)
    assert view.tools["t"].title == "read"
    assert [turn.outcome for turn in view.turns] == [Outcome.OK]


def test_an_outline_has_the_tools_and_the_files_they_changed_and_no_texts() -> None:
    view = View()
    change = parts.FileChange("b", FileOp.MOVE, "old", "new", "diff", old_path="a")
    for event in (
        tool(title="mv", kind=ToolKind.MOVE, input="i", output="o", content=(parts.Text("c"),)),
        make(model.ToolDelta, "t", "output", "printed"),
        make(model.FilesChanged, (change,), ChangeStage.APPLIED, "t"),
        make(model.FilesChanged, (change,), ChangeStage.APPLIED),
        tool(status=ToolStatus.COMPLETED, output="o", locations=(parts.Location("b"),)),
        delta("done"),
    ):
        apply_outline(view, event)
    (seen,) = view.tools.values()
    assert (seen.title, seen.kind, seen.status) == ("mv", ToolKind.MOVE, ToolStatus.COMPLETED)
    assert seen.changes == (parts.FileChange("b", FileOp.MOVE, old_path="a"),)
    assert (seen.stage, seen.locations) == (ChangeStage.APPLIED, (parts.Location("b"),))
    assert (seen.input, seen.output, seen.content, seen.text) == (None, None, (), "")
    assert view.messages == []


def test_a_view_of_settings_has_nothing_else() -> None:
    view = View()
    for event in (delta("a"), tool(), make(model.SettingsChanged, mode="plan")):
        apply_settings(view, event)
    assert view == View(mode="plan")
