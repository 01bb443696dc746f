"""Files that are never written without a question."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from dragoman.errors import ConfigInvalid
from dragoman.paths import VARIABLES
from dragoman.policy import Act, Policy, Rule, judge
from dragoman.policy.path_patterns import ResolvedPaths
from dragoman.policy.protected_paths import names, own_folders, protected

EVERYTHING = Policy(preset="approve-all")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home that is also the workspace."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, variable in VARIABLES.items():
        monkeypatch.setenv(variable, str(tmp_path / "own" / name))
    return tmp_path


def verdict(workspace: Path, path: str, policy: Policy = EVERYTHING, **more: Any) -> str:
    told = {"kind": "edit", "paths": (path,), **more}
    return judge(policy, Act(workspace=str(workspace), **told)).by


@pytest.mark.parametrize(
    "path",
    [
        ".git",
        ".git/hooks/pre-commit",
        ".git/config",
        "vendor/lib/.git/config",
        "src/../.git/config",
        ".GIT/config",
        ".git./config",
        ".g\u200cit/config",
        "git~1/config",
        ".git::$INDEX_ALLOCATION/config",
        ".bashrc",
        ".profile",
        ".zshrc",
        ".config/fish/conf.d/x.fish",
        ".gitconfig",
        ".config/git/config",
        "own/config/config.toml",
        "own/cache/x",
        "own/state/sessions.db",
        "own/runtime/x",
    ],
)
def test_protected_paths_are_asked_about_although_everything_is_approved(
    home: Path, path: str
) -> None:
    for spelled in (path, str(home / path), f"~/{path}"):
        assert verdict(home, spelled) == "protected"
        edits = Policy(rules=(Rule(action="allow", kind="edit"),))
        assert verdict(home, spelled, edits) == "protected"


@pytest.mark.parametrize(
    "path", [".gitignore", ".github/x", "src/.bashrc", "a.git/config", "own/x", "bashrc"]
)
def test_other_files_are_not(home: Path, path: str) -> None:
    assert verdict(home, path) == "preset"


def test_start_files_are_protected_where_variables_put_them(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, name in (("ZDOTDIR", "z"), ("XDG_CONFIG_HOME", "c"), ("BASH_ENV", "rc")):
        monkeypatch.setenv(variable, str(home / name))
    for path in ("z/.zshrc", "c/fish/config.fish", "c/git/config", "rc"):
        assert verdict(home, path) == "protected"
    for path in ("z/.bashrc", "c/other", "z/x"):
        assert verdict(home, path) == "preset"


@pytest.mark.parametrize(
    ("path", "by"),
    [
        ("/proc/self/cwd/.git/config", "protected"),
        ("/proc/self/cwd/.GIT/config", "protected"),
        ("/proc/self/cwd/.bashrc", "protected"),
        ("/proc/self/cwd/a", "preset"),
    ],
)
def test_a_path_that_cannot_be_followed_counts_by_its_words(home: Path, path: str, by: str) -> None:
    assert verdict(home, path) == by


def test_an_act_of_which_nothing_is_known_may_be_a_change(home: Path) -> None:
    assert verdict(home, ".git/config", kind="other") == "protected"
    assert verdict(home, ".git/config", kind="read", evident=("other",)) == "protected"
    assert verdict(home, "src/a", kind="other") == "preset"


def test_reading_them_is_not_writing(home: Path) -> None:
    assert verdict(home, ".git/config", kind="read") == "preset"


def test_a_redirection_into_one_is_a_question(home: Path) -> None:
    told: dict[str, Any] = {
        "kind": "execute",
        "paths": (),
        "line": "echo x > .git/hooks/pre-commit",
    }
    assert verdict(home, "", **told) == "protected"


def test_a_link_to_one_counts_by_either_name(home: Path) -> None:
    (home / "work").mkdir()
    os.symlink(home / ".bashrc", home / "work" / "notes")
    os.symlink(home / "work", home / ".git")
    assert verdict(home / "work", "notes") == "protected"
    assert verdict(home, ".git/x") == "protected"


@pytest.mark.parametrize(
    ("pattern", "path", "by"),
    [
        (".git/config", ".git/config", "rule"),
        ("**/.git/**", ".git/config", "rule"),
        ("~/.bashrc", ".bashrc", "rule"),
        ("own/config/**", "own/config/config.toml", "rule"),
        ("**", ".git/config", "protected"),
        ("*/config", ".git/config", "protected"),
        (".*", ".bashrc", "protected"),
        ("own/**", "own/config/config.toml", "protected"),
    ],
)
def test_only_a_rule_that_names_one_allows_it(home: Path, pattern: str, path: str, by: str) -> None:
    rule = Rule(action="allow", kind="edit", paths=(pattern,))
    for preset in ("approve-all", "ask"):
        assert verdict(home, path, Policy(preset=preset, rules=(rule,))) == by


def test_a_rule_that_denies_still_counts_and_so_does_the_delegators_policy(home: Path) -> None:
    deny = Policy(preset="approve-all", rules=(Rule(action="deny", kind="edit"),))
    assert verdict(home, ".git/config", deny) == "rule"
    named = Rule(action="allow", paths=(".git/config",))
    below = Policy(preset="approve-all", rules=(named,), ceilings=(EVERYTHING,))
    assert verdict(home, ".git/config", below) == "parent"


def test_a_copy_in_our_own_folder_can_be_worked_in(home: Path) -> None:
    copy = home / "own" / "state" / "worktrees" / "w1"
    assert verdict(copy, "a.txt") == "preset"
    assert verdict(copy, ".git/config") == "protected"
    assert verdict(copy, str(home / "own" / "config" / "config.toml")) == "protected"


def _homeless() -> None:
    raise ConfigInvalid("HOME", "home directory is unknown")


def test_without_a_home_there_are_no_folders_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.paths.find_paths", _homeless)
    assert own_folders() == ()
    place = ResolvedPaths(frozenset({"/w/a"}), frozenset({"/w/a"}))
    assert protected(place, "/w") is None and not names((), "/w/a", "/w")
