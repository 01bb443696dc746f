"""Messages that are kept for sessions that are not open yet."""

from __future__ import annotations

import pytest

from dragoman.client import early_messages
from dragoman.client.early_messages import EarlyMessages


def test_nothing_is_kept_while_no_session_is_being_opened() -> None:
    early: EarlyMessages[str] = EarlyMessages()
    assert not early.keep("s1", "a", 1)
    assert early.take("s1") == []


def test_a_session_takes_its_own_messages_in_their_order() -> None:
    early: EarlyMessages[str] = EarlyMessages()
    with early.expecting():
        for session, message in (("s1", "a"), ("s2", "b"), ("s1", "c")):
            assert early.keep(session, message, 1)
        assert early.take("s1") == ["a", "c"]
        assert early.take("s1") == []
        assert len(early) == 1
        assert early.take("s2") == ["b"]


def test_what_is_left_is_dropped_when_the_last_opening_is_over() -> None:
    dropped: list[str] = []
    early: EarlyMessages[str] = EarlyMessages(dropped.append)
    with pytest.raises(ValueError), early.expecting():
        with early.expecting():
            early.keep("s1", "a", 1)
            early.keep("s2", "b", 1)
        assert dropped == []
        assert len(early) == 2
        raise ValueError
    assert dropped == ["a", "b"]
    assert len(early) == 0


def test_only_so_many_messages_are_kept_and_the_log_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(early_messages, "MAX_EARLY", 2)
    early: EarlyMessages[str] = EarlyMessages()
    with early.expecting():
        assert [early.keep("s1", message, 1) for message in "abcd"] == [True, True, False, False]
        assert len(caplog.records) == 1
        assert early.take("s1") == ["a", "b"]
        assert early.keep("s1", "d", 1)


def test_only_so_many_bytes_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early_messages, "MAX_EARLY_SIZE", 10)
    early: EarlyMessages[str] = EarlyMessages()
    with early.expecting():
        assert early.keep("s1", "a", 6)
        assert not early.keep("s1", "b", 6)
        assert early.keep("s2", "c", 4)
        assert early.take("s1") == ["a"]
        assert early.keep("s2", "d", 6)
    with early.expecting():
        assert early.keep("s1", "e", 10)
