from __future__ import annotations

from dragoman.scout import languages, markdown
from dragoman.scout.hits import Hit


def test_code_stays_code_whatever_is_in_it() -> None:
    assert markdown.code("x") == "`x`"
    assert markdown.code("a`b") == "``a`b``"
    assert markdown.code("`x`") == "`` `x` ``"
    assert "\n" not in markdown.code("a\nb")


def test_a_place_is_a_path_and_a_line() -> None:
    assert markdown.place("src/a.py", 3) == "`src/a.py:3`"
    assert markdown.place("src/a.py") == "`src/a.py`"
    assert markdown.place("a\nb") == "`a\\nb`"


def test_nothing_in_a_fence_can_close_it() -> None:
    shown = markdown.fence(["```", "x"], languages.of_path("a.py"))
    assert shown == "````python\n```\nx\n````"


def test_a_hit_is_one_line_and_not_too_long() -> None:
    item = markdown.bullet(Hit("a.py", 1, "  " + "x" * 500), "(note):")
    assert item.startswith("- `a.py:1` (note): `xxx")
    assert item.endswith("…`")
    assert len(item) < 200


def test_numbers_have_their_plurals() -> None:
    assert markdown.count(1, "file") == "1 file"
    assert markdown.count(1200, "file") == "1,200 files"
    assert markdown.count(2, "entry", "entries") == "2 entries"


def test_paragraphs_leave_out_what_is_empty() -> None:
    assert markdown.paragraphs("a", "", [], ["b", "c"]) == "a\n\nb\nc"


def test_a_list_says_how_many_more_there_are() -> None:
    assert markdown.listed(["- a"], 1) == ["- a"]
    assert markdown.listed(["- a"], 1201) == ["- a", "- … and 1,200 more"]
