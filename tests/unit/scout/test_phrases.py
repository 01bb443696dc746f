from __future__ import annotations

import pytest

from dragoman.scout import phrases


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("where is x?", "where is x"),
        ("Hey scout, could you please tell me where is x?", "where is x"),
        ("  where\n is   x  ?? ", "where is x"),
        ("I want to know where is x, thanks!", "where is x"),
        ("where is x in this repository, please?", "where is x"),
        ("show me the tests in our code base", "the tests"),
        ("please", ""),
    ],
)
def test_politeness_and_punctuation_are_left_out(text: str, expected: str) -> None:
    assert phrases.core(text) == expected


def test_a_long_text_is_no_question() -> None:
    assert phrases.core("where is " + "x " * 300) == ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("connect", "connect"),
        ("`connect()`", "connect"),
        ("Session.prompt", "Session.prompt"),
        ("std::vector", "std::vector"),
        ("empty?", "empty?"),
        ("$items", "$items"),
        ("requires-python", "requires-python"),
        ("", None),
        ("a b", None),
        ("x" * 300, None),
        ("(", None),
    ],
)
def test_names_are_told_from_what_cannot_be_one(text: str, expected: str | None) -> None:
    assert phrases.symbol(text) == expected


@pytest.mark.parametrize("word", ["parse_range", "AcpPeer", "HTTP", "os.path", "main2", "Session"])
def test_what_only_programs_contain_looks_like_code(word: str) -> None:
    assert phrases.looks_like_code(word)


@pytest.mark.parametrize("word", ["weather", "the", "cache"])
def test_a_plain_word_does_not(word: str) -> None:
    assert not phrases.looks_like_code(word)


@pytest.mark.parametrize("word", ["src/x", "app.py", "pyproject.toml", "*.md", "Makefile"])
def test_files_look_like_paths(word: str) -> None:
    assert phrases.looks_like_path(word)


@pytest.mark.parametrize("word", ["connect", "Session.prompt", "dragoman.connect"])
def test_names_do_not_look_like_paths(word: str) -> None:
    assert not phrases.looks_like_path(word)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.py", ("a.py", None, None)),
        ("a.py:10", ("a.py", 10, None)),
        ("a.py:10-20", ("a.py", 10, 20)),
        ("`a.py:10-20`", ("a.py", 10, 20)),
        ("a.py#L10-L20", ("a.py", 10, 20)),
        ("a.py 3-4", ("a.py", 3, 4)),
        ("C:/x/a.py", ("C:/x/a.py", None, None)),
    ],
)
def test_lines_may_be_named_behind_a_path(
    text: str, expected: tuple[str, int | None, int | None]
) -> None:
    assert phrases.line_range(text) == expected


def test_it_and_this_mean_what_was_spoken_of() -> None:
    assert phrases.is_pronoun("It")
    assert not phrases.is_pronoun("item")
