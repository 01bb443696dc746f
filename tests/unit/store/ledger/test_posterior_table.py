"""Posteriors and health in the ledger."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from msgspec import structs

from dragoman.store.values import Arm, Health, Posterior
from tests.unit.store.ledger.samples import START, learn, new_ledger

ARM = Arm(role="review", size="small", peer="codex", tier="strong")
OTHER = Arm(role="review", size="large", peer="codex", tier="strong")


def test_what_is_believed_survives_the_process_number_by_number(tmp_path: Path) -> None:
    belief = Posterior(
        alpha=2.25, beta=1.5, cost=None, seconds=12.5, pulls=7, updated_at=START + 0.125
    )
    with new_ledger(tmp_path) as ledger:
        learn(ledger, ARM, belief)
    with new_ledger(tmp_path) as ledger:
        assert ledger.posterior(ARM) == belief
        assert ledger.posterior(OTHER) is None
        assert ledger.posteriors() == {ARM: belief}


def test_a_saved_posterior_replaces_the_one_of_its_arm_only(tmp_path: Path) -> None:
    with new_ledger(tmp_path) as ledger:
        learn(ledger, ARM, Posterior(pulls=1))
        learn(ledger, OTHER, Posterior(pulls=2))
        learn(ledger, ARM, Posterior(pulls=3))
        assert ledger.posteriors() == {ARM: Posterior(pulls=3), OTHER: Posterior(pulls=2)}
        assert ledger.forget_posteriors() == 2
        assert ledger.posteriors() == {}


def test_of_a_peer_that_was_never_tried_nothing_is_known(tmp_path: Path) -> None:
    with new_ledger(tmp_path) as ledger:
        assert ledger.health("codex") == Health(peer="codex")
        assert ledger.healths() == {}


def test_a_parked_peer_is_parked_for_every_process_until_it_is_not(tmp_path: Path) -> None:
    with new_ledger(tmp_path) as ledger:
        ledger.park("codex", START + 60, "its quota is used up")
    with new_ledger(tmp_path) as ledger:
        found = ledger.health("codex")
        assert found.parking(START) and found.parking(START + 60) is None
        assert found.parked_why == "its quota is used up"
        ledger.change_health("codex", lambda health: structs.replace(health, opened_at=START))
        assert ledger.unpark("codex") == Health(peer="codex")
        assert ledger.healths() == {"codex": Health(peer="codex")}


def test_every_parked_peer_is_unparked_in_the_end(tmp_path: Path) -> None:
    with new_ledger(tmp_path) as ledger, pytest.raises(ValueError, match="finite time"):
        ledger.park("codex", math.inf, "x")


def test_a_change_cannot_move_to_another_peer(tmp_path: Path) -> None:
    with new_ledger(tmp_path) as ledger:
        ledger.change_health("codex", lambda health: structs.replace(health, peer="gemini"))
        assert list(ledger.healths()) == ["codex"]
        assert ledger.health("codex").peer == "codex"
