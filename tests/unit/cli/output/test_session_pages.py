"""Sessions as rows, pages and lines."""

from __future__ import annotations

from dragoman.cli.output import session_pages
from dragoman.client.conversation import SessionSummary
from dragoman.runs.sessions import merge
from tests.unit.runs.stored import ROOT, session

NOW = 320.0


def test_a_stored_session_is_a_row_with_its_age_and_state() -> None:
    (listed,) = merge([session(name="parser", next_event=7, title="Parsing")])
    assert session_pages.as_cells(listed, NOW) == [
        "s-0000000001", "parser", "scout", "open", "7", "2 min ago", "Parsing",
    ]  # fmt: skip
    (closed,) = merge([session(closed_at=300.0)])
    assert session_pages.as_cells(closed, NOW)[3] == "closed"


def test_a_session_without_a_title_is_shown_with_its_first_prompt() -> None:
    prompts = {"s-0000000001": "fix the\nfailing test " + "x" * 100}
    (listed,) = merge([session()])
    shown = session_pages.as_cells(listed, NOW, prompts)[-1]
    assert shown.startswith("fix the failing test x")
    assert len(shown) <= session_pages.TITLE_WIDTH
    (titled,) = merge([session(title="Parsing")])
    assert session_pages.as_cells(titled, NOW, prompts)[-1] == "Parsing"


def test_what_only_the_peer_remembers_is_shown_by_its_own_id() -> None:
    (listed,) = merge([], [SessionSummary("x1", "/w", "Old", "yesterday")], peer="gemini")
    assert session_pages.as_cells(listed, NOW) == [
        "x1", "", "gemini", "peer's own", "", "yesterday", "Old",
    ]  # fmt: skip
    assert len(session_pages.as_cells(listed, NOW)) == len(session_pages.HEAD)


def test_both_kinds_have_the_same_fields_for_programs() -> None:
    told = [SessionSummary("peer-s-0000000001"), SessionSummary("x1", "/w")]
    ours, theirs = merge([session()], told, peer="scout")
    assert list(session_pages.as_json(ours)) == list(session_pages.as_json(theirs))
    assert session_pages.as_json(ours)["at_peer"] is True
    assert session_pages.as_json(theirs)["key"] is None
    assert session_pages.as_json(ours)["created_at"] == "1970-01-01T00:01:40.000+00:00"
    assert session_pages.record_as_json(session())["at_peer"] is None


def test_a_page_leaves_out_what_is_not_known_and_obeys_nothing() -> None:
    page = session_pages.page(session(title="\x1b[2Jclear"), NOW)
    assert "\x1b" not in page
    assert "model" not in page
    assert f"project    {ROOT}\n" in page
    assert "directory" not in page, "it is the project's"
