"""The picture in the README shows what the command prints, and is drawn by its script.

Values that differ in every run (times, the id of the job, the number of files) are masked.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from scripts.render_run import (
    ADVANCE,
    COLUMNS,
    MARGIN,
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

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

HEADLESS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)
"""Without a screen, and without a network."""

BROWSER_TIMEOUT = 50.0
"""Seconds for a browser to start and draw one picture on a busy machine."""


def test_the_picture_shows_what_the_command_prints_now() -> None:
    drawn = masked(text_of(PICTURE.read_text("utf-8")))
    printed = masked(text_of(draw(lines_of(record()))))
    assert drawn == printed, "run make picture"
    assert drawn[0] == SHOWN and drawn[-1] == "[done] ok, 0.0 s"


def test_blanks_are_kept_on_every_line() -> None:
    # Chromium does not inherit it from an element around them.
    picture = ElementTree.fromstring(PICTURE.read_text("utf-8"))
    lines = list(picture.iter("{http://www.w3.org/2000/svg}text"))
    space = "{http://www.w3.org/XML/1998/namespace}space"
    assert lines and {line.get(space) for line in lines} == {"preserve"}


MEASURE = """<script><![CDATA[
for (const line of document.querySelectorAll("text")) {
  const places = [];
  for (let at = 0; at < line.getNumberOfChars(); at++)
    places.push(Math.round(line.getStartPositionOfChar(at).x));
  line.setAttribute("data-places", places.join(" "));
}
]]></script>
</svg>"""


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_chromium_draws_every_character_in_its_column(tmp_path: Path) -> None:
    picture = PICTURE.read_text("utf-8")
    page = tmp_path / "run.svg"
    page.write_text(picture.replace("</svg>", MEASURE), "utf-8")
    done = subprocess.run(
        [str(CHROMIUM), *HEADLESS, f"--user-data-dir={tmp_path}/user", "--dump-dom", page.as_uri()],
        capture_output=True,
        text=True,
        timeout=BROWSER_TIMEOUT,
    )
    measured = re.findall(r'data-places="([^"]*)"', done.stdout)
    columns = [
        [f"{MARGIN + at * ADVANCE:g}" for at in range(len(line))] for line in text_of(picture)
    ]
    assert [line.split() for line in measured] == columns, done.stderr[-2000:]


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


def test_rows_that_were_erased_are_not_drawn() -> None:
    shown = "one\r\ntwo\r\n\x1b[2mstatus\x1b[0m\x1b[1A\r\r\x1b[Jthree\r\n"
    assert lines_of(shown)[1:] == [(Piece("one"),), (Piece("three"),)]


def test_what_the_script_does_not_understand_is_not_drawn_wrongly() -> None:
    with pytest.raises(ValueError, match="cannot draw"):
        lines_of("\x1b[2Kgone\r\n")


def test_only_what_passes_is_masked() -> None:
    assert masked(["ok, 12.3 s, job j-1rc2900xm1ab", "1 place in 1,427 files, app.py:65"]) == [
        "ok, 0.0 s, job j-xxxxxxxxxxxx",
        "1 place in 0 files, app.py:65",
    ]
