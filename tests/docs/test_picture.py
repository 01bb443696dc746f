"""The picture in the README shows what the command prints, and is drawn by its script.

What is another at every run (times, the id of the job, how many files there are) is masked.
"""

from __future__ import annotations

import pytest

from scripts.render_run import (
    COLUMNS,
    PICTURE,
    QUESTION,
    ROOT,
    SHOWN,
    Piece,
    draw,
    lines_of,
    masked,
    record,
    text_of,
)
from tests.docs.markdown import links


def test_the_picture_shows_what_the_command_prints_now() -> None:
    drawn = masked(text_of(PICTURE.read_text("utf-8")))
    printed = masked(text_of(draw(lines_of(record()))))
    assert drawn == printed, "run make picture"
    assert drawn[0] == SHOWN and drawn[-1] == "[done] ok, 0.0 s"


def test_the_readme_shows_the_picture_of_what_make_demo_runs() -> None:
    assert "docs/images/run.svg" in {target for _, target in links(ROOT / "README.md")}
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert f'-m dragoman run scout "{QUESTION}"' in makefile


def test_styles_and_long_lines_are_drawn_as_a_terminal_shows_them() -> None:
    shown = f"\x1b[2mdim\x1b[0m and <plain>\r\n\r\n\x1b[36m{'x' * (COLUMNS + 3)}\x1b[0m!\r\n"
    _, first, empty, folded, rest = lines_of(shown)
    assert first == (Piece("dim", ("2",)), Piece(" and <plain>"))
    assert (empty, folded) == ((), (Piece("x" * COLUMNS, ("36",)),))
    assert rest == (Piece("xxx", ("36",)), Piece("!"))
    lines = text_of(draw([first, empty, folded, rest]))
    assert lines == ["dim and <plain>", "", "x" * COLUMNS, "xxx!"]


def test_what_the_script_does_not_understand_is_not_drawn_wrongly() -> None:
    with pytest.raises(ValueError, match="cannot be drawn"):
        lines_of("\x1b[2Kgone\r\n")


def test_only_what_passes_is_masked() -> None:
    assert masked(["ok, 12.3 s, job j-1rc2900xm1", "1 place in 1,427 files, app.py:65"]) == [
        "ok, 0.0 s, job j-xxxxxxxxxx",
        "1 place in 0 files, app.py:65",
    ]
