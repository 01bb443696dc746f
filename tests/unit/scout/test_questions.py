from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.scout import phrases, questions
from dragoman.scout.intents import (
    TAGS,
    Callers,
    CountFiles,
    Definition,
    FindFiles,
    FindText,
    Folder,
    Intent,
    Layout,
    ReadFile,
    RecentChanges,
    Tests,
    Todos,
    Uses,
)
from dragoman.scout.questions import QUESTIONS, understand

EXAMPLES = [(row.asks, example) for row in QUESTIONS for example in row.examples]


@pytest.mark.parametrize(("asks", "example"), EXAMPLES)
def test_every_example_is_understood_by_its_own_row(asks: str, example: str) -> None:
    intent = understand(example)
    assert intent is not None
    (row,) = [row for row in QUESTIONS if row.asks == asks]
    made = [
        made
        for pattern in row.patterns
        if (match := questions.expand(pattern).fullmatch(phrases.core(example)))
        and (made := row.make(match)) is not None
    ]
    assert intent in made


@pytest.mark.parametrize(
    ("text", "intent"),
    [
        ("where's connect", Definition("connect")),
        ("read src/app.py lines 2-3", ReadFile("src/app.py", 2, 3)),
        ("show me src/app.py lines 2 to 3", ReadFile("src/app.py", 2, 3)),
        ("show app.py from line 7", ReadFile("app.py", 7, 7)),
        ("Could you tell me where the AcpPeer class is defined, thanks?", Definition("AcpPeer")),
        ("where is `empty?` defined", Definition("empty?")),
        ("show me the definition of the function Session.prompt()", Definition("Session.prompt")),
        ("what does main() do?", Definition("main")),
        ("who calls it?", Callers("it")),
        ("usages of MAX", Uses("MAX")),
        ("is foo_bar used anywhere?", Uses("foo_bar")),
        ('search for "a b"', FindText("a b")),
        ("find the text a b c", FindText("a b c")),
        ("where are the files named conf*", FindFiles("conf*")),
        ("please list all the python files in this repository", FindFiles(language="Python")),
        ("what's in src/app", Folder("src/app")),
        ("list files in src", Folder("src")),
        ("explain the structure of this project", Layout()),
        ("todos", Todos()),
        ("show hacks in lib/x about speed of light", Todos(("HACK",), "speed of light", "lib/x")),
        ("what changed today?", RecentChanges(since="midnight")),
        ("what changed in the last week?", RecentChanges(since="1 week ago")),
        ("git log of src by Ada", RecentChanges(author="Ada", path="src")),
        ("what's new?", RecentChanges()),
        ("show me src/a.py:1-20", ReadFile("src/a.py", 1, 20)),
        ("first 30 lines of a.c", ReadFile("a.c", 1, 30)),
        ("line 7 of a.c", ReadFile("a.c", 7, 7)),
        ("how many Go files are in cmd?", CountFiles("cmd", "Go")),
        ("how many lines of code does this project have?", CountFiles()),
        ("are there any tests for parse?", Tests("parse")),
    ],
)
def test_many_ways_to_ask_are_understood(text: str, intent: Intent) -> None:
    assert understand(text) == intent


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "why is the sky blue?",
        "write a poem",
        "fix the bug in parser.py",
        "what is the meaning of life",
        "how does the cache work?",
        "run the tests",
        "delete everything",
        "where are errors handled?",
        "what's the weather",
        "fix TODOs",
        "how many functions are there?",
        "rename Session to Conversation",
        "where is " + "x " * 400,
    ],
)
def test_what_is_not_understood_is_not_guessed_at(text: str) -> None:
    assert understand(text) is None


def test_a_file_that_was_handed_over_is_what_this_file_means() -> None:
    assert understand("read this file", ["/w/a.py"]) == ReadFile("/w/a.py")
    assert understand("", ["/w/a.py"]) == ReadFile("/w/a.py")
    assert understand("where is x defined?", ["/w/a.py"]) == Definition("x")


def test_every_mark_counts_for_todos_and_one_for_the_others() -> None:
    assert understand("list the TODOs") == Todos(TAGS)
    assert understand("list the FIXMEs") == Todos(("FIXME",))


WORDS = st.sampled_from(
    "what where is the files in of lines show last by since changed x `a 'b \" . - ' to and".split()
)


@settings(max_examples=300)
@given(st.lists(WORDS, max_size=80).map(" ".join) | st.text(max_size=500))
def test_any_text_is_a_question_or_none(text: str) -> None:
    understand(text)
