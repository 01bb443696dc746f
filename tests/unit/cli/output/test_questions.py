"""Yes or no, from a person, or an error that says what to add."""

from __future__ import annotations

import io
import sys

import pytest

from dragoman.cli.output import questions
from dragoman.cli.output.questions import confirm
from dragoman.errors import UsageError


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
def test_an_answer_is_yes_no_or_the_default_and_the_end_of_input_is_no(
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
