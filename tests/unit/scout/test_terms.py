from __future__ import annotations

import re

import pytest

from dragoman.scout.terms import (
    MAX_TERMS,
    literal_pattern,
    matches,
    split_words,
    stem,
    terms_of,
    text_pattern,
)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("HTTPServer.run_all", ("http", "server", "run", "all")),
        ("parseRange2", ("parse", "range", "2")),
        ("src/wire/framing.py", ("src", "wire", "framing", "py")),
        ("__init__", ("init",)),
        ("größe", ("gr", "öß", "e")),
    ],
)
def test_names_are_split_into_words(name: str, words: tuple[str, ...]) -> None:
    assert split_words(name) == words


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("frame frames framing framed", "fram"),
        ("connection connections connect connected", "connect"),
        ("policy policies", "policy"),
        ("log logging logged", "log"),
        ("line lines", "line"),
        ("process", "process"),
        ("exit", "exit"),
    ],
)
def test_forms_of_a_word_have_one_stem(words: str, expected: str) -> None:
    assert {stem(word) for word in words.split()} == {expected}


def test_stop_words_and_vague_words_are_dropped_and_names_are_split() -> None:
    assert terms_of("Where is the line framing implemented, please?") == {
        "line": "line",
        "fram": "framing",
    }
    assert list(terms_of("how does SessionFiles keep its history?")) == ["sess", "keep", "history"]


def test_vague_words_count_if_there_are_no_others() -> None:
    assert list(terms_of("where is the class defined?")) == ["class", "defin"]
    assert terms_of("what is it?") == {}


def test_there_is_a_bound_to_the_number_of_terms() -> None:
    assert len(terms_of(" ".join(f"word{letter}" for letter in "abcdefghijklmnop"))) == MAX_TERMS


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("frame", True),
        ("a FRAMING", True),
        ("self.lineFrame", True),
        ("line_frame", True),
        ("9frame", True),
        ("aframe", False),
        ("AFRAME", False),
    ],
)
def test_a_term_is_found_at_the_beginning_of_a_word(line: str, found: bool) -> None:
    assert bool(re.search(text_pattern("fram"), line)) is found


def test_a_text_is_found_exactly() -> None:
    text = r"a.b (c) [d] {e} f|g ^h$ \i * + ? -"
    assert re.fullmatch(literal_pattern(text), text)


@pytest.mark.parametrize(
    ("term", "word", "expected"),
    [
        ("fram", "framing", 1.0),
        ("fram", "framework", 0.5),
        ("configur", "config", 0.5),
        ("set", "framing", 0.0),
        ("settl", "set", 0.0),
    ],
)
def test_a_word_fits_a_term_more_or_less(term: str, word: str, expected: float) -> None:
    assert matches(term, word) == expected
