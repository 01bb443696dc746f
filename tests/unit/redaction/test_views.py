"""A text is read without its encodings, and every place has a way back."""

from __future__ import annotations

import pytest

from dragoman.redaction.views import DecodedText, decoded, is_encoded, size_before, size_behind


def test_colours_percents_and_escapes_are_read_through() -> None:
    text = "a\x1b[1;32mb%41\\u0042\\x43\\n\\\\u0064"
    assert is_encoded(text)
    assert decoded(text) == DecodedText(text).text == "abABC\nd"


def test_every_way_to_write_a_control_sequence_and_an_escape_is_read_through() -> None:
    for colour in (
        "\x1b[1;32m",
        "\x9b1;32m",
        "\\u001b[1;32m",
        "\\u009b1;32m",
        "\\x1b[0m",
        "\\033[0m",
    ):
        assert decoded(f"a{colour}b") == "ab", colour
    assert decoded("https%253A%252F%25252F") == "https://"
    assert decoded("ghp\\_a\\-b\\.c") == "ghp_a-b.c", "as Markdown is written"


def test_a_plain_text_is_its_own_view() -> None:
    assert not is_encoded("plain")
    assert DecodedText("plain").text == "plain"
    assert decoded("50% of it") == "50% of it"


def test_the_way_back_covers_what_was_encoded() -> None:
    text = "x%41\x1b[0mbc\\u0064."
    view = DecodedText(text)
    assert view.text == "xAbcd."
    start, stop = view.origin(1, 5)
    assert text[start:stop] == text[1:-1]
    assert view.origin(0, 1) == (0, 1)
    assert view.origin(2, 3) == (8, 9)


def test_a_size_is_counted_in_characters_as_they_read() -> None:
    plain, escaped = "x" * 100, "\\u0041" * 100
    for size in (size_before(plain, 100, 10, 1000), size_behind(plain, 0, 10, 1000)):
        assert size == 10
    for size in (size_before(escaped, 600, 50, 1000), size_behind(escaped, 0, 50, 1000)):
        assert 300 <= size < 2 * 300
    for size in (size_before(escaped, 600, 90, 100), size_behind(escaped, 0, 90, 100)):
        assert size == 100, "and no more than is allowed"
    assert size_before(escaped, 0, 10, 100) == size_behind(escaped, 600, 10, 100) == 10


@pytest.mark.parametrize(
    "text", ["\\" * 200_000, "\\\\x" * 60_000, "%25" * 60_000, "\x1b[1;" * 60_000]
)
def test_a_long_run_of_escapes_costs_no_more_than_its_length(text: str) -> None:
    # With a cost of the square of the length, this takes minutes.
    assert decoded(text + " \\u0041").endswith("A")


def test_an_escape_behind_the_end_of_a_control_sequence_is_read_through() -> None:
    assert decoded("\x1b\\\\u0041") == decoded("\\033\\\\u0041") == "A"
    assert decoded("\\" * 100 + "u0041") == "A"
