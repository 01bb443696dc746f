"""`dragoman init` without any agent: what it asks for, and what it says of a place like that."""

from __future__ import annotations

import json

import pytest

from tests.unit.cli.calling import Shell


@pytest.fixture(autouse=True)
def no_programs(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of this machine is installed in the tests."""
    (shell.home / "bin").mkdir()
    monkeypatch.setenv("PATH", str(shell.home / "bin"))


def test_without_a_terminal_it_requires_yes(shell: Shell) -> None:
    said = shell("init")
    assert (said.code, said.out) == (2, "")
    assert "add --yes" in said.err


def test_a_peer_that_is_not_installed_cannot_be_begun_with(shell: Shell) -> None:
    said = shell("init", "--yes", "codex", "--format", "json")
    assert said.code == 1
    (line,) = map(json.loads, said.out.splitlines())
    assert (line["type"], line["error"]) == ("Error", "not_installed")
    assert not shell.config.exists()


def test_a_broken_configuration_is_reported_before_anything_is_begun(shell: Shell) -> None:
    shell.config.mkdir()
    (shell.config / "config.toml").write_text("enabled_peers = 7\n")
    said = shell("init", "--yes")
    assert (said.code, said.out) == (2, "")
    assert "config.toml" in said.err
