from __future__ import annotations

import pytest

from dragoman.agent import commands as syntax
from dragoman.scout.commands import BY_NAME, COMMANDS
from dragoman.scout.intents import (
    TAGS,
    CountFiles,
    Definition,
    FindFiles,
    FindText,
    Folder,
    Help,
    Intent,
    Layout,
    ReadFile,
    RecentChanges,
    Save,
    Todos,
)


def test_every_command_can_be_offered_and_its_example_is_understood() -> None:
    assert len(BY_NAME) == len(COMMANDS)
    for command in COMMANDS:
        assert syntax.is_name(command.name)
        name, _, words = command.example.partition(" ")
        assert name == f"/{command.name}"
        assert command.read(words) is not None


@pytest.mark.parametrize(
    ("name", "words", "intent"),
    [
        ("find", "connect()", Definition("connect")),
        ("text", '"not found"', FindText("not found")),
        ("files", "rust", FindFiles(language="Rust")),
        ("files", "conf", FindFiles("conf")),
        ("tree", "", Folder("", 3)),
        ("layout", "src", Layout("src")),
        ("todo", "", Todos(TAGS)),
        ("todo", "FIXME XXX in src/a about speed", Todos(("FIXME", "XXX"), "speed", "src/a")),
        ("changes", "", RecentChanges()),
        ("changes", "7 src by Ada since last week", RecentChanges(7, "last week", "Ada", "src")),
        ("read", "a.py:3", ReadFile("a.py", 3)),
        ("count", "python", CountFiles(language="Python")),
        ("count", "src", CountFiles("src")),
        ("save", "notes.md", Save("notes.md")),
        ("help", "anything", Help()),
    ],
)
def test_the_input_is_read(name: str, words: str, intent: Intent) -> None:
    assert BY_NAME[name].read(words) == intent


@pytest.mark.parametrize(
    ("name", "words"),
    [("find", ""), ("find", "two words"), ("uses", "("), ("text", " "), ("read", ""), ("save", "")],
)
def test_an_input_that_is_none_is_told(name: str, words: str) -> None:
    assert BY_NAME[name].read(words) is None
