"""Inline Markdown, and rows that are wrapped at words."""

from __future__ import annotations

import pytest

from dragoman.cli.output.styled_rows import Piece, inline, plain, rows_of
from dragoman.cli.output.tables import columns
from dragoman.cli.output.terminal import Paint


def styled(source: str) -> list[tuple[str, ...]]:
    """The pieces that have a style, each with it."""
    return [(piece.text, *piece.styles) for piece in inline(source).pieces if piece.styles]


@pytest.mark.parametrize(
    ("source", "text", "styles"),
    [
        ("a **b c** d", "a b c d", [("b c", "bold")]),
        ("__b__ and *i* and _i_", "b and i and i", [("b", "bold"), ("i", "italic")] * 1),
        ("`a * b`", "a * b", [("a * b", "cyan")]),
        ("``a ` b``", "a ` b", [("a ` b", "cyan")]),
        ("**b *i* b**", "b i b", [("b ", "bold"), ("i", "bold", "italic"), (" b", "bold")]),
        ("[t](http://x)", "t (http://x)", [("t", "underline"), (" (http://x)", "dim")]),
        ("[t](http://x_(y))", "t (http://x_(y))", [("t", "underline")]),
        ("![t](x.png)", "t (x.png)", [("t", "underline")]),
        ("<https://x.y>", "https://x.y", [("https://x.y", "underline")]),
        ("这是**粗体**字", "这是粗体字", [("粗体", "bold")]),
        (r"\*a\* \_b", "*a* _b", []),
        ("snake_case_name 2**3**4 a*b*c", "snake_case_name 2**3**4 a*b*c", []),
        ("a * b * c", "a * b * c", []),
        ("[x] and [y] (z)", "[x] and [y] (z)", []),
        ("a < b > c <x>", "a < b > c <x>", []),
        (r"C:\new", r"C:\new", []),
    ],
)
def test_markup_is_understood_and_everything_else_is_text(
    source: str, text: str, styles: list[tuple[str, ...]]
) -> None:
    assert plain(source) == text
    assert styled(source)[: len(styles)] == styles
    assert bool(styled(source)) is bool(styles)


@pytest.mark.parametrize("source", ["a **b", "a `b", "a [b", "a [b](http", "a *b", "a ~~b"])
def test_what_is_not_closed_is_text_that_may_change(source: str) -> None:
    found = inline(source)
    assert (plain(source), found.unsure_at) == (source, 2)
    assert inline("a b").unsure_at == 3


def rows(text: str, width: int, **prefixes: str) -> list[str]:
    made = rows_of(inline(text).pieces, width, Paint(False), **prefixes)
    return [str(row.text) for row in made]


def test_rows_are_broken_at_words() -> None:
    assert rows("one two three", 8) == ["one two", "three"]
    assert rows("one  two", 20) == ["one  two"]
    assert rows("", 20) == [""]
    assert rows("  in", 20) == ["  in"]


def test_a_word_in_two_styles_is_not_broken() -> None:
    assert rows("one **tw**o", 5) == ["one", "two"]


def test_a_word_that_is_too_long_is_broken_anywhere() -> None:
    assert rows("abcdefgh", 3) == ["abc", "def", "gh"]
    assert rows("ab **cdef**gh", 4) == ["ab", "cdef", "gh"]


def test_prefixes_take_their_columns() -> None:
    assert rows("one two", 6, first="* ", others="  ") == ["* one", "  two"]


def test_wide_characters_take_two_columns_and_may_be_parted() -> None:
    assert rows("漢字漢字", 5) == ["漢字", "漢字"]
    assert rows("字字。字", 4) == ["字", "字。", "字"]
    assert rows("abc漢字", 5) == ["abc漢", "字"]
    assert rows("é" * 3 + "t", 9) == ["é" * 3 + "t"]
    assert rows("x 👩\u200d👩\u200d👧", 3) == ["x", "👩\u200d👩\u200d👧"] or columns("👩") == 2
    assert (columns("❤\ufe0f"), columns("e\u0301"), columns("👍")) == (2, 1, 2)


def test_a_row_knows_where_it_begins() -> None:
    source = "one **two three** four"
    made = rows_of(inline(source).pieces, 8, Paint(False))
    assert [(str(row.text), row.opened + source[row.at :]) for row in made] == [
        ("one two", source),
        ("three", "**three** four"),
        ("four", "four"),
    ]


def test_styles_are_put_around_text_and_take_no_columns() -> None:
    made = rows_of([Piece("a", ("bold",)), Piece(" b c")], 4, Paint(True))
    assert [str(row.text) for row in made] == ["\x1b[1ma\x1b[0m b", "c"]
