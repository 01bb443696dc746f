from __future__ import annotations

import pytest

from dragoman.scout.questions import (
    HISTORY,
    MAX_QUESTION_SIZE,
    QUESTIONS,
    TAGS,
    TOO_LONG,
    WORK,
    BestPlaces,
    Definition,
    FindText,
    Help,
    Intent,
    Layout,
    ReadPath,
    Save,
    Todos,
    Uses,
    looks_like_path,
    of_command,
    understand,
)


@pytest.mark.parametrize(
    ("question", "intent"),
    [(example, kind.intent) for kind in QUESTIONS for example in kind.examples],
)
def test_every_example_is_understood(question: str, intent: type) -> None:
    assert isinstance(understand(question), intent)


@pytest.mark.parametrize(
    ("question", "intent"),
    [
        ("where is Foo defined?", Definition("Foo")),
        ("Could you tell me where `foo_bar` is declared, please?", Definition("foo_bar")),
        ("which file defines parse_range", Definition("parse_range")),
        ("where does MAX_SIZE come from?", Definition("MAX_SIZE")),
        ("what does Session.prompt() do?", Definition("Session.prompt")),
        ("where is main?", Definition("main", "where is main?")),
        ("where is caching implemented?", Definition("caching", "where is caching implemented?")),
        ("find all references to MAX_SIZE", Uses("MAX_SIZE")),
        ("who uses open_stdio?", Uses("open_stdio")),
        ("where is connect called?", Uses("connect", calls=True)),
        ("who calls it?", Uses("it", calls=True)),
        ("are there todos about numbers?", Todos(TAGS, "numbers")),
        ("list the FIXMEs in src", Todos(("FIXME",), "", "src")),
        ("how do I run this project?", Layout(entry_points=True)),
        ("what is this project about?", Layout()),
        ("how big is this repo?", Layout()),
        ("what is in this folder?", Layout()),
        ("what's in the src folder?", ReadPath("src")),
        ("show the tree of src", ReadPath("src")),
        ("cat a.py#L3-L9", ReadPath("a.py", 3, 9)),
        ("read it", ReadPath("it")),
        ("what is in ../", ReadPath("../")),
        ("grep for retry_after", FindText("retry_after")),
        ("where does 'no such file' come from?", FindText("no such file")),
        ("help", Help()),
        ("What can you do?", Help()),
    ],
)
def test_a_few_words_choose_an_intent(question: str, intent: Intent) -> None:
    assert understand(question) == intent


@pytest.mark.parametrize(
    "question",
    [
        "where is the line framing implemented?",
        "how does the doctor command work?",
        "where is the socket path used?",
        "what are the entry points of the broker?",
        "how are todos told from other comments?",
        "which files handle permissions?",
        "which tests are there for the ledger?",
        "where is pyproject.toml?",
        "where are commits counted?",
        "why is the sky blue?",
        "hello",
        "?",
        "",
    ],
)
def test_every_other_question_is_a_search(question: str) -> None:
    assert understand(question) == BestPlaces(question)


@pytest.mark.parametrize("task", ["fix the bug in a.py", "Please write a poem", "refactor Session"])
def test_a_task_is_known(task: str) -> None:
    assert understand(task) == BestPlaces(task, WORK)


@pytest.mark.parametrize(
    "question", ["what changed lately?", "Who changed a.py?", "show the last 5 commits"]
)
def test_a_question_about_the_history_is_known(question: str) -> None:
    assert understand(question) == BestPlaces(question, HISTORY)


def test_a_file_that_was_handed_over_is_what_is_meant() -> None:
    assert understand("read this file", ["/x/a.py"]) == ReadPath("/x/a.py")
    assert understand("", ["/x/a.py"]) == ReadPath("/x/a.py")
    question = "where is the line framing implemented?"
    assert understand(question, ["/x/a.py"]) == BestPlaces(question)


@pytest.mark.parametrize(
    ("word", "expected"),
    [("a.py", True), ("src/", True), ("*.x", True), ("README", True), ("..", True),
     ("a.py:3", True), ("os.path.join", False), ("Session", False), ("Session.run", False)],
)  # fmt: skip
def test_paths_are_distinguished_from_names(word: str, expected: bool) -> None:
    assert looks_like_path(word) is expected


@pytest.mark.parametrize(
    ("name", "words", "intent"),
    [
        ("search", "line framing", BestPlaces("line framing")),
        ("find", "connect()", Definition("connect")),
        ("uses", "`Session.prompt`", Uses("Session.prompt")),
        ("calls", "connect", Uses("connect", calls=True)),
        ("text", '"not found"', FindText("not found")),
        ("layout", "src", Layout("src")),
        ("todo", "", Todos(TAGS)),
        ("todo", "FIXME XXX in src/a about speed", Todos(("FIXME", "XXX"), "speed", "src/a")),
        ("read", "a.py:3", ReadPath("a.py", 3)),
        ("read", "a.py 10-20", ReadPath("a.py", 10, 20)),
        ("save", "notes.md", Save("notes.md")),
        ("help", "anything", Help()),
    ],
)
def test_the_input_of_a_command_is_read(name: str, words: str, intent: Intent) -> None:
    assert of_command(name, words) == intent


@pytest.mark.parametrize(
    ("name", "words"),
    [("find", ""), ("find", "two words"), ("uses", "("), ("text", " "), ("read", ""), ("save", "")],
)
def test_an_input_that_is_none_is_reported(name: str, words: str) -> None:
    assert of_command(name, words) is None


def test_a_question_that_is_too_long_is_not_taken_for_work() -> None:
    text = "where is " + "the parser " * 60
    assert understand(text) == BestPlaces(text[:MAX_QUESTION_SIZE], TOO_LONG)
