"""Patterns with stars."""

from __future__ import annotations

import pytest

from dragoman.policy.globs import matches, may_begin, path_matches, plain


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("git", "git", True),
        ("git", "gitk", False),
        ("git", "Git", False),
        ("g*t", "gt", True),
        ("g*t", "g/i/t", True),
        ("g?t", "gt", False),
        ("*", "", True),
        ("a*b*c", "aXbXbXc", True),
        ("a*b*c", "aXbXbX", False),
        ("[a]", "a", False),
        ("[a]", "[a]", True),
    ],
)
def test_a_word_fits_or_not(pattern: str, text: str, fits: bool) -> None:
    assert matches(pattern, text) is fits


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("/a/b", "/a/b", True),
        ("/a/*", "/a/b", True),
        ("/a/*", "/a/b/c", False),
        ("/a/*", "/a/", True),
        ("/a/**", "/a", True),
        ("/a/**", "/a/b/c", True),
        ("/a/**", "/ab", False),
        ("/a/**/c", "/a/c", True),
        ("/a/**/c", "/a/b/b/c", True),
        ("/a/**/c", "/a/bc", False),
        ("/a/**/c", "/a/b/c/d", False),
        ("**/*.py", "x.py", True),
        ("**/*.py", "a/b/x.py", True),
        ("**/*.py", "a/b/x.pyc", False),
        ("**", "anything/at/all", True),
        ("/**", "/etc/passwd", True),
        ("a?c", "a/c", False),
    ],
)
def test_no_star_crosses_a_slash_but_two(pattern: str, path: str, fits: bool) -> None:
    assert path_matches(pattern, path) is fits


def test_a_beginning_may_become_a_word() -> None:
    assert may_begin("push", "pu") and may_begin("p*", "pxx") and not may_begin("push", "pull")


def test_case_and_forms_of_letters_do_not_count_where_they_should_not() -> None:
    assert plain("ＥＮＶ") == plain("env") == plain("Env")
    assert plain("é") == plain("e\u0301")


def test_a_pattern_against_us_does_not_take_long() -> None:
    # By trying every reading this would take longer than the world has been there.
    assert not matches("*a" * 100, "a" * 2000 + "b")
    assert not path_matches("**/a*/" * 30 + "b", "a/" * 500 + "c")
