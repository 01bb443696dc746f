"""Hunks of unified diffs as pairs of texts."""

from __future__ import annotations

import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.gateway.diff_hunks import hunks_of
from tests.amounts import SOME


def test_each_hunk_is_a_pair_of_texts_with_what_stands_around_it() -> None:
    diff = "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n@@ -9 +9,2 @@ def f\n nine\n+ten\n"
    assert hunks_of(diff) == [("one\ntwo\n", "one\n2\n"), ("nine\n", "nine\nten\n")]


def test_a_diff_without_the_names_of_files_is_read_too() -> None:
    assert hunks_of("@@ -1 +1 @@\n-old\n+new\n") == [("old\n", "new\n")]


def test_removed_lines_that_look_like_a_header_are_lines() -> None:
    assert hunks_of("@@ -1,2 +1 @@\n--- a\n-@@ -1 +1 @@\n+++ b\n") == [
        ("-- a\n@@ -1 +1 @@\n", "++ b\n")
    ]


def test_a_missing_newline_is_missing_on_its_own_side() -> None:
    bare = "\\ No newline at end of file"
    assert hunks_of(f"@@ -1 +1 @@\n-a\n{bare}\n+a\n") == [("a", "a\n")]
    assert hunks_of(f"@@ -1 +1 @@\n-a\n+a\n{bare}\n") == [("a\n", "a")]
    assert hunks_of(f"@@ -1,2 +1 @@\n-a\n b\n{bare}\n") == [("a\nb", "b")]


@pytest.mark.parametrize(
    "diff",
    [
        "",
        "some content\n",
        "@@ what @@\n",
        "@@ -1,2 +1,2 @@\n one\n",
        "@@ -1 +1 @@\n-a\n+b\ndiff --git a/y b/y\n@@ -1 +1 @@\n-a\n+b\n",
        "@@ -1 +1 @@\n*a\n+b\n",
        "@@ -1 +0,0 @@\n+a\n",
        "@@ -1 +1 @@\n\\ No newline at end of file\n",
    ],
)
def test_what_is_not_the_diff_of_one_file_gives_nothing(diff: str) -> None:
    assert hunks_of(diff) == []


LINES = st.lists(st.text(st.characters(exclude_characters="\n\r"), max_size=3), max_size=12)


@SOME
@given(LINES, LINES)
def test_a_hunk_of_a_whole_file_holds_the_whole_file(old: list[str], new: list[str]) -> None:
    before, after = ([line + "\n" for line in lines] for lines in (old, new))
    diff = "".join(difflib.unified_diff(before, after, n=len(old) + len(new)))
    expected = [("".join(before), "".join(after))] if before != after else []
    assert hunks_of(diff) == expected


@SOME
@given(st.text())
def test_garbage_is_never_an_exception(diff: str) -> None:
    hunks_of(f"@@ -1,2 +1,2 @@\n{diff}")
