"""An untrusted project can restrict what the user has set, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dragoman.config import trust_project
from tests.unit.config.folders import load, paths_in, repository, write

USER = """\
enabled_peers = ["codex", "gemini"]
permissions = "approve-all"
max_line_size = 10000
fallback = "peers"
[limits]
day_turns = 10
[timeouts]
total = 100
[peer.codex]
permissions = "approve-reads"
"""

USERS_RULES = """
permissions = "approve-all"
[[policy.rules]]
action = "deny"
paths = [".env"]
"""

PROJECTS_RULES = """
[[policy.rules]]
action = "allow"
[[policy.rules]]
action = "ask"
kind = ["edit", "delete"]
[[policy.limits]]
action = "deny"
commands = ["git push"]
"""


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ('enabled_peers = ["gemini"]', "enabled_peers", ["gemini"]),
        ('permissions = "deny-all"', "permissions", "deny-all"),
        ('permissions = "ask"', "permissions", "ask"),
        ("max_line_size = 5000", "max_line_size", 5000),
        ("warm = false", "warm", False),
        ("ttl = 5", "ttl", 5),
        ("max_idle_brokers = 0", "max_idle_brokers", 0),
        ("max_depth = 0", "max_depth", 0),
        ('adaptive = "off"', "adaptive", "off"),
        ("require_card = true", "require_card", True),
        ('fallback = "none"', "fallback", "none"),
        ("[limits]\nday_turns = 5", "limits.day_turns", 5),
        ("[limits]\nday_cost = 5.0", "limits.day_cost", 5.0),
        ("[peer.codex.limits]\nday_cost = 1.0", "peer.codex.limits.day_cost", 1.0),
        ("[timeouts]\ntotal = 10", "timeouts.total", 10),
        ("[timeouts]\nsilence = 1", "timeouts.silence", 1),
        ('[peer.codex]\npermissions = "deny-all"', "peer.codex.permissions", "deny-all"),
        ('agent_files = ["mine/*.md"]', "agent_files", ["mine/*.md"]),
        ('format = "json"', "format", "json"),
    ],
)
def test_what_only_takes_away_counts_without_trust(
    tmp_path: Path, text: str, key: str, value: Any
) -> None:
    paths = paths_in(tmp_path)
    write(paths.config_file, USER)
    config = load(repository(tmp_path / "repo", text), paths)
    assert {each: found for each, found, _ in config.values()}[key] == value
    assert config.untrusted == ()


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('enabled_peers = ["kimi"]', "enabled_peers: kimi"),
        ("max_line_size = 100000", "max_line_size"),
        ("ttl = 100000", "ttl"),
        ("max_idle_brokers = 100", "max_idle_brokers"),
        ("max_depth = 5", "max_depth"),
        ('adaptive = "on"', "adaptive"),
        ('fallback = "all"', "fallback"),
        ('check = "rm -rf /"', "check"),
        ("[limits]\nday_turns = 50", "limits.day_turns"),
        ('[local_model]\nbase_url = "http://evil.example/v1"', "local_model.base_url"),
        ("[timeouts]\ntotal = 1000", "timeouts.total"),
        ('[timeouts]\ntotal = "never"', "timeouts.total"),
        ("[timeouts]\ninitialize = 1000", "timeouts.initialize"),
        ('[peer.codex]\nenv = ["AWS_SECRET_ACCESS_KEY"]', "peer.codex.env"),
        ('[peer.codex]\nmode = "danger-full-access"', "peer.codex.mode"),
        ('[peer.codex]\nmodel = "dear"', "peer.codex.model"),
        ('[peer.codex]\npermissions = "approve-all"', "peer.codex.permissions"),
        ('[peer.codex]\npermissions = "ask"', "peer.codex.permissions"),
        ('[peers.mine]\ntitle = "x"\n[[peers.mine.launch]]\ncommand = ["x"]', "peers.mine"),
    ],
)
def test_what_adds_something_is_ignored_and_said_to_be_until_it_is_trusted(
    tmp_path: Path, text: str, key: str
) -> None:
    paths = paths_in(tmp_path)
    write(paths.config_file, USER)
    root = repository(tmp_path / "repo", text)
    config = load(root, paths)
    assert [ignored.key for ignored in config.untrusted] == [key]
    assert "dragoman config trust" in str(config.untrusted[0])
    bare = load(tmp_path, paths)
    if key.startswith("enabled"):
        assert config.settings.enabled_peers == ()
    else:
        assert config.settings == bare.settings
    assert config.peers == ()
    trust_project(root, paths)
    trusted = load(root, paths)
    assert trusted.untrusted == ()
    assert trusted.settings != bare.settings or len(trusted.peers) == 1


def test_a_preset_that_is_not_stricter_does_not_count(tmp_path: Path) -> None:
    root = repository(tmp_path / "repo", 'permissions = "approve-reads"')
    config = load(root, paths_in(tmp_path))
    assert config.settings.permissions == "ask"
    assert [ignored.key for ignored in config.untrusted] == ["permissions"]


@pytest.mark.parametrize(("variable", "counts"), [("deny-all", "deny-all"), ("", "ask")])
def test_a_project_widens_nothing_that_a_variable_has_narrowed(
    tmp_path: Path, variable: str, counts: str
) -> None:
    paths = paths_in(tmp_path)
    write(paths.config_file, 'permissions = "approve-all"')
    repo = repository(tmp_path / "repo", '[peer.codex]\npermissions = "ask"')
    config = load(repo, paths, environ={"DRAGOMAN_PERMISSIONS": variable})
    assert config.settings.permissions_for("codex") == counts
    assert [ignored.key for ignored in config.untrusted] == (
        ["peer.codex.permissions"] if variable else []
    )


def test_what_the_user_says_for_one_peer_stays_when_a_project_is_overruled(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    write(paths.config_file, '[peer.codex]\npermissions = "approve-reads"')
    repo = repository(tmp_path / "repo", '[peer.codex]\npermissions = "deny-all"')
    config = load(repo, paths, environ={"DRAGOMAN_PERMISSIONS": "approve-all"})
    assert config.settings.permissions_for("codex") == "deny-all"


def test_rules_of_an_untrusted_project_only_take_away(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    write(paths.config_file, USERS_RULES)
    config = load(repository(tmp_path / "repo", PROJECTS_RULES), paths)
    assert [str(rule) for rule in config.settings.policy.rules] == ["deny path .env"]
    # As rules they could turn what `permissions` denies into a question.
    assert [str(rule) for rule in config.settings.policy.limits] == [
        "ask kind edit or delete",
        "deny command git push",
    ]
    assert [ignored.key for ignored in config.untrusted] == ["policy.rules[0]"]


def test_rules_of_a_trusted_project_add_to_those_of_the_user(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    file = write(paths.config_file, USERS_RULES)
    root = repository(tmp_path / "repo", PROJECTS_RULES)
    trust_project(root, paths)
    config = load(root, paths)
    assert [str(rule) for rule in config.settings.policy.rules] == [
        "deny path .env",
        "allow everything",
        "ask kind edit or delete",
    ]
    assert [str(rule) for rule in config.settings.policy.limits] == ["deny command git push"]
    assert config.origin("policy.rules") == f"{file}, {root / 'dragoman.toml'}"
