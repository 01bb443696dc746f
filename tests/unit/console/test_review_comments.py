"""Unsent comments, shared by all browsers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.console import review_comments as module
from dragoman.console.review_comments import ReviewComments
from dragoman.delegation.review.comments import MAX_COMMENT, MAX_QUOTE, ReviewComment
from dragoman.errors import FileFailed, PatchChanged, UsageError
from dragoman.paths import Paths
from tests.unit.console.place import short_paths


@pytest.fixture
def paths() -> Iterator[Paths]:
    with short_paths() as paths:
        yield paths


def test_comments_are_kept_in_order_and_each_is_sent_once(paths: Paths) -> None:
    comments, other = ReviewComments(paths), ReviewComments(paths)
    one = comments.add("s-1", ReviewComment(text="one", path="a", line=1))
    two = other.add("s-1", ReviewComment(text="two"))
    three = comments.add("s-1", ReviewComment(text="three"))
    assert [each.id for each in other.of("s-1")] == [one, two, three]
    other.delete("s-1", two)
    other.delete("s-1", two)
    taken = comments.take("s-1", [one, three])
    assert [each.comment.text for each in taken] == ["one", "three"]
    assert other.of("s-1") == []
    with pytest.raises(PatchChanged, match="already sent or deleted"):
        other.take("s-1", [one])
    comments.put_back("s-1", taken)
    assert [each.id for each in other.of("s-1")] == [one, three]


def test_empty_long_and_excess_comments_are_refused(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "MAX_COMMENTS", 1)
    monkeypatch.setattr(module, "MAX_SESSIONS", 2)
    comments = ReviewComments(paths)
    for comment, word in (
        (ReviewComment(text=" "), "empty"),
        (ReviewComment(text="x" * (MAX_COMMENT + 1)), "at most"),
        (ReviewComment(text="x", quote="x" * 1000), "at most"),
        (ReviewComment(text="x", path="x" * 5000), "at most"),
    ):
        with pytest.raises(UsageError, match=word):
            comments.add("s-1", comment)
    for key in ("s-1", "s-2", "s-3"):
        comments.add(key, ReviewComment(text="x"))
    assert comments.of("s-1") == [] and len(comments.of("s-3")) == 1
    assert caplog.messages == ["dropped the unsent comments of session s-1: 1"]
    with pytest.raises(UsageError, match="send or delete some"):
        comments.add("s-3", ReviewComment(text="x"))


def test_comments_of_any_number_and_length_stay_readable(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_SIZE", 3 * 1024 * 1024)
    comments = ReviewComments(paths)
    long = ReviewComment(text="\U0001f4a5" * MAX_COMMENT, quote="q" * MAX_QUOTE)
    refused = 0
    for number in range(500):
        try:
            comments.add(f"s-{number % 4}", long)
        except UsageError as error:
            assert "send or delete" in str(error)
            refused += 1
            break
    assert refused == 1
    ids = [each.id for each in comments.of("s-0")]
    assert len(ids) > 10
    taken = comments.take("s-0", ids)
    comments.put_back("s-0", taken)
    assert [each.id for each in comments.of("s-0")] == ids


def test_a_damaged_file_is_moved_aside_and_never_overwritten(
    paths: Paths, caplog: pytest.LogCaptureFixture
) -> None:
    comments = ReviewComments(paths)
    comments.add("s-1", ReviewComment(text="x"))
    (paths.state / ReviewComments.FILE_NAME).write_text("{what a person wrote")
    assert comments.of("s-1") == []
    comments.add("s-1", ReviewComment(text="y"))
    assert [each.comment.text for each in comments.of("s-1")] == ["y"]
    (aside,) = paths.state.glob(f"{ReviewComments.FILE_NAME}.damaged-*")
    assert aside.read_text() == "{what a person wrote"
    assert str(aside) in caplog.text


def test_comments_that_cannot_be_stored_again_are_kept_until_they_can(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path, data: bytes, *, mode: int) -> None:
        raise FileFailed(str(path), "disk full")

    comments = ReviewComments(paths)
    id = comments.add("s-1", ReviewComment(text="keep me"))
    taken = comments.take("s-1", [id])
    with monkeypatch.context() as patch:
        patch.setattr(module, "write_file", fail)
        with pytest.raises(FileFailed):
            comments.put_back("s-1", taken)
        assert comments.of("s-1") == taken
    comments.add("s-2", ReviewComment(text="other"))
    assert comments.of("s-1") == ReviewComments(paths).of("s-1") == taken
    assert comments.take("s-1", [id]) == taken
    assert comments.of("s-1") == []
