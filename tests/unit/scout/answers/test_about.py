from __future__ import annotations

from dragoman.scout.answers.about import abilities, cannot
from dragoman.scout.commands import COMMANDS
from dragoman.scout.questions import QUESTIONS


def test_every_kind_of_question_and_every_command_is_told() -> None:
    said = abilities()
    assert all(row.asks in said and row.examples[0] in said for row in QUESTIONS)
    assert all(f"`/{command.name}" in said for command in COMMANDS)


def test_who_cannot_answer_says_what_could_be_answered() -> None:
    assert cannot().startswith("I cannot answer that.")
    assert "where is Session used?" in cannot()
    assert "`/help`" in cannot()
