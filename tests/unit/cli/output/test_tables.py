"""Columns line up, whole in a pipe and cut on a terminal."""

from __future__ import annotations

import io
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.cli.output import tables
from dragoman.cli.output.tables import (
    NARROWEST,
    aligned,
    columns,
    cut,
    facts,
    fit,
    fold_lines,
    folded,
    line,
    write_list,
    write_table,
)
from tests.amounts import SOME

LONG = "a note that is much longer than any terminal is wide, so it has to be cut somewhere " * 2


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_pipe_gets_whole_values_without_colour() -> None:
    stream = io.StringIO()
    write_table(["peer", "note"], [["codex", LONG], ["x", ""]], stream=stream)
    assert stream.getvalue().splitlines() == [
        "peer   note",
        f"codex  {LONG.strip()}",
        "x      -",
    ]


def test_a_terminal_gets_lines_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "width_of", lambda stream: os.terminal_size((60, 24)).columns)
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Screen()
    write_table(["peer", "note"], [["codex", LONG]], stream=stream)
    head, *lines = stream.getvalue().splitlines()
    assert len(lines) > 1 and all(columns(line) <= 60 for line in lines)
    assert " ".join(line.removeprefix("codex").strip() for line in lines) == LONG.strip()


def test_a_narrow_terminal_does_without_the_columns_that_matter_least(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tables, "width_of", lambda stream: 24)
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Screen()
    rows = [["codex", "0.166.0-beta", "yes, really"]]
    write_table(["peer", "version", "enabled"], rows, stream=stream, drop=["version"])
    assert stream.getvalue() == "peer   enabled\ncodex  yes, really\n"


def test_a_word_that_is_longer_than_its_column_is_cut() -> None:
    assert folded(["one two", "x" * 20], [4, 12]) == ["one   xxxxxxxxxxx…", "two"]


def test_values_of_others_stay_on_their_line() -> None:
    stream = io.StringIO()
    write_table(["a"], [["x\ny\x1b[2J"]], stream=stream)
    assert stream.getvalue() == "a\nx y␛[2J\n"


def test_wide_characters_count_twice_and_marks_not_at_all() -> None:
    assert (columns("日本"), columns("e\u0301"), columns("abc")) == (4, 1, 3)
    assert cut("日本語", 5) == "日本…"


@SOME
@given(
    st.lists(st.lists(st.text("ab ", max_size=60), min_size=3, max_size=3), min_size=1, max_size=4),
    st.integers(0, 120),
)
def test_columns_are_cut_only_as_far_as_needed(rows: list[list[str]], total: int) -> None:
    whole = fit(rows, 0)
    widths = fit(rows, total)
    assert all(cut_to <= full for cut_to, full in zip(widths, whole, strict=True))
    if sum(widths) + 4 > total > 0:
        assert max(widths) <= max(NARROWEST, *whole) and all(
            width <= NARROWEST or width == full for width, full in zip(widths, whole, strict=True)
        )


def test_rows_are_aligned_and_never_cut() -> None:
    assert aligned([("a", LONG.strip()), ("日本", ""), ("abc", "x")]) == [
        f"a     {LONG.strip()}",
        "日本",
        "abc   x",
    ]
    assert aligned([]) == []
    assert line(["ok", "python", LONG.strip()], (4, 3)) == f"ok    python  {LONG.strip()}"
    assert line(["", "", "cure"], (4, 3)) == "           cure"


def test_named_values_leave_out_the_empty_ones_and_obey_nothing() -> None:
    named = [("name", "x\ny"), ("none", None), ("empty", ""), ("a title", "\x1b[2J")]
    assert facts(named, indent="  ") == "  name     x y\n  a title  ␛[2J\n"
    assert facts([]) == ""


@pytest.mark.parametrize(
    ("format", "out"),
    [
        ("text", "name  size\na     1\nbb    2\n"),
        ("json", '{"type": "Item", "name": "a"}\n{"type": "Item", "name": "bb"}\n'),
        ("quiet", "a\nbb\n"),
    ],
)
def test_a_list_is_a_table_lines_of_json_or_names(
    format: str, out: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(["a", "bb"], format)
    said = capsys.readouterr()
    assert (said.out.replace('":"', '": "').replace('","', '", "'), said.err) == (out, "")


def test_a_list_without_items_is_empty_for_programs_and_a_sentence_for_people(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for format in ("json", "quiet"):
        write([], format)
    assert tuple(capsys.readouterr()) == ("", "")
    write([], "text")
    assert tuple(capsys.readouterr()) == ("", "There is none.\n")


def test_a_limited_list_says_that_there_is_more(capsys: pytest.CaptureFixture[str]) -> None:
    for format in ("json", "quiet", "text"):
        write(["a", "b"], format, limit=1)
        said = capsys.readouterr()
        assert "a" in said.out and "b" not in said.out
        assert said.err.startswith("There are more than 1;") == (format == "text")
    write(["a", "b"], "text", limit=2)
    assert capsys.readouterr().err == ""


def write(names: list[str], format: str, *, limit: int | None = None) -> None:
    write_list(
        names,
        format,
        head=["name", "size"],
        cells=lambda name: [name, str(len(name))],
        as_json=lambda name: {"type": "Item", "name": name},
        name=str,
        empty="There is none.",
        limit=limit,
    )


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("short\n", ["short", ""]),
        ("one two three four five", ["one two three four", "  five"]),
        (
            "  next:  look at all of it",
            ["  next:  look at all", "         of it"],
        ),
        ("run `a b c d` or `e f g h i` ", ["run `a b c d` or", "  `e f g h i` "]),
        ("see https://example.org/a/long/way now", ["see https://example.org/a/long/way", "  now"]),
        ("\x1b[1mbold\x1b[0m one two three", ["\x1b[1mbold\x1b[0m one two three"]),
    ],
)
def test_a_line_is_folded_between_words_and_below_its_label(text: str, rows: list[str]) -> None:
    assert fold_lines(text, 20).split("\n") == rows


@given(text=st.text("ab `,\n漢", max_size=80), width=st.integers(8, 60))
def test_folding_lines_changes_nothing_but_spaces(text: str, width: int) -> None:
    assert fold_lines(text, width).split() == text.split()
