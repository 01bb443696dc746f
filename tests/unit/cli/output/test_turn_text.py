"""A turn as a person reads it."""

from __future__ import annotations

import io

import pytest

from dragoman.cli.output.turn_text import (
    KEPT_OUTPUT,
    SHOWN_OUTPUT,
    TextShow,
)
from dragoman.errors import UsageError
from dragoman.events import model
from dragoman.events.parts import (
    Failure,
    FileChange,
    Image,
    Location,
    PeerInfo,
    PermissionOption,
    PlanEntry,
    Text,
    Usage,
)
from dragoman.events.words import (
    ChangeStage,
    FileOp,
    Outcome,
    PermissionKind,
    PlanStatus,
    Role,
    ToolKind,
    ToolStatus,
)
from tests.unit.cli.output.happening import happened, report


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")


def shown(*events: model.Event, verbose: bool = False) -> str:
    out = Screen()
    show = TextShow(out, io.StringIO(), verbose=verbose)
    for event in events:
        show.event(event)
    return out.getvalue()


def said(text: str, role: Role = Role.AGENT) -> model.MessageDelta:
    return happened(model.MessageDelta, role, text)


def test_the_answer_is_streamed_as_it_comes_and_thinking_is_marked() -> None:
    assert shown(
        said("hm, ", Role.THOUGHT), said("so", Role.THOUGHT), said("One "), said("two")
    ) == ("[thinking] hm, so\nOne two")


def test_the_prompt_is_not_repeated_and_history_is_not_shown() -> None:
    old = happened(model.MessageDelta, Role.AGENT, "long ago", replay=True)
    assert shown(said("my own words", Role.USER), old) == ""


def test_a_message_that_was_streamed_is_not_shown_again_as_a_whole() -> None:
    piece = happened(model.MessageDelta, Role.AGENT, "One", message_id="m1")
    whole = happened(model.MessageSet, Role.AGENT, "m1", (Text("One"),))
    other = happened(model.MessageSet, Role.AGENT, "m2", (Text("Two"), Image("", "image/png")))
    assert shown(piece, whole, other) == "OneTwo[image image/png]"


def test_an_answer_that_comes_only_at_the_end_is_shown_then() -> None:
    ended = happened(model.TurnEnded, Outcome.OK, text="all of it")
    assert shown(ended) == "all of it"
    tool = happened(model.ToolChanged, "c1", title="Look")
    assert shown(said("all of it"), tool, ended) == "all of it\n[tool] Look (other)\n"


def test_a_tool_call_is_shown_when_it_begins_and_when_it_is_over() -> None:
    lines = shown(
        happened(model.ToolChanged, "c1", title="Search", kind=ToolKind.SEARCH),
        happened(model.ToolChanged, "c1", status=ToolStatus.RUNNING),
        happened(
            model.ToolChanged,
            "c1",
            status=ToolStatus.COMPLETED,
            locations=(Location("a.py", 3), Location("b.py")),
            content=(Text("found\nit"),),
        ),
    ).splitlines()
    assert lines == [
        "[tool] Search (search)",
        "[tool] Search: done",
        "  a.py:3",
        "  b.py",
        "  | found",
        "  | it",
    ]


def test_places_in_the_workspace_are_shown_relative_to_it() -> None:
    lines = shown(
        happened(model.SessionOpened, "new", "/src/project"),
        happened(
            model.ToolChanged,
            "c1",
            title="Look",
            status=ToolStatus.COMPLETED,
            locations=(Location("/src/project/a.py", 3), Location("/src/projects/b.py")),
        ),
    ).splitlines()
    assert lines[1:] == ["  a.py:3", "  /src/projects/b.py"]


def test_a_tool_call_that_fails_says_why() -> None:
    text = shown(
        happened(
            model.ToolChanged,
            "c1",
            title="Run",
            status=ToolStatus.FAILED,
            error="no such file",
            exit_code=2,
        )
    )
    assert text == "[tool] Run: failed: no such file\n  exit code 2\n"


def test_a_tool_call_without_words_waits_for_them() -> None:
    nameless = happened(model.ToolChanged, "c1")
    named = happened(model.ToolChanged, "c1", title="Read it")
    assert shown(nameless) == ""
    assert shown(nameless, named) == "[tool] Read it (other)\n"


def test_long_output_is_cut_unless_all_is_wanted() -> None:
    done = happened(
        model.ToolChanged,
        "c1",
        title="Run",
        status=ToolStatus.COMPLETED,
        content=(Text("\n".join("abcdefghij")),),
    )
    assert shown(done).count("\n") == 1 + SHOWN_OUTPUT + 1
    assert "more lines" not in shown(done, verbose=True)


def test_a_change_is_shown_once_before_it_is_allowed() -> None:
    change = FileChange("a.py", FileOp.MODIFY, "old\n", "new\n")
    lines = shown(
        happened(model.ToolChanged, "c1", title="Edit", kind=ToolKind.EDIT),
        happened(model.FilesChanged, (change,), ChangeStage.PROPOSED, "c1"),
        happened(model.FilesChanged, (change,), ChangeStage.DECLINED, "c1"),
        happened(model.FilesChanged, (change,), ChangeStage.APPLIED),
    ).splitlines()
    assert lines == [
        "[tool] Edit (edit)",
        "  a.py (changed)",
        "    @@ -1 +1 @@",
        "    -old",
        "    +new",
        "  not changed: declined",
    ]


def test_a_plan_is_shown_whole_and_then_only_what_changed_in_it() -> None:
    def plan(*entries: tuple[str, PlanStatus]) -> model.PlanSet:
        return happened(model.PlanSet, tuple(PlanEntry(text, status) for text, status in entries))

    running, pending, done = PlanStatus.RUNNING, PlanStatus.PENDING, PlanStatus.COMPLETED
    assert shown(
        plan(("look", running), ("write", pending)),
        plan(("look", running), ("write", pending)),
        plan(("look", done), ("write", pending)),
        happened(model.PlanSet, text="in words"),
    ).splitlines() == [
        "[plan]",
        "  [>] look",
        "  [ ] write",
        "[plan]",
        "  [x] look",
        "[plan]",
        "  in words",
    ]


@pytest.mark.parametrize(("allowed", "word"), [(True, "allowed"), (False, "denied")])
def test_every_answer_to_a_permission_is_reported(allowed: bool, word: str) -> None:
    options = (PermissionOption("o", "OK", PermissionKind.ALLOW_ONCE),)
    asked = happened(model.PermissionAsked, "r1", options, "Write it")
    answered = happened(model.PermissionAnswered, "r1", allowed)
    assert shown(asked, answered) == f"[permission] {word}: Write it\n"
    withdrawn = happened(model.PermissionAnswered, "r1", False, by="cancel")
    assert shown(asked, withdrawn) == ""


def test_notices_errors_and_questions_have_their_lines() -> None:
    assert shown(
        said("text"),
        happened(model.Noticed, "warning", "Careful", "hot"),
        happened(model.ErrorReported, "turn", Failure("trying again")),
        happened(model.InputAsked, "r", "form", "Who are you?"),
        happened(model.LoginRequired, "log in"),
        happened(model.Compacted, "completed"),
    ).splitlines() == [
        "text",
        "[warning] Careful: hot",
        "[error] trying again",
        "[question] Who are you?",
        "[login] log in",
        "[context] compaction completed",
    ]


def test_only_verbose_shows_the_peer_the_session_and_services() -> None:
    events = (
        happened(model.ConnectionReady, PeerInfo("x", "X", "1.0"), None),
        happened(model.SessionOpened, "new"),
        happened(model.ServiceCalled, "fs", "read", "missing"),
    )
    assert shown(*events) == ""
    assert shown(*events, verbose=True).splitlines() == [
        "[peer] X 1.0, acp",
        "[session] new s1",
        "[service] fs read: missing",
    ]


def test_the_end_has_a_line_of_its_own_and_trouble_goes_to_stderr() -> None:
    out, err = Screen(), io.StringIO()
    show = TextShow(out, err)
    show.event(said("half a line"))
    show.event(happened(model.UsageReported, "turn", Usage(total_tokens=5)))
    show.ended(report(Outcome.CRASHED))
    assert out.getvalue() == "half a line\n\n[ended] crashed, 1.0 s, 5 tokens\n"
    assert "what next" in err.getvalue()
    show.notice("by the way")
    show.failed(UsageError("not like this"))
    assert "by the way" in err.getvalue() and "not like this" in err.getvalue()


def test_a_pipe_gets_the_answer_and_stderr_everything_else() -> None:
    out, err = io.StringIO(), io.StringIO()
    show = TextShow(out, err)
    show.event(said("hm", Role.THOUGHT))
    show.event(said("One "))
    show.event(said("two"))
    show.event(happened(model.ToolChanged, "c1", title="Run", status=ToolStatus.COMPLETED))
    show.event(said("three"))
    show.ended(report(Outcome.OK))
    assert out.getvalue() == "One two\nthree\n"
    assert err.getvalue() == "[thinking] hm\n[tool] Run: done\n[done] ok, 1.0 s\n"


def test_no_word_of_an_agent_has_power() -> None:
    evil = "\x1b]0;x\x07\x9b2J\x7f\r"
    change = FileChange(evil, FileOp.ADD, None, evil)
    options = (PermissionOption("o", evil, PermissionKind.ALLOW_ONCE),)
    text = shown(
        said(evil),
        said(evil, Role.THOUGHT),
        happened(
            model.ToolChanged,
            "c1",
            title=evil,
            status=ToolStatus.FAILED,
            error=evil,
            locations=(Location(evil, 1),),
            content=(Text(evil),),
        ),
        happened(model.FilesChanged, (change,), ChangeStage.PROPOSED, "c2"),
        happened(model.PlanSet, (PlanEntry(evil, PlanStatus.PENDING),)),
        happened(model.PlanSet, text=evil, plan_id="other"),
        happened(model.PermissionAsked, "r1", options, evil),
        happened(model.PermissionAnswered, "r1", False),
        happened(model.Noticed, evil, evil, evil),
        happened(model.ErrorReported, "turn", Failure(evil)),
        happened(model.InputAsked, "r", "form", evil),
        happened(model.LoginRequired, evil),
        happened(model.Compacted, evil),
        happened(model.ConnectionReady, PeerInfo(evil, evil, evil), None),
        happened(model.ServiceCalled, "fs", evil, evil),
        happened(model.MessageSet, Role.AGENT, "m", (Image("", "x", evil),)),
        verbose=True,
    )
    assert not set(text) & {"\x1b", "\x07", "\x9b", "\x7f", "\r"}


def test_nothing_that_was_shown_is_kept() -> None:
    out = Screen()
    show = TextShow(out, io.StringIO())
    for number in range(3):
        show.event(said("word " * 100))
        show.event(happened(model.ToolDelta, f"c{number}", "output", "x" * KEPT_OUTPUT))
        show.event(happened(model.ToolDelta, f"c{number}", "output", "y"))
        show.event(happened(model.ToolDelta, f"c{number}", "output", "z"))
    assert show._view.messages == []
    assert show._view.tools["c1"].printed.size == KEPT_OUTPUT + 1
    show.event(happened(model.ToolChanged, "c1", title="Run", status=ToolStatus.COMPLETED))
    assert f"cut after {KEPT_OUTPUT} characters" in out.getvalue()
    assert show._view.tools["c1"].printed.size == 0


def test_the_oldest_tool_calls_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.cli.output.turn_text.KEPT_TOOLS", 2)
    show = TextShow(io.StringIO(), io.StringIO())
    for number in range(4):
        show.event(happened(model.ToolChanged, f"c{number}", title="Run"))
    assert list(show._view.tools) == ["c2", "c3"]


def ended_with(*events: model.Event, message: str, interrupted: bool = False) -> list[str]:
    """What is shown of a turn that fails with this message, on both streams."""
    both = Screen()
    show = TextShow(both, both)
    show.tells_jobs = False
    show.began("j-1", "s-1")
    for event in events:
        show.event(event)
    failure = Failure(message)
    show.event(happened(model.TurnEnded, Outcome.FAILED, failure=failure))
    show.ended(report(Outcome.FAILED, failure=failure, interrupted=interrupted))
    return [line for line in both.getvalue().splitlines() if message in line]


def test_the_error_that_ends_a_turn_is_shown_once() -> None:
    notice = happened(model.Noticed, "error", "no quota")
    reported = happened(model.ErrorReported, "turn", Failure("no quota"))
    settings = happened(model.SettingsChanged, model="large")
    for event in (notice, reported):
        assert ended_with(event, settings, message="no quota") == [
            "dragoman: the agent failed: no quota"
        ]


def test_an_error_that_something_follows_is_shown_where_it_came() -> None:
    reported = happened(model.ErrorReported, "turn", Failure("no quota"))
    for lines in (
        ended_with(reported, said("going on"), message="no quota"),
        ended_with(reported, message="no quota", interrupted=True),
    ):
        assert lines[0] == "[error] no quota"
    assert ended_with(reported, message="another end") == [
        "dragoman: the agent failed: another end"
    ]


def test_a_change_that_is_reported_with_both_forms_of_its_path_is_shown_once() -> None:
    change = FileChange("a.txt", FileOp.ADD, new_text="x\n")
    again = FileChange("/src/project/a.txt", FileOp.ADD, new_text="x\n")
    other = FileChange("/src/project/b.txt", FileOp.ADD, new_text="x\n")
    lines = shown(
        happened(model.SessionOpened, "new", "/src/project"),
        happened(model.ToolChanged, "c1", title="Write"),
        happened(model.FilesChanged, (change, again, other), ChangeStage.PROPOSED, tool_id="c1"),
    ).splitlines()
    heads = [line for line in lines if line.endswith("(new file)")]
    assert heads == ["  a.txt (new file)", "  /src/project/b.txt (new file)"]
