"""The page about the peers: a row and the evidence for each."""

from __future__ import annotations

from dragoman.catalogue import Descriptor, Launch, Quirks
from dragoman.catalogue.card import Card, RungResult, RungVerdict
from dragoman.catalogue.load import Catalogue, KnownPeer
from dragoman.catalogue.matrix import page
from dragoman.catalogue.roles import ROLES

USUAL = Quirks()


def peer(name: str, *roles: str, quirks: Quirks = USUAL, verified: bool = False) -> Descriptor:
    return Descriptor(
        name=name,
        title=name.title(),
        launch=(Launch(command=(name, "acp")), Launch(address="unix:/x", platforms=("linux",))),
        roles=roles,
        quirks=quirks,
        verified=verified,
        source="a test",
    )


def test_every_peer_has_a_row_with_its_roles_and_a_generalist_is_flagged() -> None:
    peers = [peer("all", *ROLES), peer("one", "plan", "translate", verified=True)]
    text = page(Catalogue(KnownPeer(each, "test") for each in peers))
    head = "| peer | " + " | ".join([*ROLES, "translate"]) + " | protocol | evidence |"
    assert head in text
    yes = " | ".join("yes" for _ in ROLES)
    assert f"| [all](#all) (generalist) | {yes} |  | auto | unverified |" in text
    assert "| [one](#one) |" in text and "| seen |" in text
    assert "| translate | a role of a peer's own | one |" in text


def test_a_section_says_how_it_is_started_and_what_is_odd_about_it() -> None:
    odd = peer("odd", quirks=Quirks(late_replay=True, error_texts=("Error: ",)))
    text = page(Catalogue([KnownPeer(odd, "test")]))
    assert "- Command: `odd acp`." in text
    assert "- Command: `unix:/x` on linux." in text
    assert "`late_replay`" in text and "`error_texts = 'Error: '`" in text
    assert "- Source: a test (unverified)." in text


def test_a_card_is_better_evidence_than_a_claim() -> None:
    card = Card(
        peer="one",
        version="1.2",
        platform="linux",
        measured_at="2026-11-16T00:00:00Z",
        dragoman="0",
        turns=False,
        reached="session",
        usable=True,
        rungs=(RungResult(rung="models", verdict=RungVerdict.FAIL, evidence=""),),
    )
    text = page(Catalogue([KnownPeer(peer("one"), "test")]), {"one": card})
    assert "card of 1.2, 2026-11-16" in text
    assert "- Card: 1.2 on linux, failed at models." in text
