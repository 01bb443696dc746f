from __future__ import annotations

import pytest
from msgspec import structs

from dragoman.catalogue.card import Card, MeasuredFacts, RungResult, RungVerdict
from dragoman.verify import report
from dragoman.verify.ladder import RUNGS

OK = RungResult(rung="binary", verdict=RungVerdict.PASS, evidence="found at /bin/x", seconds=0.01)
WARNING = RungResult(
    rung="late updates", verdict=RungVerdict.WARN, evidence="late", remedy="Wait.", seconds=1.25
)
FAILURE = RungResult(rung="handshake", verdict=RungVerdict.FAIL, evidence="silent", remedy="Look.")


def card(*rungs: RungResult, usable: bool = True, turns: bool = True) -> Card:
    return Card(
        peer="x",
        version="1.2",
        platform="linux",
        measured_at="",
        dragoman="",
        turns=turns,
        reached="",
        usable=usable,
        rungs=rungs,
    )


def test_a_rung_is_a_line_and_a_remedy_another() -> None:
    assert report.rung_lines(OK) == ["ok    binary        found at /bin/x"]
    head, remedy = report.rung_lines(WARNING)
    assert head == "warn  late updates  late (1.2 s)"
    assert remedy == " " * len("warn  late updates  ") + "what to do: Wait."


def test_the_names_of_all_rungs_fit_into_their_column() -> None:
    assert max(len(rung.name) for rung in RUNGS) == report.WIDTH


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (MeasuredFacts(dialect="acp"), "starts, speaks acp; no turn was tried"),
        (
            MeasuredFacts(dialect="acp", sessions=True),
            "starts, speaks acp, opens a session; no turn was tried; the login was not checked",
        ),
        (
            MeasuredFacts(dialect="acp", authenticated=False),
            "starts, speaks acp; no turn was tried; it requires a login",
        ),
        (
            MeasuredFacts(dialect="acp", sessions=True, authenticated=True, echo=True),
            "starts, speaks acp, opens a session, completes a turn",
        ),
        (
            MeasuredFacts(dialect="acp", sessions=True, authenticated=True, echo=False),
            "starts, speaks acp, opens a session; a turn failed",
        ),
    ],
)
def test_what_was_proved_is_said_and_what_was_not_tried(facts: MeasuredFacts, words: str) -> None:
    assert report.proved(structs.replace(card(OK), facts=facts)) == words


def test_the_summary_says_what_was_proved_or_where_it_stopped() -> None:
    assert report.summary(card(OK)) == "x 1.2: no turn was tried"
    assert report.summary(card(WARNING)) == "x 1.2: no turn was tried; 1 problem, see above"
    refused = card(OK, FAILURE, usable=False)
    assert report.summary(refused) == "x 1.2 cannot be used (see handshake)"


def test_the_whole_text_has_every_rung_and_ends_with_the_summary() -> None:
    lines = report.text(card(OK, FAILURE, usable=False)).splitlines()
    assert lines[0].startswith("ok")
    assert lines[1].startswith("FAIL")
    assert lines[-1] == "x 1.2 cannot be used (see handshake)"
