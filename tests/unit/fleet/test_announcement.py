"""The peers that a worker announces."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.catalogue.card import CardStore, MeasuredFacts
from dragoman.fleet.announcement import announced_peers
from dragoman.fleet.job_run import worker_secrets
from dragoman.fleet.records import READY, PeerDetails
from dragoman.redaction.redactor import Redactor
from dragoman.runs.context import RunContext
from dragoman.store.ledger import Ledger, ledger_path
from dragoman.store.values import Health
from tests.unit.runs.contexts import card_of, place_in, program


@pytest.fixture
def place(tmp_path: Path) -> RunContext:
    program(tmp_path, "gemini")
    config = tmp_path / "config_home"
    config.mkdir()
    (config / "config.toml").write_text('enabled_peers = ["gemini", "qwen"]\n')
    return place_in(tmp_path, {"GEMINI_API_KEY": "sk-0123456789abcdef"})


def announced(place: RunContext) -> dict[str, PeerDetails]:
    return announced_peers(place, Redactor(worker_secrets(place)))


def change(place: RunContext, health: Health) -> None:
    with Ledger.open(ledger_path(place.paths.state)) as ledger:
        ledger.change_health(health.peer, lambda _: health)


def test_enabled_peers_and_scout_are_announced_with_their_state(place: RunContext) -> None:
    found = announced(place)
    assert {name: one.state for name, one in found.items()} == {
        "gemini": READY,
        "qwen": "not installed",
        "scout": READY,
    }
    assert "research" in found["gemini"].roles
    assert found["gemini"].breaker == ""


def test_a_peer_is_announced_with_its_card_and_health(place: RunContext) -> None:
    card = card_of("gemini", version="1.0", facts=MeasuredFacts(sessions=True))
    CardStore(place.paths.data / "cards").save(card)
    change(place, Health(peer="gemini", failures=1, last_ok_at=5.0))
    found = announced(place)["gemini"]
    assert (found.version, found.card) == ("1.0", "a session opens")
    assert (found.breaker, found.failures, found.last_ok_at) == ("closed", 1, 5.0)
    CardStore(place.paths.data / "cards").save(card_of("gemini", version="1.0", usable=False))
    assert announced(place)["gemini"].state == "failed verification"


def test_a_parked_peer_is_announced_with_its_end_and_without_secrets(place: RunContext) -> None:
    why = "no quota for sk-0123456789abcdef"
    change(place, Health(peer="gemini", parked_until=4e9, parked_why=why))
    state = announced(place)["gemini"].state
    assert state.startswith("parked until 2096-10-02T07:06:40Z: no quota for")
    assert "0123456789" not in state
