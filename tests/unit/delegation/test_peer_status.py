"""All peers at a glance, without starting one."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.catalogue.card import CardStore, MeasuredFacts, RungVerdict
from dragoman.delegation.peer_status import PeerStatus, credentials_set, overview, row_of
from dragoman.errors import UnknownPeer
from tests.unit.runs.contexts import card_of, place_in, program


def test_every_peer_has_a_row_and_nothing_is_started(tmp_path: Path) -> None:
    mark = tmp_path / "started"
    program(tmp_path, "gemini", f"#!/bin/sh\ntouch {mark}\n")
    place = place_in(tmp_path)
    rows = {row.descriptor.name: row for row in overview(place)}
    assert set(rows) == set(place.catalogue.names)
    assert rows["gemini"].installed and not rows["gemini"].enabled
    assert rows["scout"].installed and rows["scout"].enabled
    assert not rows["qwen"].installed and "qwen" in rows["qwen"].missing
    assert not mark.exists()


def test_the_card_says_what_was_measured_and_of_which_version(tmp_path: Path) -> None:
    program(tmp_path, "qwen")
    place = place_in(tmp_path)
    store = CardStore(place.paths.data / "cards")

    def row() -> PeerStatus:
        return row_of("qwen", place)

    assert (row().version, row().card_state) == (None, "none")
    store.save(card_of("qwen", version="1.0"))
    assert (row().version, row().card_state) == ("1.0", "it starts")
    opens = MeasuredFacts(sessions=True)
    store.save(card_of("qwen", version="1.0", facts=opens))
    assert row().card_state == "a session opens"
    store.save(card_of("qwen", version="1.0", facts=opens, verdict=RungVerdict.WARN))
    assert row().card_state == "a session opens, 1 problem"
    for echo, said in ((True, "a turn completes"), (False, "a turn failed")):
        store.save(card_of("qwen", version="1.0", facts=MeasuredFacts(echo=echo)))
        assert row().card_state == said
    store.save(card_of("qwen", version="1.0", usable=False))
    assert row().card_state == "failed"


def test_a_card_of_another_version_is_distinguished(tmp_path: Path) -> None:
    place = place_in(tmp_path)
    CardStore(place.paths.data / "cards").save(card_of("scout", version="0.0.1"))
    row = row_of("scout", place)
    assert row.version != "0.0.1"
    assert row.card_state == "of 0.0.1"


def test_notes_say_what_a_user_has_to_know(tmp_path: Path) -> None:
    program(tmp_path, "cursor-agent")
    place = place_in(tmp_path)
    facts = MeasuredFacts(asks_permission=False, authenticated=False)
    CardStore(place.paths.data / "cards").save(card_of("cursor", facts=facts))
    assert row_of("cursor", place).notes == (
        "facts unverified",
        "permissions not enforced",
        "not logged in",
    )
    (place.paths.data / "cards" / "cursor" / "x.json").write_text("{")
    assert "its card cannot be used: verify it again" in row_of("cursor", place).notes


def test_a_generalist_is_flagged(tmp_path: Path) -> None:
    from dragoman.catalogue.roles import ROLES

    place = place_in(tmp_path)
    place.paths.peers_folder.mkdir(parents=True)
    (place.paths.peers_folder / "jack.toml").write_text(
        f'name = "jack"\ntitle = "Jack"\nroles = {list(ROLES)}\n[[launch]]\ncommand = ["jack"]\n'
    )
    assert "generalist" in row_of("jack", place.again()).notes


def test_credentials_are_reported_by_name_only(tmp_path: Path) -> None:
    place = place_in(tmp_path, {"GEMINI_API_KEY": "hidden"})
    assert credentials_set(place.catalogue.get("gemini"), place) == ("GEMINI_API_KEY",)


def test_a_peer_that_does_not_exist_has_no_row(tmp_path: Path) -> None:
    with pytest.raises(UnknownPeer):
        row_of("nobody", place_in(tmp_path))
