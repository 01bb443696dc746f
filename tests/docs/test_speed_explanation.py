"""The chart of the speed page shows the figures of the benchmark, and the page agrees with them."""

from __future__ import annotations

from scripts.draw_speed import FIGURES, LIBRARIES, WORKS, draw, rows
from tests.docs.markdown import ROOT, links

PAGE = ROOT / "docs" / "explanation" / "speed.md"


def test_the_chart_is_drawn_from_the_figures() -> None:
    measured = rows(FIGURES.read_text("utf-8"))
    assert [row.work for row in measured] == list(WORKS)
    assert all(set(row.times) == set(LIBRARIES) for row in measured)
    chart = (ROOT / "docs" / "images" / "speed.svg").read_text("utf-8")
    assert chart == draw(measured), "run make picture"
    assert "../images/speed.svg" in {target for _, target in links(PAGE)}


def test_a_figure_is_read_in_its_unit() -> None:
    head = "work      figure  dragoman_acp  official  typescript"
    line = "--------  ------  ------------  --------  ----------"
    table = "\n".join(
        f"{work}".ljust(14) + "wall    1.50 s        20.0 ms   300 us" for work in WORKS
    )
    head, line = head.replace("work  ", "work      ", 1), "----" + line
    (first, *_) = rows(f"\ndragoman_acp: title\n\n{head}\n{line}\n{table}\n")
    assert first.times == {"dragoman_acp": 1500, "official": 20, "typescript": 0.3}


def test_the_page_is_short() -> None:
    lines = [line for line in PAGE.read_text("utf-8").splitlines() if line]
    assert len(lines) <= 20
