"""Properties of Markdown on a terminal: for any text in any pieces, nothing is lost."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import example, given
from hypothesis import strategies as st

from dragoman.cli.output.markdown_stream import MarkdownStream
from dragoman.cli.output.tables import columns
from dragoman.cli.output.terminal import Paint
from tests.amounts import SOME

MARKS = ["*", "**", "_", "__", "`", "``", "```", "~~", "[", "](", ")", "<", ">", "#", "- ", "1. "]
WORDS = [
    "a",
    "bc",
    "word",
    "x" * 30,
    "漢字",
    "。",
    "é",
    "👍",
    "❤️",
    " ",
    "  ",
    "\n",
    "\n\n",
    "\\",
    "!",
]

sources = st.lists(st.sampled_from(MARKS + WORDS), max_size=60)
tables = st.lists(st.sampled_from(["|", "---", "\n|", "|\n", *WORDS, *MARKS]), max_size=60)
cuts = st.lists(st.integers(1, 7), min_size=1, max_size=5)


def shown(pieces: Sequence[str], width: int, height: int) -> list[str]:
    stream = MarkdownStream(Paint(False))
    rows: list[str] = []
    for piece in pieces:
        rows += stream.feed(piece, width)
        rows += stream.shrink(width, height)
        assert len(stream.open_rows(width, height)) <= height
    return [*rows, *stream.end(width)]


def pieces_of(text: str, sizes: Sequence[int]) -> list[str]:
    made: list[str] = []
    at = 0
    while at < len(text):
        size = sizes[len(made) % len(sizes)]
        made.append(text[at : at + size])
        at += size
    return made


def letters(text: str) -> str:
    return "".join(each for each in text if each.isalpha())


@SOME
@given(sources, cuts, st.integers(20, 60), st.integers(1, 8))
@example(["[", "word", "](", "a", ")"], [1], 20, 1)
@example(["**", "word", " ", "x" * 30, " ", "word", "**"], [3], 20, 2)
def test_every_letter_is_shown_once_and_in_its_order(
    source: list[str], sizes: list[int], width: int, height: int
) -> None:
    text = "".join(source)
    rows = shown(pieces_of(text, sizes), width, height)
    assert letters("".join(rows)) == letters(text)


@SOME
@given(sources, cuts, st.integers(20, 60))
def test_no_row_is_wider_than_the_window(source: list[str], sizes: list[int], width: int) -> None:
    text = "".join(each for each in source if "```" not in each and "~~" not in each)
    if "```" in text or "~~~" in text:
        return  # Code is written in one piece, so that it can be copied.
    assert all(columns(row) <= width for row in shown(pieces_of(text, sizes), width, 8))


@SOME
@given(tables, cuts, st.integers(20, 60), st.integers(1, 8))
def test_every_letter_of_a_table_is_shown(
    source: list[str], sizes: list[int], width: int, height: int
) -> None:
    text = "| a | b |\n|---|---|\n" + "".join(source)
    rows = shown(pieces_of(text, sizes), width, height)
    said, seen = letters(text), letters("".join(rows))
    # The column headers may precede every cell.
    assert all(seen.count(each) >= said.count(each) for each in set(said))
