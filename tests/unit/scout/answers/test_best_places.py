from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.scout.answers.best_places import MAX_PLACES, abilities, cannot
from dragoman.scout.commands import COMMANDS
from dragoman.scout.questions import QUESTIONS
from tests.aio import aio
from tests.unit.scout.asking import asked, project


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = {
        "wire/framing.py": '"""Split a stream into lines."""\n\n\nclass LineFramer:\n    pass\n',
        "wire/codes.py": "OK = 0\nREFUSED = 1\n",
        "tests/test_framing.py": "def test_lines_are_framed(): ...\n",
        "README.md": "A line about framing.\n",
    }
    return project(tmp_path, files)


@aio
async def test_any_question_gets_the_best_places_and_why_they_are(folder: Path) -> None:
    reply = await asked(folder, "where is the line framing implemented?")
    assert reply.stop == "end_turn"
    assert reply.text.startswith(
        "The best 3 places for `line`, `framing`:\n\n"
        "1. `wire/framing.py:4` (by its name, defines the class `LineFramer`,"
        " 2 of the words close together): `class LineFramer:`\n2. "
    )
    (updates,) = reply.tools.values()
    assert updates[-1].locations[0].path == str(folder / "wire/framing.py")
    assert updates[-1].raw_output["complete"]


@aio
async def test_words_that_are_found_nowhere_are_named(folder: Path) -> None:
    reply = await asked(folder, "where is the framing of frobnications?")
    assert reply.stop == "end_turn"
    assert "1. `wire/framing.py:4`" in reply.text
    assert "Nothing found for `frobnications`." in reply.text


@aio
async def test_words_that_no_file_has_together_are_reported(folder: Path) -> None:
    reply = await asked(folder, "how do streams get refused?")
    assert reply.stop == "end_turn"
    assert "No file has more than 1 of these words." in reply.text


@aio
async def test_a_question_whose_words_are_found_nowhere_is_refused(folder: Path) -> None:
    reply = await asked(folder, "why is the sky blue?")
    assert reply.stop == "refusal"
    assert reply.text.startswith("Nothing found for `sky`, `blue`.")
    assert "I cannot answer that." in reply.text


@aio
async def test_a_question_of_which_hardly_anything_is_found_is_refused_with_the_nearest(
    folder: Path,
) -> None:
    reply = await asked(folder, "why do blue whales sing codes?")
    assert reply.stop == "refusal"
    assert "Nothing found for `blue`, `whales`, `sing`." in reply.text
    assert "The nearest places:\n1. `wire/codes.py:1` (by its name)" in reply.text


@pytest.mark.parametrize(
    ("task", "why"),
    [
        ("fix the framing of lines", "I only read"),
        ("write a poem", "I only read"),
        ("word " * 200, "It has more than 400 characters."),
    ],
)
@aio
async def test_a_task_is_refused_and_places_may_help(task: str, why: str, folder: Path) -> None:
    reply = await asked(folder, task)
    assert reply.stop == "refusal"
    assert why in reply.text
    assert ("These places may help:\n1. `wire/framing.py:4`" in reply.text) is ("framing" in task)


@pytest.mark.parametrize("text", ["why?", "hello", "???"])
@aio
async def test_a_question_without_anything_to_look_for_is_refused(text: str, folder: Path) -> None:
    reply = await asked(folder, text)
    assert (reply.stop, reply.tools) == ("refusal", {})
    assert "nothing to search for" in reply.text


@aio
async def test_there_is_a_bound_to_the_places(folder: Path) -> None:
    for number in range(30):
        (folder / f"framing{number}.py").write_text("framing\n")
    reply = await asked(folder, "/search framing")
    assert f"The best {MAX_PLACES} places" in reply.text


def test_every_kind_of_question_and_every_command_is_reported() -> None:
    said = abilities()
    assert all(row.asks in said and row.examples[0] in said for row in QUESTIONS)
    assert all(f"`/{command.name}" in said for command in COMMANDS)


def test_a_refusal_says_what_could_be_answered() -> None:
    assert cannot("").startswith("I cannot answer that. I have no model")
    assert "where is Session used?" in cannot("")
    assert "`/help`" in cannot("")
