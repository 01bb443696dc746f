"""What a beginning looks at, takes for granted, offers and delegates."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from dragoman.catalogue.card import CARDS, Card, CardStore, MeasuredFacts, RungResult, RungVerdict
from dragoman.catalogue.launch import current_platform
from dragoman.catalogue.roles import ROLES
from dragoman.delegation import Delegation
from dragoman.delegation.attempt_report import AttemptReport
from dragoman.delegation.peer_status import PeerStatus
from dragoman.delegation.routing import Decision
from dragoman.errors import DragomanError, NotInstalled, UnknownPeer, UsageError
from dragoman.events.words import Outcome
from dragoman.runs.context import RunContext
from dragoman.setup import init
from dragoman.setup.init import PROMPT, VerifiedPeer
from tests.aio import aio
from tests.unit.runs.contexts import card_of, place_in, program


def row_of(place: RunContext, name: str) -> PeerStatus:
    (row,) = init.look(place, [name]).installed
    return row


def here(card: Card, **changed: Any) -> Card:
    """A card of this machine."""
    return structs.replace(card, platform=current_platform(), **changed)


def keep(place: RunContext, card: Card) -> None:
    CardStore(place.paths.data / CARDS).save(card)


# -- looking


def test_installed_peers_are_distinguished_and_scout_is_not_listed_as_new(tmp_path: Path) -> None:
    program(tmp_path, "codex")
    found = init.look(place_in(tmp_path))
    assert [row.descriptor.name for row in found.installed] == ["codex"]
    missing = [row.descriptor.name for row in found.missing]
    assert "gemini" in missing and "codex" not in missing and "scout" not in missing


def test_what_is_suggested_are_the_agents_that_can_be_installed(tmp_path: Path) -> None:
    program(tmp_path, "codex")
    told = init.suggestions(init.look(place_in(tmp_path)))
    assert len(told) == len(init.SUGGESTED) - 1
    assert told[0] == "npm install -g @google/gemini-cli"


def test_a_peer_that_is_named_has_to_be_there(tmp_path: Path) -> None:
    program(tmp_path, "codex")
    program(tmp_path, "qwen")
    place = place_in(tmp_path)
    found = init.look(place, ["codex", "codex"])
    assert [row.descriptor.name for row in found.installed] == ["codex"]
    assert found.missing == ()
    with pytest.raises(NotInstalled):
        init.look(place, ["codex", "gemini"])
    with pytest.raises(UnknownPeer):
        init.look(place, ["nobody"])


# -- verifying


@pytest.mark.parametrize(
    ("changed", "turns", "counts"),
    [
        ({}, False, True),
        ({}, True, False),
        ({"turns": True}, True, True),
        ({"usable": False}, False, False),
        ({"platform": "elsewhere"}, False, False),
        ({"facts": MeasuredFacts(authenticated=False)}, False, False),
        ({"facts": MeasuredFacts(echo=False)}, False, False),
    ],
)
def test_a_card_counts_if_it_is_of_this_version_and_says_nothing_bad(
    tmp_path: Path, changed: dict[str, Any], turns: bool, counts: bool
) -> None:
    program(tmp_path, "codex")
    row = row_of(place_in(tmp_path), "codex")
    card = structs.replace(here(card_of("codex")), **changed)
    known = replace(row, card=card)
    assert init.kept_card(row, turns=turns) is None
    same = replace(known, version=card.version)
    assert init.kept_card(same, turns=turns) == (card if counts else None)
    assert init.kept_card(replace(known, version="9"), turns=turns) is None


@aio
async def test_each_peer_is_measured_once_and_what_is_known_not_at_all(tmp_path: Path) -> None:
    for name in ("codex", "gemini", "qwen"):
        program(tmp_path, name)
    place = place_in(tmp_path)
    keep(place, here(card_of("qwen")))
    rows = init.look(place, ["qwen", "codex", "gemini"]).installed
    climbed: list[tuple[str, bool]] = []
    rungs: list[tuple[str, str]] = []
    told: list[str] = []

    async def climb(way: Any, *, peer: str, turns: bool, on_rung: Any, **more: Any) -> Card:
        assert more["paths"] is place.paths
        climbed.append((peer, turns))
        if peer == "gemini":
            raise DragomanError("it is possessed")
        card = here(card_of(peer))
        on_rung(card.rungs[0])
        return card

    async def run(**how: Any) -> list[VerifiedPeer]:
        climbed.clear()
        return await init.prove(
            rows,
            place,
            on_rung=lambda name, rung: rungs.append((name, rung.rung)),
            on_proof=lambda proof: told.append(proof.name),
            climb=climb,
            **how,
        )

    qwen, codex, gemini = await run()
    assert sorted(climbed) == [("codex", False), ("gemini", False)]
    assert (qwen.ready, qwen.kept) == (True, True)
    assert (codex.ready, codex.kept) == (True, False)
    assert (gemini.trouble, gemini.cure) == ("it is possessed", "dragoman peers verify gemini")
    assert rungs == [("codex", "handshake")]
    assert sorted(told) == ["codex", "gemini", "qwen"]
    await run(again=True)
    assert sorted(climbed) == [("codex", False), ("gemini", False), ("qwen", False)]
    await run(turns=True)
    assert sorted(climbed) == [("codex", True), ("gemini", True), ("qwen", True)]


@aio
async def test_a_callback_that_fails_ends_the_measuring_with_its_own_error(tmp_path: Path) -> None:
    for name in ("codex", "gemini"):
        program(tmp_path, name)
    place = place_in(tmp_path)
    rows = init.look(place, ["codex", "gemini"]).installed

    async def climb(way: Any, *, peer: str, **more: Any) -> Card:
        return here(card_of(peer))

    def tell(proof: VerifiedPeer) -> None:
        raise BrokenPipeError("the terminal is closed")

    with pytest.raises(BrokenPipeError):
        await init.prove(rows, place, on_rung=lambda *_: None, on_proof=tell, climb=climb)


def test_trouble_comes_with_its_cure(tmp_path: Path) -> None:
    program(tmp_path, "codex")
    row = row_of(place_in(tmp_path), "codex")
    login = init.judged(row, card_of("codex", facts=MeasuredFacts(authenticated=False)))
    assert (login.trouble, login.cure) == ("it requires a login", "run `codex login`")
    own = init.judged(
        row, card_of("codex", facts=MeasuredFacts(authenticated=False, login="knock"))
    )
    assert own.cure == "knock"
    failed = RungResult(
        rung="session", verdict=RungVerdict.FAIL, evidence="it slept", remedy="wake it"
    )
    broken = init.judged(row, structs.replace(card_of("codex", usable=False), rungs=(failed,)))
    assert (broken.trouble, broken.cure) == ("session: it slept", "wake it")
    mute = init.judged(row, card_of("codex", facts=MeasuredFacts(echo=False)))
    assert (mute.ready, mute.cure) == (False, "dragoman peers verify codex")
    assert init.judged(row, card_of("codex")).ready


# -- choosing


@pytest.mark.parametrize(
    ("answer", "picked"),
    [
        ("", ("codex", "qwen")),
        (" Yes ", ("codex", "qwen")),
        ("all", ("codex", "qwen")),
        ("n", ()),
        ("none", ()),
        ("qwen", ("qwen",)),
        ("qwen, codex qwen", ("qwen", "codex")),
    ],
)
def test_an_answer_picks_all_some_or_none(answer: str, picked: tuple[str, ...]) -> None:
    assert init.chosen(answer, ["codex", "qwen"]) == picked


def test_who_is_not_ready_cannot_be_picked() -> None:
    with pytest.raises(UsageError, match="gemini cannot be chosen; choose from codex"):
        init.chosen("codex gemini", ["codex"])


# -- the first piece of work


def test_the_first_work_is_as_harmless_as_those_who_are_enabled_allow(tmp_path: Path) -> None:
    place = place_in(tmp_path)
    assert init.first_wish(place, ["codex"]).role == "execute"
    assert init.first_wish(place, ["codex", "qwen", "copilot"]).role == "research"
    assert init.first_wish(place, ["codex", "gemini"]).role == "exploration"
    alone = init.first_wish(place, [])
    assert (alone.role, alone.prompt) == ("exploration", PROMPT)
    assert (alone.permissions, alone.workspace) == ("approve-reads", place.cwd)


def test_every_role_has_its_place_among_the_harmless_and_the_others() -> None:
    assert set(init.HARMLESS) == set(ROLES)


def attempt(peer: str, outcome: Outcome) -> AttemptReport:
    return AttemptReport(peer=peer, role="review", outcome=outcome, started_at=0.0, ended_at=1.0)


def delegated(*attempts: AttemptReport) -> Delegation:
    decision = Decision(
        role="review", tier=None, size="small", candidates=(), passed_over=(), order="fixed", why=""
    )
    return Delegation(job="j-1", decision_id="d-1", decision=decision, attempts=attempts)


def test_an_enabled_peer_that_answered_needs_no_notice() -> None:
    failed, ok = attempt("codex", Outcome.CRASHED), attempt("qwen", Outcome.OK)
    assert init.let_down(delegated(ok), ["qwen"]) is None
    assert init.let_down(delegated(failed, ok), ["codex", "qwen"]) is None


def test_a_last_resort_in_place_of_an_enabled_peer_is_reported() -> None:
    failed, scout = attempt("codex", Outcome.CRASHED), attempt("scout", Outcome.OK)
    assert init.let_down(delegated(failed, scout), ["codex"]) is failed
    assert init.let_down(delegated(scout), ["codex"]) is scout
    assert init.let_down(delegated(scout), []) is None
