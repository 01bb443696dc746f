"""`dragoman explain` names every peer once, and starts none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.cli.calling import Shell, shell_in


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    return shell_in(tmp_path, monkeypatch, capsys)


def test_explain_names_the_chosen_peer_and_why_the_others_are_passed_over(shell: Shell) -> None:
    said = shell("explain", "review")
    assert said.code == 0
    assert "1. scout: the last resort" in said.out
    assert "it does not claim review" in said.out and "it is not installed" in said.out
    told = json.loads(shell("explain", "review", "--format", "json").out)
    assert told["type"] == "Decision" and told["role"] == "review"
    assert shell("explain", "review", "--format", "quiet").out == "scout\n"
    assert not (shell.home / "state_home").exists()


def test_an_agent_file_and_the_size_of_the_work_count(shell: Shell) -> None:
    (shell.cwd / "a.md").write_text("---\ndelegate_to: copilot-review\n---\n")
    words = ("explain", "--agent", "a.md", "--prompt", "x" * 5000, "--format", "json")
    told = json.loads(shell(*words).out)
    assert (told["role"], told["size"]) == ("review", "large")
    reasons = {one["peer"]: one["reason"] for one in told["passed_over"]}
    assert reasons["copilot"] == "not_installed" and reasons["claude"] == "not_wished"


def test_without_a_role_or_with_a_wrong_one_it_is_refused(shell: Shell) -> None:
    assert shell("explain").code == 2
    assert "the roles are" in shell("explain", "cooking").err
    shell.config.mkdir()
    (shell.config / "config.toml").write_text("nonsense = 1\n")
    assert shell("explain", "review").code == 2


def test_no_eligible_peer_has_its_own_exit_code(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAGOMAN_DEPTH", "1")
    said = shell("explain", "review")
    assert said.code == 7 and "delegated work already" in said.out


def test_a_workspace_that_is_not_a_folder_is_refused(shell: Shell) -> None:
    said = shell("explain", "review", "--cwd", "none")
    assert said.code == 2 and "--cwd" in said.err


def test_an_unknown_peer_is_refused_and_the_next_step_is_said_once(shell: Shell) -> None:
    said = shell("explain", "review", "--peer", "zzzz")
    assert (said.code, said.err.count("`dragoman peers`")) == (2, 1)
