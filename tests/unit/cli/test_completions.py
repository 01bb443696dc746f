"""Shell completion offers what exists, and nothing where something is broken."""

from __future__ import annotations

import pytest

from dragoman.cli.completions import (
    complete_broker,
    complete_dialect,
    complete_job,
    complete_peer,
    complete_role,
    complete_session,
    complete_setting,
    complete_variable,
)
from tests.unit.cli.calling import Shell


def test_peers_and_variables_are_completed(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "scout" in complete_peer("sc") and "codex" not in complete_peer("sc")
    monkeypatch.setenv("MY_OWN_KEY", "x")
    assert complete_variable("MY_OWN") == ["MY_OWN_KEY"]


def test_a_broken_configuration_completes_what_it_can(shell: Shell) -> None:
    shell.config.mkdir(parents=True)
    (shell.config / "config.toml").write_text("= broken")
    assert complete_peer("sc") in ([], ["scout"])


def test_roles_and_dialects_are_completed(shell: Shell) -> None:
    assert "review" in complete_role("rev")
    assert complete_dialect("acp") and complete_dialect("no such") == []


def test_nothing_is_offered_where_nothing_is_stored(shell: Shell) -> None:
    assert (complete_session("x"), complete_broker("x"), complete_job("x")) == ([], [], [])
    assert complete_job("la") == ["last"]


def test_settings_are_completed_with_those_of_every_peer(shell: Shell) -> None:
    assert complete_setting("default") == ["default_peer"]
    assert "timeouts.total" in complete_setting("timeouts.")
    found = complete_setting("peer.codex.")
    assert "peer.codex.env" in found and "peer.codex.limits.day_cost" in found
    assert "peer.codex.limits" not in found
