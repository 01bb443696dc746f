from __future__ import annotations

import os

from dragoman.scout.hits import (
    MAX_AFTER,
    MAX_BEFORE,
    clean,
    is_text_path,
    shown_path,
    window,
)


def test_a_line_is_cut_to_a_window_around_what_was_found() -> None:
    line = b"x" * 5000 + b"HERE" + b"y" * 5000
    shown = window(line, 5000)
    assert shown.startswith("… x")
    assert "HERE" in shown
    assert len(shown) <= MAX_BEFORE + MAX_AFTER + 2


def test_a_short_line_is_whole_without_its_end() -> None:
    assert window(b"\tx = 1\r\n", 1) == "\tx = 1"


def test_bytes_that_are_not_text_and_signs_for_terminals_are_replaced() -> None:
    assert window(b"a\xffb\x1b[31m", 0) == "a\ufffdb\ufffd[31m"
    assert clean("a\ud800b\u2028c") == "a\ufffdb\ufffdc"


def test_paths_are_shown_on_one_line_whatever_they_hold() -> None:
    path = os.fsdecode(b"a\xff\n\x1bb")
    assert shown_path(path) == "a\ufffd\\n\ufffdb"
    assert not is_text_path(path)
    assert is_text_path("src/ä.py")
