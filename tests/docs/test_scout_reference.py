"""The questions and commands in scout's reference are those of its tables."""

from __future__ import annotations

from dragoman.scout.commands import COMMANDS
from dragoman.scout.questions import QUESTIONS
from dragoman.scout.store import MAX_SESSIONS, VARIABLE
from tests.docs.markdown import ROOT, section, table

REFERENCE = ROOT / "docs" / "reference" / "scout.md"


def test_the_table_of_questions_is_that_of_the_code() -> None:
    expected = [
        [row.asks, "<br>".join(f"`{example}`" for example in row.examples)] for row in QUESTIONS
    ]
    assert table(section(REFERENCE, "Questions")) == expected, "\n".join(
        f"| {asks} | {examples} |" for asks, examples in expected
    )


def test_the_table_of_commands_is_that_of_the_code() -> None:
    expected = [
        [f"`{f'/{each.name} {each.hint}'.strip()}`", each.description, f"`{each.example}`"]
        for each in COMMANDS
    ]
    assert table(section(REFERENCE, "Commands")) == expected, "\n".join(
        f"| {usage} | {what} | {example} |" for usage, what, example in expected
    )


def test_where_sessions_are_kept_and_how_many_is_true() -> None:
    text = " ".join(section(REFERENCE, "Sessions"))
    assert f"`{VARIABLE}`" in text
    assert f"last {MAX_SESSIONS} " in text
