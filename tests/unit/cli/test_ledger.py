"""`dragoman ledger` as a user calls it, with a real ledger."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dragoman.store.ledger import Ledger, ledger_path
from dragoman.store.values import Arm, Posterior
from tests.unit.cli.calling import Shell
from tests.unit.store.ledger.samples import attempt, ending

OLD = 1_700_000_000.0


@pytest.fixture
def state(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Path:
    state = shell.home / "state_home"
    monkeypatch.setenv("DRAGOMAN_STATE_HOME", str(state))
    return state


@pytest.fixture
def filled(state: Path) -> Path:
    with Ledger.open(ledger_path(state)) as ledger:
        arm = Arm(role="review", size="small", peer="codex")
        id = ledger.begin("d-1", {}, attempt(started_at=OLD))
        learned = (arm, lambda _: Posterior(pulls=1))
        ledger.finish(id, ending(ended_at=OLD + 1), learned=learned)
    return ledger_path(state)


def kinds(shell: Shell) -> list[str]:
    return [json.loads(line)["type"] for line in shell("ledger", "export").out.splitlines()]


def test_the_export_is_one_object_a_line(shell: Shell, filled: Path) -> None:
    assert kinds(shell) == ["Decision", "Attempt", "Posterior"]


def test_an_export_of_nothing_is_empty_and_makes_nothing(shell: Shell, state: Path) -> None:
    said = shell("ledger", "export")
    assert (said.code, said.out, said.err) == (0, "", "")
    assert not state.exists()


def test_pruning_keeps_what_was_learned_unless_told_otherwise(shell: Shell, filled: Path) -> None:
    said = shell("ledger", "prune", "--older-than", "1d", "--yes")
    assert said.code == 0 and "Deleted 1 attempt." in said.err
    assert kinds(shell) == ["Posterior"]
    said = shell("ledger", "prune", "--older-than", "1d", "--learned", "--yes")
    assert "Deleted what was learned about 1 choice." in said.err
    assert kinds(shell) == []


def test_nothing_is_deleted_without_a_yes(shell: Shell, filled: Path) -> None:
    said = shell("ledger", "prune", "--older-than", "1d")
    assert said.code == 2 and "--yes" in said.err
    assert kinds(shell) == ["Decision", "Attempt", "Posterior"]


def test_where_there_is_nothing_nothing_is_deleted(shell: Shell, state: Path) -> None:
    said = shell("ledger", "prune", "--older-than", "0s", "--yes")
    assert said.code == 0 and "nothing to delete" in said.err
    assert not state.exists()


def test_an_age_that_is_none_is_refused(shell: Shell, filled: Path) -> None:
    said = shell("ledger", "prune", "--older-than", "old", "--yes")
    assert said.code == 2 and "--older-than" in said.err
