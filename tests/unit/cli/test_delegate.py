"""`dragoman delegate`: what it refuses before anybody is asked, and that it asks."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.unit.cli.calling import Shell, shell_in


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    return shell_in(tmp_path, monkeypatch, capsys)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("review", "x", "--no-fallback", "--strict"), "cannot be combined"),
        (("review", "x", "--apply"), "--apply needs --isolate"),
        (("review", "x", "--timeout", "0"), "greater than 0"),
        (("review", "x", "--cwd", "nowhere"), "not a directory"),
        (("review", "x", "--approve-all", "--deny-all"), "cannot be combined"),
        (("review", " "), "the prompt is empty"),
        (("revue", "x"), "did you mean review?"),
        (("review", "x", "--peer", "gemeni"), "did you mean gemini"),
        (("--agent", "a.md", "x"), "name the role before the prompt"),
        (("--agent", "none.md", "x"), "work is not delegated"),
    ],
)
def test_what_cannot_be_done_is_refused(shell: Shell, words: tuple[str, ...], told: str) -> None:
    (shell.cwd / "a.md").write_text("Words.\n")
    (shell.cwd / "none.md").write_text("---\ndelegate_to: none\n---\n")
    said = shell("delegate", *words)
    assert said.code == 2 and told in said.err
    events = shell.home / "state_home" / "events.jsonl"
    assert not events.exists() or "peer_call" not in events.read_text()


def test_an_agent_file_for_a_role_that_is_not_claimed_is_refused_once(shell: Shell) -> None:
    (shell.cwd / "a.md").write_text("---\ndelegate_to: scout-review\n---\n")
    said = shell("delegate", "--agent", "a.md", "x")
    assert (said.code, said.err.count("cannot delegate to 'scout-review'")) == (2, 1)


def test_broken_settings_stop_it_because_a_rule_may_be_missing(shell: Shell) -> None:
    shell.config.mkdir()
    (shell.config / "config.toml").write_text("enabled_peer = []\n")
    said = shell("delegate", "review", "x", "--format", "json")
    assert said.code == 2 and json.loads(said.out)["error"] == "config_invalid"


def test_no_eligible_peer_has_its_own_exit_code(shell: Shell) -> None:
    said = shell("delegate", "review", "x", "--strict", "--json-strict")
    assert said.code == 7 and said.err == ""
    told = json.loads(said.out)
    assert told["error"] == "no_peer" and "copilot" in told["message"]
    limited = shell.config / "config.toml"
    limited.parent.mkdir()
    limited.write_text("[limits]\nday_turns = 0\n")
    assert shell("delegate", "exploration", "x").code == 9


def test_scout_answers_if_no_other_peer_is_enabled(shell: Shell) -> None:
    (shell.cwd / "notes.py").write_text("# TODO: more\n")
    said = shell("delegate", "exploration", "list the TODOs", "--cold", "--format", "quiet")
    assert said.code == 0 and "notes.py" in said.out and said.err == ""
    said = shell("delegate", "exploration", "list the TODOs", "--cold")
    assert said.code == 0 and "`dragoman init` sets them up" in said.err
    said = shell("delegate", "exploration", "be so kind", "--cold")
    assert said.code == 1 and "what next:   `dragoman init` sets up agents" in said.err


def test_closed_output_ends_a_delegation_as_a_failure_and_not_as_an_interrupt(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        said = shell("delegate", "exploration", "where is it?", "--cold", "--format", "json")
    assert (said.code, said.err) == (1, "")
