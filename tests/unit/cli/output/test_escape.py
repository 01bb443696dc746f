"""Nothing that others say has power over a terminal."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from dragoman.cli.output.escape import Neutral, joined, neutral, one_line


@given(st.text(st.characters()))
def test_no_control_character_survives_but_newline_and_tab(text: str) -> None:
    left = {c for c in neutral(text) if unicodedata.category(c) in ("Cc", "Cs")}
    assert left <= {"\n", "\t"}


def test_escape_sequences_are_shown_instead_of_obeyed() -> None:
    assert neutral("\x1b]0;title\x07\x1b[2J\x9bH\x7f") == "␛]0;title␇␛[2J\ufffdH␡"


def test_a_carriage_return_cannot_hide_the_line_before_it() -> None:
    assert neutral("rm -rf /\rls") == "rm -rf /␍ls"
    assert neutral("one\r\ntwo\r\n") == "one\ntwo\n"


def test_direction_cannot_be_turned() -> None:
    assert neutral("a\u202eb\u2066c") == "a\ufffdb\ufffdc"


def test_ordinary_text_of_any_language_stays() -> None:
    for text in ("plain", "Grüße\n\tok", "日本語 🎉", "עברית"):
        assert neutral(text) == text


def test_one_line_is_one_line_and_can_be_cut() -> None:
    assert one_line(" a\n b\t c ") == "a b c"
    assert one_line("abcdef", width=4) == "abc…"
    assert one_line("abcd", width=4) == "abcd"


def test_what_takes_no_place_is_shown() -> None:
    for hidden in (
        "\u00ad\u200b\u200e\u2060\ufeff\U000e0041\U000e0100\u061c\u3164\u115f\u17b5\ufe01\U0001d173"
    ):
        assert neutral(f"a{hidden}b") == "a\ufffdb"
    assert neutral("👩\u200d💻 a\u200db") == "👩\u200d💻 a\ufffdb", "but for joined pictures"


def test_neutral_text_stays_neutral_and_what_is_added_to_it_becomes_so() -> None:
    ours = Neutral("\x1b[1mours\x1b[0m")
    assert neutral(ours) is ours
    assert type(ours + "\x1b") is Neutral and (ours + "\x1b").endswith("\x1b[0m␛")
    assert joined("\n", [ours, "\x9b"]) == "\x1b[1mours\x1b[0m\n\ufffd"
    assert type(one_line("a\n\x1b")) is Neutral
