"""`dragoman policy` as a user calls it."""

from __future__ import annotations

import json

import pytest

from dragoman.store.open import open_store
from tests.unit.cli.calling import Shell
from tests.unit.runs.stored import session

RULES = """\
permissions = "approve-reads"
[[policy.rules]]
action = "allow"
kind = "edit"
paths = ["src/**"]
[[policy.rules]]
action = "deny"
commands = ["git push"]
why = "pushing is for people"
[[policy.limits]]
action = "escalate"
peer = "qwen"
kind = "edit"
"""


@pytest.fixture
def rules(shell: Shell) -> Shell:
    shell.config.mkdir()
    (shell.config / "config.toml").write_text(RULES)
    return shell


def test_the_rules_are_shown_with_where_they_come_from(rules: Shell) -> None:
    said = rules("policy", "show")
    assert said.code == 0
    assert "allow kind edit, path src/**" in said.out and "pushing is for people" in said.out
    assert "limits[0]" in said.out
    assert f"rules from {rules.config / 'config.toml'}" in said.out
    assert "Everything else: approve-reads" in said.out


def test_the_rules_for_programs_are_one_object_a_line(rules: Shell) -> None:
    said = rules("policy", "show", "--format", "json").out
    first, *rest = [json.loads(line) for line in said.splitlines()]
    assert first["permissions"] == "approve-reads"
    assert [(each["list"], each["number"], each["action"]) for each in rest] == [
        ("rules", 0, "allow"),
        ("rules", 1, "deny"),
        ("limits", 0, "escalate"),
    ]


def test_without_rules_the_preset_is_shown(shell: Shell) -> None:
    said = shell("policy", "show")
    assert said.out == "There are no rules.\nEverything else: ask (from default)\n"


def test_untrusted_rules_are_reported(shell: Shell) -> None:
    (shell.cwd / "dragoman.toml").write_text('[[policy.rules]]\naction = "allow"\n')
    said = shell("policy", "show")
    assert "There are no rules" in said.out and "policy.rules[0] is ignored" in said.err


def test_a_request_is_tried_out_and_explained(rules: Shell) -> None:
    said = rules("policy", "test", "edit", "--path", "src/a.py")
    assert (said.code, said.out.splitlines()[0]) == (0, "allow")
    said = rules("policy", "test", "edit", "--path", "src/a.py", "--path", "src/../b")
    assert (said.code, said.out.splitlines()[0]) == (5, "deny")
    said = rules("policy", "test", "execute", "--", "git", "push", "--force")
    assert said.code == 5
    assert "by    rule: deny command git push" in said.out
    assert "pushing is for people (`git push --force` matches)" in said.out


def test_a_line_is_tried_out_as_well(rules: Shell) -> None:
    said = rules("policy", "test", "execute", "--line", "make && git push", "--format", "json")
    told = json.loads(said.out)
    assert (told["type"], told["action"], told["by"]) == ("Verdict", "deny", "rule")
    assert told["kinds"] == ["execute"]


@pytest.mark.parametrize(
    "words",
    [
        ("perf", "stat", "git", "push"),
        ("caffeinate", "-i", "git", "push"),
        ("npm", "explore", "pkg", "--", "git", "push"),
        ("pnpm", "exec", "git", "push"),
        ("pnpm", "git", "push"),
        ("yarn", "exec", "git", "push"),
        ("yarn", "git", "push"),
    ],
)
def test_a_denied_command_is_denied_in_another_program(
    rules: Shell, words: tuple[str, ...]
) -> None:
    said = rules("policy", "test", "execute", "--permissions", "approve-all", "--", *words)
    assert said.code == 5, said.out


def test_peers_and_presets_can_be_supposed(rules: Shell) -> None:
    asked = ("policy", "test", "edit", "--path", "src/a", "--format", "quiet")
    assert rules(*asked, "--peer", "qwen").out == "escalate\n"
    assert rules("policy", "test", "fetch", "--permissions", "approve-all").code == 0
    assert rules("policy", "test", "fetch").code == 5


@pytest.mark.parametrize("words", [("show",), ("test", "read", "--path", "a")])
def test_an_unknown_peer_is_refused_with_the_nearest(rules: Shell, words: tuple[str, ...]) -> None:
    said = rules("policy", *words, "--peer", "codx")
    assert (said.code, said.out) == (2, "")
    assert "there is no peer 'codx'; did you mean codex?" in said.err
    assert rules("policy", *words, "--peer", "codex@box").code == 0


def test_the_peer_of_a_stored_session_is_known(rules: Shell) -> None:
    with open_store() as store:
        store.create_session(session(peer="my-agent"))
    assert rules("policy", "show", "--peer", "my-agent").code == 0


def test_a_command_that_is_not_given_is_hidden(rules: Shell) -> None:
    said = rules("policy", "test", "execute", "--permissions", "approve-all")
    assert said.code == 5 and "it may run any command" in said.out


def test_two_commands_are_one_too_many(rules: Shell) -> None:
    said = rules("policy", "test", "execute", "--line", "a", "--", "b")
    assert said.code == 2 and "not both" in said.err


def test_broken_settings_stop_the_test(shell: Shell) -> None:
    shell.config.mkdir()
    (shell.config / "config.toml").write_text('[[policy.rules]]\naction = "denny"\n')
    said = shell("policy", "test", "edit")
    assert said.code == 2 and "did you mean 'deny'" in said.err
