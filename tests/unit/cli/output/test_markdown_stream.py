"""Markdown as rows, while it streams."""

from __future__ import annotations

import pytest

from dragoman.cli.output.markdown_stream import (
    MAX_PARSED,
    MAX_TABLE_ROWS,
    MarkdownStream,
    PlainStream,
)
from dragoman.cli.output.terminal import Paint

PLAIN = Paint(False)


def shown(text: str, width: int = 40, *, size: int = 0, unicode: bool = True) -> list[str]:
    """The rows of a text that comes in pieces of this size."""
    stream = MarkdownStream(PLAIN, unicode=unicode)
    rows = []
    for at in range(0, len(text), size or len(text)):
        rows += stream.feed(text[at : at + (size or len(text))], width)
        stream.open_rows(width, 10)
    return [str(row) for row in (*rows, *stream.end(width))]


BLOCKS = {
    "# Title": ["Title"],
    "#hash": ["#hash"],
    "- a\n  - b\n* c\n+ d": ["• a", "  • b", "• c", "• d"],
    "1. a\n12) b": ["1. a", "12) b"],
    "> a\n> > b": ["│ a", "│ │ b"],
    "- [x] done": ["• [x] done"],
    "a\n\n---\nb": ["a", "", "─" * 20, "b"],
    "```py\n  x = '*a*'\n```\n*b*": ["  py", "    x = '*a*'", "b"],
    "~~~\n```\n~~~": ["  ```"],
    "   ```\n  x\n   ```": ["    x"],
    "a\nb": ["a", "b"],
    "    indented": ["    indented"],
    "\ta": ["    a"],
    "| a |\nb": ["| a |", "b"],
    "| a | b |\n|---|:-:|\n| 1 | x \\| y |\nc": ["a  b", "─  ─────", "1  x | y", "c"],
    "|a|b|\n|-|-|\n|1|": ["a  b", "─  ─", "1"],
}


@pytest.mark.parametrize("size", [0, 1, 3])
@pytest.mark.parametrize("text", BLOCKS)
def test_blocks_are_rows_however_they_come(text: str, size: int) -> None:
    assert shown(text, size=size) == BLOCKS[text]


def test_without_unicode_the_signs_are_plain() -> None:
    assert shown("- a\n> b\n---\n", unicode=False) == ["* a", "| b", "-" * 20]


def test_long_lines_go_on_below_their_text() -> None:
    assert shown("- one two three", 9) == ["• one two", "  three"]
    assert shown("> one two", 7) == ["│ one", "│ two"]
    assert shown("  one two", 6) == ["  one", "  two"]


def test_code_is_left_in_one_piece() -> None:
    assert shown("```\n" + "x" * 50 + "\n```\n", 20) == ["  " + "x" * 50]


def test_a_table_that_is_too_wide_has_a_line_for_each_cell() -> None:
    table = "| one | two |\n|---|---|\n| aaaaaaaaaaaa | bbbbbbbbbbbb |\n| c | d |\n"
    assert shown(table, 20) == ["one: aaaaaaaaaaaa", "two: bbbbbbbbbbbb", "", "one: c", "two: d"]


def test_rows_that_cannot_change_are_returned_before_the_line_ends() -> None:
    stream = MarkdownStream(PLAIN)
    assert stream.feed("one two three", 8) == ["one two"]
    assert stream.open_rows(8, 10) == ["three"]
    assert stream.feed(" **four five six", 8) == ["three"]
    assert stream.open_rows(8, 10) == ["**four", "five six"]
    assert stream.feed("**", 8) == ["four"]
    assert [*stream.open_rows(8, 10), *stream.end(8)] == ["five six", "five six"]


def test_no_more_than_a_screen_is_open() -> None:
    stream = MarkdownStream(PLAIN)
    assert stream.feed("**a b c d e f", 3) == []
    assert stream.shrink(3, 10) == []
    assert stream.shrink(3, 2) == ["**a", "b c", "d e"]
    assert stream.open_rows(3, 2) == ["f"]


def test_a_long_table_goes_on_with_the_same_columns() -> None:
    stream = MarkdownStream(PLAIN)
    stream.feed("| name | b |\n|---|---|\n| 1 | 2 |\n", 40)
    assert stream.shrink(40, 2) == ["name  b", "────  ─", "1     2"]
    assert stream.feed("| 3 | 4 |\n| long word | 5 |\n\n", 40) == ["3     4", "long  5", "word", ""]
    many = "| a |\n|---|\n" + "| x |\n" * MAX_TABLE_ROWS
    assert shown(many).count("x") == MAX_TABLE_ROWS


def test_a_line_without_end_is_not_kept() -> None:
    stream = MarkdownStream(PLAIN)
    rows = stream.feed("**a " * MAX_PARSED, 40)
    assert sum(row.count("a") for row in rows) > MAX_PARSED * 0.9
    assert sum(map(len, stream.open_rows(40, 10))) <= 40


def test_what_other_output_made_final_is_not_shown_again() -> None:
    stream = MarkdownStream(PLAIN)
    stream.feed("- one", 40)
    assert stream.open_rows(40, 10) == ["• one"]
    stream.feed(" two", 40)
    stream.freeze()
    assert stream.open_rows(40, 10) == ["  two"]
    assert stream.feed(" three\nfour", 40) == ["  two three"]
    assert stream.end(40) == ["four"]


def test_thoughts_are_wrapped_and_have_no_markup() -> None:
    stream = PlainStream(PLAIN, "dim", lead="[thinking] ")
    rows = [*stream.feed("one *two* three\n", 20), *stream.feed("four", 20)]
    assert rows == ["[thinking] one *two*", "three"]
    assert stream.open_rows(20, 5) == ["four"]
    assert stream.shrink(20, 5) == []
    stream.freeze()
    assert stream.feed(" five", 20) == []
    assert stream.end(20) == [" five"]
    assert stream.end(20) == []
