"""`dragoman agents` as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dragoman.cli.output import questions
from tests.unit.cli.calling import Shell


def agent(shell: Shell, name: str, value: str | None = None) -> Path:
    path = shell.cwd / "agents" / f"{name}.md"
    path.parent.mkdir(exist_ok=True)
    field = f"delegate_to: {value}\n" if value else ""
    path.write_bytes(f"---\nname: {name}\n{field}---\nbody\n".encode())
    return path


def answer(monkeypatch: pytest.MonkeyPatch, *, yes: bool) -> list[str]:
    """Let the questions of a command be answered; what was asked."""
    asked: list[str] = []

    def confirm(question: str, *, instead: str, default: bool = False) -> bool:
        asked.append(question)
        return yes

    monkeypatch.setattr(questions, "confirm", confirm)
    return asked


def test_the_list_shows_files_values_and_trouble(shell: Shell) -> None:
    agent(shell, "a", "codex-execute")
    agent(shell, "b", "none")
    agent(shell, "c", "nobody-plan")
    said = shell("agents", "list")
    assert said.code == 0
    head, a, b, c = said.out.splitlines()
    assert head.split() == ["file", "delegate_to", "enabled", "note"]
    assert a.split()[:3] == ["agents/a.md", "codex-execute", "no"]
    assert b.split() == ["agents/b.md", "none", "-", "never", "delegated"]
    assert "cannot delegate to 'nobody-plan'" in c


def test_the_list_for_programs_has_one_object_a_line(shell: Shell) -> None:
    path = agent(shell, "a", "scout-exploration")
    (line,) = shell("agents", "list", "--format", "json").out.splitlines()
    assert json.loads(line) == {
        "type": "AgentFile",
        "file": str(path),
        "delegate_to": "scout-exploration",
        "peer": "scout",
        "role": "exploration",
        "enabled": True,
        "problem": None,
        "remedy": None,
    }
    assert shell("agents", "list", "--format", "quiet").out == "agents/a.md\n"


def test_a_directory_without_agents_is_not_an_error(shell: Shell) -> None:
    said = shell("agents", "list")
    assert (said.code, said.out) == (0, "")
    assert "no agent files (agents/*.md" in said.err


def test_one_file_is_set_without_a_question_and_the_change_is_shown(shell: Shell) -> None:
    path = agent(shell, "a")
    said = shell("agents", "set", "codex-execute", "a")
    assert said.code == 0
    assert "+delegate_to: codex-execute" in said.out.splitlines()
    assert "--- agents/a.md" in said.out
    assert path.read_bytes() == b"---\nname: a\ndelegate_to: codex-execute\n---\nbody\n"
    assert "codex is not enabled" in said.err
    assert "`dragoman peers enable codex`" in said.err


def test_the_file_may_come_before_the_value(shell: Shell) -> None:
    path = agent(shell, "a")
    said = shell("agents", "set", str(path), "codex-execute")
    assert said.code == 0, said.err
    assert "delegate_to: codex-execute" in path.read_text()


def test_an_agent_may_be_named_before_the_value_too(shell: Shell) -> None:
    path = agent(shell, "a")
    assert shell("agents", "set", "a", "none").code == 0
    assert "delegate_to: none" in path.read_text()
    said = shell("agents", "set", "a", "nothing")
    assert said.code == 2 and "nothing" not in path.read_text()


def test_agent_files_of_claude_are_found_without_a_setting(shell: Shell) -> None:
    folder = shell.cwd / ".claude" / "agents"
    folder.mkdir(parents=True)
    agent(shell, "b").rename(folder / "b.md")
    assert shell("agents", "set", "codex-execute", "b").code == 0
    assert "delegate_to: codex-execute" in (folder / "b.md").read_text()


def test_a_peer_that_is_enabled_needs_no_remark(shell: Shell) -> None:
    agent(shell, "a")
    shell.config.mkdir()
    (shell.config / "config.toml").write_text('enabled_peers = ["codex"]\n')
    assert shell("agents", "set", "codex-execute", "a").err == ""
    assert "Nothing to change" in shell("agents", "set", "codex-execute", "a").err


def test_many_files_are_changed_after_a_yes_only(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = agent(shell, "a"), agent(shell, "b")
    before = a.read_bytes()
    asked = answer(monkeypatch, yes=False)
    said = shell("agents", "set", "none")
    assert (said.code, said.out) == (1, "")
    assert asked == ["Change 2 files (agents/a.md, agents/b.md)?"]
    assert a.read_bytes() == before
    answer(monkeypatch, yes=True)
    assert shell("agents", "set", "none").code == 0
    assert b"delegate_to: none" in b.read_bytes()


def test_without_a_terminal_many_files_need_the_option(shell: Shell) -> None:
    a = agent(shell, "a")
    agent(shell, "b")
    before = a.read_bytes()
    said = shell("agents", "set", "none")
    assert said.code == 2
    assert "--yes" in said.err
    assert a.read_bytes() == before
    assert shell("agents", "set", "none", "--yes").code == 0
    assert a.read_bytes() != before


def test_a_dry_run_shows_and_changes_nothing(shell: Shell) -> None:
    a = agent(shell, "a", "none")
    before = a.read_bytes()
    said = shell("agents", "unset", "--dry-run")
    assert said.code == 0
    assert "-delegate_to: none" in said.out.splitlines()
    assert a.read_bytes() == before


def test_unset_takes_the_field_out(shell: Shell) -> None:
    a = agent(shell, "a", "none")
    assert shell("agents", "unset", "agents/a.md").code == 0
    assert a.read_bytes() == b"---\nname: a\n---\nbody\n"


def test_a_wrong_value_is_wrong_usage_and_says_what_would_be_right(shell: Shell) -> None:
    agent(shell, "a")
    said = shell("agents", "set", "gemini-reserch", "a")
    assert said.code == 2
    assert "did you mean gemini-research?" in said.err
    said = shell("agents", "set", "mine-review", "a")
    assert "dragoman peers add mine --roles review" in said.err


def test_files_that_do_not_exist_are_wrong_usage(shell: Shell) -> None:
    assert shell("agents", "set", "none", "a").code == 2
    said = shell("agents", "unset")
    assert said.code == 2
    assert "no agent files" in said.err


def test_validation_names_the_line_and_the_cure_and_fails(shell: Shell) -> None:
    agent(shell, "a", "nobody-plan")
    agent(shell, "b", "none")
    said = shell("agents", "validate")
    assert (said.code, said.out) == (1, "2 agent files, 1 invalid\n")
    assert said.err.startswith("agents/a.md:3: cannot delegate to 'nobody-plan'")
    assert "dragoman peers add" in said.err
    (line,) = shell("agents", "validate", "--format", "json").out.splitlines()
    assert json.loads(line)["line"] == 3
    shell("agents", "set", "none", "a")
    assert shell("agents", "validate").code == 0


def test_an_old_error_in_another_file_is_reported_and_stops_nothing(shell: Shell) -> None:
    agent(shell, "a")
    agent(shell, "b", "nobody-plan")
    said = shell("agents", "set", "none", "a")
    assert said.code == 0
    assert "problems existed before" in said.err and "agents/b.md:3" in said.err


def test_another_folder_can_be_named(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    path = agent(shell, "a")
    monkeypatch.chdir(shell.home)
    assert shell("agents", "set", "none", "--cwd", str(shell.cwd)).code == 0
    assert b"delegate_to: none" in path.read_bytes()
