"""Yes or no, from a person, or an error that says what to add."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest

from dragoman.cli.output import questions
from dragoman.cli.output.questions import confirm, permission, rows
from dragoman.client.permissions import Question
from dragoman.errors import UsageError
from dragoman.events.parts import FileChange


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    stdin = io.StringIO()
    monkeypatch.setattr(sys, "stdin", stdin)
    monkeypatch.setattr(questions, "is_interactive", lambda: True)
    return stdin


def type_in(stdin: io.StringIO, text: str) -> None:
    stdin.write(text)
    stdin.seek(0)


@pytest.mark.parametrize(
    ("text", "default", "answer"),
    [
        ("y\n", False, True),
        ("Yes\n", False, True),
        ("no\n", True, False),
        ("\n", True, True),
        ("\n", False, False),
        ("perhaps\ny\n", False, True),
        ("", True, False),
    ],
)
def test_an_answer_is_yes_no_or_the_default_and_the_end_of_input_means_no(
    typed: io.StringIO, text: str, default: bool, answer: bool
) -> None:
    type_in(typed, text)
    assert confirm("Really?", instead="--yes", default=default) is answer


def test_the_question_goes_to_stderr_and_has_no_power(
    typed: io.StringIO, capsys: pytest.CaptureFixture[str]
) -> None:
    type_in(typed, "y\n")
    confirm("Really \x1b[2J?", instead="--yes")
    out, err = capsys.readouterr()
    assert (out, err) == ("", "Really ␛[2J? [y/N] ")


def test_without_a_terminal_it_is_an_error_that_names_the_option(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    with pytest.raises(UsageError, match="--yes"):
        confirm("Really?", instead="--yes")


def asked(kind: str, title: str = "Look", **told: Any) -> Question:
    return Question("s", "c", title, kind, (), told)


@pytest.mark.parametrize(
    ("question", "lines"),
    [
        (
            asked("read", rawInput={"command": "a\nb", "env": {"X": "1"}, "cwd": "/w"}),
            [
                "run a command, which the agent calls 'Look'",
                *("  $ a", "  | b", "  with its own environment or input", "  in /w"),
                '  input: {"command":"a\\nb","env":{"X":"1"},"cwd":"/w"}',
            ],
        ),
        (asked("read", "", locations=[{"path": "a"}]), ["read", "  a"]),
        (
            asked("edit", "", rawInput={"path": "a", "content": "x"}),
            ["change files", "  a", '  input: {"path":"a","content":"x"}'],
        ),
        (
            asked("edit", "", content=[{"path": "a", "newText": "x\n"}]),
            ["change files", "  a (changed)", "    @@ -0,0 +1 @@", "    +x"],
        ),
        (
            asked(
                "edit",
                "",
                rawInput={"path": "a", "new_string": "x"},
                content=[{"path": "a", "newText": "x\n"}],
            ),
            ["change files", "  a (changed)", "    @@ -0,0 +1 @@", "    +x"],
        ),
        (
            # The diff is not what the input says.
            asked(
                "edit",
                "",
                rawInput={"path": "b", "new_string": "y"},
                content=[{"path": "a", "newText": "x\n"}],
            ),
            [
                *("change files", "  b", "  a (changed)", "    @@ -0,0 +1 @@", "    +x"),
                '  input: {"path":"b","new_string":"y"}',
            ],
        ),
        (
            asked("edit", "", content=[FileChange("a", diff="@@ -1 +1 @@\n-x\n+y")]),
            ["change files", "  a (changed)", "    @@ -1 +1 @@", "    -x", "    +y"],
        ),
        (
            asked("\x1b[2J", "\x1b[1A"),
            [
                "do something (␛[2J), which the agent calls '␛[1A'",
                "  the agent does not report what it would do",
            ],
        ),
        (
            asked("execute", ""),
            ["run a command", "  a command that the agent does not show"],
        ),
    ],
)
def test_a_permission_question_shows_what_the_policy_judges(
    question: Question, lines: list[str]
) -> None:
    head, *rest = permission(question)
    assert [head.removeprefix("[permission] "), *rest] == lines


def test_a_title_is_the_command_where_the_agent_is_known_for_that() -> None:
    assert permission(asked("execute", "make"), titled=True)[1] == "  $ make"


def test_text_of_an_agent_never_begins_a_row_of_the_terminal() -> None:
    fake = "[permission] read a"
    command = f"rm x;{' ' * 200}{fake}\n{'界' * 50}{fake}\n\u2800\t{fake}"
    lines = permission(asked("execute", "x" * 71 + fake, rawInput={"command": command}))
    found = rows(lines, [f"  y  allow once ({'x' * 60} {fake})"], width=40)
    head, *rest = found
    assert head.startswith("[permission] run a command")
    assert all(row.startswith("  ") for row in rest) and "  $ rm x;" in " ".join(rest)
    wide = (sum(1 if char.isascii() else 2 for char in row) for row in found)
    assert max(wide) <= 40
    assert rows(["a" * 99], ["b"], width=0) == ["a" * 99, "b"]


def test_a_question_that_may_not_fit_on_the_screen_says_so_at_its_end() -> None:
    lines = permission(asked("execute", rawInput={"command": "rm x\n" + "\n" * 25}))
    *_, last, answer = rows(lines, ["  y  allow once"], width=80)
    assert "scroll up" in last and answer == "  y  allow once"


def test_a_permission_question_is_bounded_and_says_what_is_left_out() -> None:
    long = permission(
        asked(
            "execute",
            rawInput={"command": "\n".join(map(str, range(100))), "paths": [*map(str, range(50))]},
            content=[{"path": str(n), "newText": "x\n" * 100} for n in range(10)],
        )
    )
    assert "  … 70 lines omitted …" in long and "  … 10 more paths" in long and len(long) < 300
    wide = permission(asked("execute", rawInput={"command": "x" * 10_000}))
    assert "… 8002 characters omitted …" in wide[1]


def test_the_end_of_what_is_too_long_is_shown_too() -> None:
    for command in ("git status" + " " * 3000 + "; rm -rf ~", "git status\n" * 40 + "rm -rf ~"):
        question = Question("s", "c", "t", "execute", (), {"rawInput": {"command": command}})
        shown = "\n".join(questions.permission(question))
        assert "omitted" in shown and "rm -rf ~" in shown
    long = "".join(f"{number}\n" for number in range(1000)) + "evil\n"
    diff = {"type": "diff", "path": "/w/a", "oldText": None, "newText": long}
    question = Question("s", "c", "t", "edit", (), {"content": [diff]})
    shown = "\n".join(questions.permission(question))
    assert "omitted" in shown and "+evil" in shown and "--verbose" not in shown


def test_a_file_is_new_in_a_question_only_if_there_is_none(tmp_path: Path) -> None:
    def heading(path: Path) -> str:
        told = [
            questions.permission(asked("edit", "", content=[content]))[1].strip()
            for content in (
                {"path": str(path), "newText": "x\n"},
                {"path": str(path), "oldText": "", "newText": "x\n"},
            )
        ]
        assert told[0] == told[1]
        return told[0]

    here = tmp_path / "here.py"
    here.touch()
    assert heading(tmp_path / "new.py") == f"{tmp_path / 'new.py'} (new file)"
    assert heading(here) == f"{here} (changed)"
