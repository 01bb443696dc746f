"""Brokers as rows, pages and lines."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from dragoman.cli.output import broker_pages
from tests.unit.cli.brokers import RECORD

STATUS: dict[str, Any] = {
    "state": "idle",
    "callers": 2,
    "peerRss": 300 * 2**20,
    "rss": 30 * 2**20,
    "idleSince": 940.0,
    "waiting": 0,
    "sessions": [
        {"key": "s-1", "name": "parser", "running": "j-1", "queued": 2, "quarantined": True},
        "nonsense",
    ],
}
NOW = 1060.0


def test_a_broker_is_a_row_with_what_it_takes() -> None:
    assert broker_pages.as_cells(RECORD, STATUS, NOW) == [
        "gemini-0123456789ab", "gemini", "idle", "2", "2", "300 MiB", "2 min", "/w",
    ]  # fmt: skip


def test_a_broker_that_does_not_answer_is_shown_as_what_is_written_down() -> None:
    row = broker_pages.as_cells(RECORD, None, NOW)
    assert row[2:7] == ["does not answer", "", "", "", ""]
    assert broker_pages.state_of(replace(RECORD, draining=True), None) == "draining"
    assert broker_pages.as_json(RECORD, None)["status"] is None


def test_a_page_names_the_sessions_and_what_runs_in_them() -> None:
    page = broker_pages.page(RECORD, STATUS, NOW)
    assert "started        1 min ago\n" in page
    session = "s-1 (parser), running j-1, 2 waiting, does not respond to a cancel request"
    assert f"session        {session}\n" in page


def test_a_page_tells_what_is_wrong() -> None:
    page = broker_pages.page(RECORD, {**STATUS, "storing": "the disk is full"}, NOW)
    assert "not stored     the disk is full\n" in page
    assert "not stored" not in broker_pages.page(RECORD, {**STATUS, "storing": None}, NOW)


def test_numbers_that_are_none_are_left_out() -> None:
    odd = {"state": 7, "callers": True, "peerRss": "much", "sessions": 3, "idleSince": "then"}
    assert broker_pages.as_cells(RECORD, odd, NOW)[2:7] == ["does not answer", "", "", "", ""]
