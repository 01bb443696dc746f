"""How sums look: nothing unknown is shown as zero, and nothing of others obeyed by a terminal."""

from __future__ import annotations

import csv
import io
from typing import Any

from msgspec import structs

from dragoman.cli.output import stat_pages
from dragoman.store.ledger.records import AttemptRecord, StatRow
from dragoman.store.values import Charge

ROW = StatRow(
    key="codex",
    attempts=10,
    ok=5,
    rejected=2,
    unfinished=0,
    fallbacks=2,
    good=1,
    bad=3,
    seconds=12.34,
    first_event_seconds=1.0,
    input_tokens=1234567,
    output_tokens=89,
    tokens_unknown=1,
    costs={"USD": 1.5, "credits": 0.25},
    cost_unknown=4,
    cost_estimated=0,
)
BARE = StatRow(
    key=None,
    attempts=1,
    ok=0,
    unfinished=1,
    fallbacks=0,
    good=0,
    bad=0,
    seconds=None,
    first_event_seconds=None,
    input_tokens=None,
    output_tokens=None,
    tokens_unknown=0,
    costs={},
    cost_unknown=0,
    cost_estimated=0,
)


class Page(io.TextIOWrapper):
    def __init__(self, encoding: str) -> None:
        super().__init__(io.BytesIO(), encoding=encoding, newline="")

    @property
    def text(self) -> str:
        self.flush()
        buffer: Any = self.buffer
        written: bytes = buffer.getvalue()
        return written.decode(self.encoding)


def test_a_row_says_what_is_known_and_how_much_is_not() -> None:
    assert stat_pages.as_cells(ROW, "peer") == [
        *("codex", "3 of 10 (30%)", "1.50 USD + 0.2500 credits", "4", "12.3 s", "1/3", "2"),
        *("1,234,567", "89"),
    ]
    assert stat_pages.as_cells(BARE, "model") == [
        "(not reported)",
        "0 of 1",
        "",
        "",
        "",
        "",
        "",
        "",
        "",
    ]
    assert len(stat_pages.head("peer")) == len(stat_pages.as_cells(ROW, "peer"))
    both = structs.replace(ROW, key="review", peer="codex")
    assert stat_pages.as_cells(both, "work")[:2] == ["review", "codex"]
    assert len(stat_pages.head("work")) == len(stat_pages.as_cells(both, "work"))


def test_the_sum_of_all_rows_says_what_is_unknown() -> None:
    assert stat_pages.summary([ROW, BARE]) == [
        "3 of 11 attempts done",
        "1 running or lost",
        "2 rejected by a check or a verdict",
        "the cost of 4 is unknown: the peer did not report it",
    ]


def test_an_estimate_has_a_mark() -> None:
    assert stat_pages.cost_of(structs.replace(ROW, cost_estimated=1)).startswith("~1.50 USD")


def test_a_line_of_json_has_every_field_of_the_row() -> None:
    line = stat_pages.as_json(ROW, "peer")
    assert list(line) == ["type", "by", *StatRow.__struct_fields__]
    assert stat_pages.as_json(BARE, "model")["input_tokens"] is None


def test_csv_has_empty_cells_for_what_is_unknown() -> None:
    page = io.StringIO()
    stat_pages.write_csv([ROW, BARE], "model", page)
    head, first, second = csv.reader(page.getvalue().splitlines())
    assert head == ["model", *StatRow.__struct_fields__[1:]]
    told = dict(zip(head, first, strict=True))
    assert (told["model"], told["input_tokens"]) == ("codex", "1234567")
    assert told["costs"] == "1.500000 USD + 0.250000 credits"
    assert dict(zip(head, second, strict=True))["seconds"] == ""


def test_bars_are_as_long_as_attempts_are_many_and_full_as_far_as_they_were_done() -> None:
    page = Page("utf-8")
    codex = structs.replace(ROW, rejected=0)
    stat_pages.write_chart(
        [codex, structs.replace(ROW, key="qwen", attempts=5, ok=5, rejected=0)], page
    )
    first, second = page.text.splitlines()
    assert first.startswith("codex 10 █") and second.startswith("qwen   5 █")
    # Within one column, which is what rounding leaves.
    assert abs(first.count("█") - first.count("░")) <= 1
    assert "░" not in second
    assert abs(second.count("█") * 2 - first.count("█") - first.count("░")) <= 1


def test_bars_are_plain_where_the_encoding_lacks_blocks() -> None:
    page = Page("ascii")
    stat_pages.write_chart([structs.replace(ROW, key="cödex")], page)
    assert page.text.startswith("c?dex 10 ###")


def test_a_name_cannot_command_a_terminal_or_push_the_bars_away() -> None:
    page = Page("utf-8")
    stat_pages.write_chart([structs.replace(ROW, key="\x1b]0;x\x07" + "y" * 200)], page)
    assert "\x1b" not in page.text
    assert len(page.text.rstrip("\n")) <= 80


def test_without_attempts_there_is_no_chart() -> None:
    page = Page("utf-8")
    stat_pages.write_chart([], page)
    assert page.text == ""


def test_the_machine_has_a_column_only_if_an_attempt_was_made_on_another_one() -> None:
    here = structs.replace(ROW, key="review", peer="codex")
    there = structs.replace(here, peer="codex@box", machine="box")
    assert "machine" not in stat_pages.head("work")
    assert stat_pages.head("work", machines=True)[:3] == ["role", "peer", "machine"]
    cells = [stat_pages.as_cells(row, "work", machines=True) for row in (here, there)]
    assert [row[:3] for row in cells] == [
        ["review", "codex", "(this machine)"],
        ["review", "codex@box", "box"],
    ]
    assert stat_pages.as_cells(structs.replace(ROW, key=None), "machine")[0] == "(this machine)"
    assert stat_pages.as_json(there, "work")["machine"] == "box"


def test_a_bar_names_the_machine_once() -> None:
    page = Page("utf-8")
    host = structs.replace(ROW, key="review", peer="codex@box", machine="box")
    worker = structs.replace(ROW, key="review", peer="codex", machine="worker-3")
    stat_pages.write_chart([host, worker], page)
    lines = page.text.splitlines()
    assert lines[0].startswith("review codex@box ")
    assert lines[1].startswith("review codex worker-3 ")


# -- attempts

RUNNING = AttemptRecord(
    job="j-1", decision_id="d-1", number=1, peer="codex", role="review", started_at=100.0
)


def test_an_attempt_without_an_end_is_running_and_its_cost_unknown() -> None:
    row = dict(zip(stat_pages.ATTEMPT_HEAD, stat_pages.attempt_cells(RUNNING, 160.0), strict=True))
    assert (row["outcome"], row["begun"], row["took"], row["cost"]) == (
        "running", "1 min ago", "", "unknown",
    )  # fmt: skip
    assert set(stat_pages.ATTEMPT_DROP) < set(stat_pages.ATTEMPT_HEAD)


def test_a_free_attempt_is_not_an_unknown_one() -> None:
    ended = AttemptRecord(
        job="j-1",
        decision_id="d-1",
        number=1,
        peer="codex",
        role="review",
        started_at=100.0,
        ended_at=102.0,
        outcome="ok",
        cost=Charge(amount=0.0, currency="USD"),
    )
    row = dict(zip(stat_pages.ATTEMPT_HEAD, stat_pages.attempt_cells(ended, 160.0), strict=True))
    assert (row["outcome"], row["took"], row["cost"]) == ("ok", "2.0 s", "0 USD")
    told = stat_pages.attempt_json(ended)
    assert (told["type"], told["job"]) == ("Attempt", "j-1")
