"""Settings out of many places: the order, the origins, and what an untrusted project may do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dragoman.config import trust_project
from dragoman.config.load import KEYS
from dragoman.errors import ConfigInvalid
from tests.unit.config.folders import load, paths_in, repository, write


def test_flags_go_before_variables_before_the_project_before_the_user(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    file = write(
        paths.config_file, 'format = "json"\n[timeouts]\ntotal = 1\nsilence = 2\nrequest = 3'
    )
    root = repository(tmp_path / "repo", "[timeouts]\ntotal = 11\nsilence = 12")
    trust_project(root, paths)
    environ = {"DRAGOMAN_TIMEOUTS_TOTAL": "21", "DRAGOMAN_ENABLED_PEERS": "codex, gemini"}
    config = load(root, paths, environ=environ, flags={"timeouts.total": 31.0, "format": None})
    times = config.settings.timeouts
    assert (times.total, times.silence, times.request) == (31.0, 12, 3)
    assert config.settings.enabled_peers == ("codex", "gemini")
    assert config.origin("timeouts.total") == "flag"
    assert config.origin("enabled_peers") == "DRAGOMAN_ENABLED_PEERS"
    assert config.origin("timeouts.silence") == str(root / "dragoman.toml")
    assert config.origin("timeouts.request") == config.origin("format") == str(file)
    assert config.origin("permissions") == "default"
    assert config.project == root and config.trusted


def test_every_setting_is_listed_with_its_value_and_origin(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    write(paths.config_file, '[peer.codex]\nenv = ["A_KEY"]')
    rows = {key: (value, origin) for key, value, origin in load(tmp_path, paths).values()}
    assert rows["peer.codex.env"] == (["A_KEY"], str(paths.config_file))
    assert rows["format"] == ("text", "default")
    assert {key for key, _ in KEYS.values()} <= set(rows)


def test_without_any_file_all_is_default(tmp_path: Path) -> None:
    config = load(tmp_path, paths_in(tmp_path))
    assert config.project is None and not config.trusted
    assert {origin for _, _, origin in config.values()} == {"default"}
    # They are not read where nobody has set anything, and would be the same.
    assert config.settings == load(tmp_path, paths_in(tmp_path), flags={"format": "text"}).settings


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("enabled_peer = []", "did you mean `enabled_peers`?"),
        ("[timeouts]\ntotall = 3", "timeouts.totall: there is no such key"),
        ('permissions = "yes"', "use 'approve-all' or 'approve-reads' or"),
        ('permissions = "approve_all"', "did you mean 'approve-all'?"),
        ('[timeouts]\ntotal = "nevr"', "did you mean 'never'?"),
        ("[timeouts]\ntotal = 0", "total cannot be 0"),
        ("[timeouts]\nspawn = -1", "spawn is a time"),
        ("max_line_size = 0", "above 0"),
        ("ttl = -1", "ttl: it must be a number of 0 or more"),
        ("max_idle_brokers = -1", "max_idle_brokers: it must be a number of 0 or more"),
        ("max_depth = -1", "max_depth: it must be a number of 0 or more"),
        ("[limits]\nday_cost = -1.0", "limits.day_cost: it must be a number of 0 or more"),
        ("[peer.codex.limits]\nday_turns = -1", "peer.codex.limits.day_turns: it must be a number"),
        ("[limits]\nday_turn = 1", "did you mean `day_turns`?"),
        ('fallback = "some"', "use 'all' or 'none' or 'peers'"),
        ('agent_files = ["../x/*.md"]', "is outside the project"),
        ('agent_files = ["/etc/*.md"]', "is outside the project"),
        ('[peer.codex]\nenv = ["A=B"]', "not the name of a variable"),
        ('[peer.codex]\nmodel = "sk-0123456789abcdefghij"', "secret"),
        ("[peers.mine]\ntitle = 'x'", "its own file"),
        ("x = ", "not TOML"),
    ],
)
def test_a_mistake_in_the_users_file_is_an_error_that_names_file_and_key(
    tmp_path: Path, text: str, words: str
) -> None:
    paths = paths_in(tmp_path)
    write(paths.config_file, text)
    with pytest.raises(ConfigInvalid) as caught:
        load(tmp_path, paths)
    assert words in str(caught.value)
    assert str(paths.config_file) in str(caught.value)
    config = load(tmp_path, paths, strict=False)
    assert [str(problem) for problem in config.problems] == [str(caught.value)]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("DRAGOMAN_ENABLED_PEER", "codex", "did you mean DRAGOMAN_ENABLED_PEERS?"),
        ("DRAGOMAN_TIMEOUTS_TOTAL", "soon", "not a number"),
        ("DRAGOMAN_MAX_IDLE_BROKERS", "1.5", "not a number"),
        ("DRAGOMAN_LIMITS_DAY_TURNS", "1.5", "not a number"),
        ("DRAGOMAN_REQUIRE_CARD", "maybe", "'maybe' is neither 1 nor true nor 0 nor false"),
        ("DRAGOMAN_WARM", "maybe", "'maybe' is neither 1 nor true nor 0 nor false"),
        ("DRAGOMAN_FORMAT", "xml", "DRAGOMAN_FORMAT: format"),
    ],
)
def test_a_mistake_in_a_variable_names_the_variable(
    tmp_path: Path, name: str, text: str, words: str
) -> None:
    with pytest.raises(ConfigInvalid, match=name) as caught:
        load(tmp_path, paths_in(tmp_path), environ={name: text})
    assert words in str(caught.value)


def test_variables_that_are_no_settings_and_empty_ones_are_left_alone(tmp_path: Path) -> None:
    environ = {
        "DRAGOMAN_TRACE": "x",
        "DRAGOMAN_MARK": "y",
        "DRAGOMAN_CONFIG_HOME": "z",
        "DRAGOMAN_SOMETHING_ELSE": "w",
        "DRAGOMAN_DEPTH": "1",
        "DRAGOMAN_LINEAGE": "j-1",
        "DRAGOMAN_CEILING": "{}",
        "DRAGOMAN_FORMAT": "",
        "OTHER": "v",
        "DRAGOMAN_TIMEOUTS_SILENCE": "never",
    }
    config = load(tmp_path, paths_in(tmp_path), environ=environ)
    assert config.settings.format == "text"
    assert config.settings.budgets().silence is None


def test_limits_and_the_local_model_are_settings_like_others(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    write(paths.config_file, "[limits]\nday_cost = 2\n[peer.codex.limits]\nday_turns = 3")
    environ = {
        "DRAGOMAN_LIMITS_DAY_TOKENS": "1000",
        "DRAGOMAN_LIMITS_SILENCE": "2.5",
        "DRAGOMAN_LOCAL_MODEL_API": "openai",
        "DRAGOMAN_LOCAL_MODEL_COMPETES": "1",
        "DRAGOMAN_MAX_DEPTH": "3",
    }
    config = load(tmp_path, paths, environ=environ)
    settings = config.settings
    assert (settings.limits.day_cost, settings.limits.day_tokens) == (2, 1000)
    assert settings.limits.silence == 2.5 and settings.max_depth == 3
    assert settings.local_model.api == "openai" and settings.local_model.competes
    assert settings.for_peer("codex").limits.day_turns == 3
    assert config.origin("peer.codex.limits.day_turns") == str(paths.config_file)


def test_lists_of_variables_for_a_peer_add_up(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    write(paths.config_file, '[peer.codex]\nenv = ["A", "B"]')
    root = repository(tmp_path / "repo", '[peer.codex]\nenv = ["B", "C"]')
    trust_project(root, paths)
    config = load(root, paths)
    assert config.settings.for_peer("codex").env == ("A", "B", "C")
    assert config.origin("peer.codex.env") == f"{paths.config_file}, {root / 'dragoman.toml'}"


# -- a project that nobody has trusted

USER = """\
enabled_peers = ["codex", "gemini"]
permissions = "approve-all"
max_line_size = 1000
fallback = "peers"
[limits]
day_turns = 10
[timeouts]
total = 100
[peer.codex]
permissions = "approve-reads"
"""


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ('enabled_peers = ["gemini"]', "enabled_peers", ["gemini"]),
        ('permissions = "deny-all"', "permissions", "deny-all"),
        ('permissions = "ask"', "permissions", "ask"),
        ("max_line_size = 10", "max_line_size", 10),
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
        ("[timeouts]\nspawn = 1000", "timeouts.spawn"),
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


def test_a_broken_project_is_an_error_that_names_it(tmp_path: Path) -> None:
    root = repository(tmp_path / "repo", "enabled_peer = []")
    with pytest.raises(ConfigInvalid, match="did you mean `enabled_peers`"):
        load(root, paths_in(tmp_path))
    config = load(root, paths_in(tmp_path), strict=False)
    assert len(config.problems) == 1
    assert config.project == root


# -- peers in files


def test_the_users_peers_are_handed_on_one_for_each_file(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    write(paths.peers_folder / "mine.toml", 'name = "mine"')
    write(paths.peers_folder / "bad.toml", "= 3")
    write(paths.peers_folder / "notes.txt", "not one")
    write(paths.peers_folder / ".hidden.toml", "not one")
    bad, mine = load(tmp_path, paths).peers
    assert (mine.name, mine.table, mine.folder) == ("mine", {"name": "mine"}, paths.peers_folder)
    assert not mine.project
    assert bad.problem is not None and "bad.toml" in str(bad.problem)


def test_a_trusted_projects_peers_get_the_names_of_their_tables(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    root = repository(tmp_path / "repo", '[peers.ours]\ntitle = "Ours"\n')
    trust_project(root, paths)
    (ours,) = load(root, paths).peers
    assert ours.table == {"name": "ours", "title": "Ours"}
    assert (ours.project, ours.key, ours.folder) == (True, "peers.ours", root)


@pytest.mark.parametrize("text", ["peers = 3", "peers = [1]", "[peers]\nours = 3"])
def test_peers_that_are_no_tables_are_a_problem(tmp_path: Path, text: str) -> None:
    paths = paths_in(tmp_path)
    root = repository(tmp_path / "repo", text)
    trust_project(root, paths)
    (peer,) = load(root, paths).peers
    assert peer.problem is not None and "expected" in str(peer.problem)


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


@pytest.mark.parametrize("name", ["a.b", ""])
def test_a_name_that_no_peer_can_have_is_an_error_and_no_crash(tmp_path: Path, name: str) -> None:
    repo = repository(tmp_path / "repo", f'[peer."{name}"]\npermissions = "deny-all"')
    with pytest.raises(ConfigInvalid, match="not the name of a peer"):
        load(repo, paths_in(tmp_path))


# -- rules about permissions

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


@pytest.mark.parametrize(
    ("text", "key", "said"),
    [
        ('[[policy.rules]]\naction = "allow"\npath = ["x"]', "policy.rules[0].path", "`paths`"),
        ('[[policy.rules]]\naction = "alow"', "policy.rules[0].action", "'allow'"),
        ('[[policy.rule]]\naction = "allow"', "policy.rule", "`rules`"),
        ('[[policy.rules]]\naction = "ask"\nkind = "edits"', "policy.rules[0].kind", "'edit'"),
        ('[[policy.rules]]\naction = "ask"\npaths = ["../x"]', "policy.rules[0].paths", "`..`"),
    ],
)
def test_a_rule_that_is_none_is_told_with_what_was_meant(
    tmp_path: Path, text: str, key: str, said: str
) -> None:
    paths = paths_in(tmp_path)
    write(paths.config_file, text)
    with pytest.raises(ConfigInvalid) as raised:
        load(tmp_path, paths)
    assert raised.value.key == key and said in raised.value.problem


def test_no_variable_is_a_policy() -> None:
    assert not any("POLICY" in name for name in KEYS)
