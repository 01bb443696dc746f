"""What every error says of itself."""

from __future__ import annotations

from dragoman.errors import DragomanError, UsageError
from dragoman.errors.base import shown


def test_what_a_peer_sent_is_quoted_and_cut_where_it_is_absurdly_long() -> None:
    assert shown("a\nb") == "'a\\nb'"
    long = shown("x" * 5000)
    assert len(long) < 200 and "5000 characters" in long


def test_a_wrong_use_is_our_own_fault_and_nothing_has_run() -> None:
    error = UsageError("no")
    assert isinstance(error, DragomanError)
    assert (error.blame, error.retryable, error.may_have_run) == ("us", False, False)
