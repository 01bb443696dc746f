"""`dragoman doctor` as a user calls it."""

from __future__ import annotations

import json

import pytest

from tests.unit.cli.calling import Shell


@pytest.fixture(autouse=True)
def no_programs(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of this machine is installed in the tests."""
    (shell.home / "bin").mkdir()
    monkeypatch.setenv("PATH", str(shell.home / "bin"))


def test_a_healthy_place_is_reported_line_by_line(shell: Shell) -> None:
    said = shell("doctor")
    assert said.code == 0
    assert said.out.splitlines()[0].startswith("ok    python       Python 3.")
    assert "cure: install node 22" in said.out
    assert said.out.splitlines()[-1].startswith("0 bad, ")


def test_something_bad_fails_and_names_its_cure(shell: Shell) -> None:
    shell.config.mkdir()
    (shell.config / "config.toml").write_text('enabled_peers = ["codex"]\n')
    said = shell("doctor")
    assert said.code == 1
    assert "bad   peers        codex cannot be started" in said.out
    lines = [json.loads(line) for line in shell("doctor", "--format", "json").out.splitlines()]
    (bad,) = [line for line in lines if line["state"] == "bad"]
    assert bad["type"] == "Finding" and bad["cure"]
    assert shell("doctor", "--format", "quiet").out == ""


def test_a_report_has_versions_and_no_home_folder(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "do-not-show-this")
    said = shell("doctor", "--report")
    assert said.code == 0
    assert said.out.startswith("dragoman ")
    assert "Findings\n  ok    python" in said.out
    assert str(shell.home) not in said.out
    assert "do-not-show-this" not in said.out
