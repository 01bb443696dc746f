"""Peers as rows and pages."""

from __future__ import annotations

from msgspec import structs

from dragoman.catalogue import Credentials, Launch, Quirks
from dragoman.catalogue.card import Card, MeasuredFacts
from dragoman.catalogue.launch import LaunchSpec
from dragoman.cli.output.peer_pages import HEAD, page, page_as_json, row_as_cells, row_as_json
from dragoman.delegation.peer_status import PeerStatus
from tests.unit.catalogue.catalogues import peer
from tests.unit.runs.contexts import card_of

MINE = structs.replace(
    peer("mine", "review", "plan"),
    launch=(
        Launch(command=("mine", "--acp")),
        Launch(command=("mine", "old"), platforms=("linux",), deprecated=True),
    ),
    credentials=Credentials(env=("A_KEY", "B_KEY"), login="run `mine login`"),
    quirks=Quirks(terminals=True, mode_after_open="ask", error_texts=("Error:", "Oops")),
    notes="evil \x1b[2J notes",
)


def row(
    *, card: Card | None = None, version: str | None = "1.2.3", there: bool = True
) -> PeerStatus:
    way = LaunchSpec(command=("/bin/mine", "--acp"), descriptor=MINE) if there else None
    return PeerStatus(
        MINE, "test", True, way, "" if there else "no mine", version, card, ("a note",)
    )


def test_a_row_has_a_cell_for_every_heading() -> None:
    cells = row_as_cells(row(card=card_of("mine", facts=MeasuredFacts(sessions=True))))
    assert cells == [
        "mine",
        "yes",
        "yes",
        "1.2.3",
        "auto",
        "review,plan",
        "a session opens",
        "a note",
    ]
    assert len(cells) == len(HEAD)
    assert row_as_cells(row(version=None))[3] == "unknown"
    assert row_as_cells(row(version=None, there=False))[:4] == ["mine", "no", "yes", ""]


def test_a_row_for_programs_keeps_what_is_unknown_unknown() -> None:
    told = row_as_json(row(version=None, there=False))
    assert (told["version"], told["launch"], told["card"]) == (None, None, None)
    assert told["missing"] == "no mine"


def test_a_page_tells_everything_and_commands_no_terminal() -> None:
    text = page(row(card=card_of("mine")), ["B_KEY"], ["MY_KEY"])
    assert text.startswith("Mine (mine)\n")
    assert "A_KEY, B_KEY (set)" in text and "also passed" in text and "MY_KEY" in text
    assert "mine --acp; mine old (on linux) (deprecated)" in text
    assert "mode_after_open: ask" in text and "error_texts: Error:, Oops" in text
    assert "ok    handshake     it answered" in text
    assert "\x1b" not in text


def test_a_page_says_when_the_card_is_old_or_missing() -> None:
    assert "version 2.0 is installed now" in page(row(card=card_of("mine"), version="2.0"), [])
    assert "`dragoman peers verify mine` measures it" in page(row(there=False), [])


def test_a_page_for_programs_has_descriptor_and_card_in_their_own_shapes() -> None:
    told = page_as_json(row(card=card_of("mine")), ["A_KEY"])
    assert told["descriptor"]["quirks"]["terminals"] is True
    assert told["card"]["rungs"][0]["rung"] == "handshake"
    assert told["credentials_set"] == ["A_KEY"]
