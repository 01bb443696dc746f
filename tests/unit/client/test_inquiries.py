"""Questions to the user and their replies are plain values."""

from __future__ import annotations

from dragoman.client.inquiries import CANCELLED, DECLINED, Inquiry, Reply


def test_what_is_not_accepted_says_nothing() -> None:
    assert (DECLINED.action, DECLINED.content) == ("decline", None)
    assert (CANCELLED.action, CANCELLED.content) == ("cancel", None)
    assert Reply("accept", {"a": 1}) != DECLINED


def test_a_question_is_a_form_or_a_page() -> None:
    assert Inquiry("s", "m", {"type": "object"}).url is None
    assert Inquiry("s", "m", url="https://x").schema is None
