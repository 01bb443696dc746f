"""A mistake in a settings file is an error that says where it is and what was meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.client.budgets import Budgets
from dragoman.errors import ConfigInvalid
from tests.unit.config.folders import load, paths_in, repository, write


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("enabled_peer = []", "did you mean `enabled_peers`?"),
        ("[timeouts]\ntotall = 3", "timeouts.totall: there is no such key"),
        ('permissions = "yes"', "use 'approve-all' or 'approve-reads' or"),
        ('permissions = "approve_all"', "did you mean 'approve-all'?"),
        ('[timeouts]\ntotal = "nevr"', "did you mean 'never'?"),
        ("[timeouts]\ntotal = 0", 'timeouts.total: it must be greater than 0; use "never" for no'),
        ("[timeouts]\ntool_silence = 0", "timeouts.tool_silence: it must be greater than 0; use"),
        ("[timeouts]\ntotal = inf", 'timeouts.total: it must be a finite number; use "never" for'),
        ("[timeouts]\ninitialize = -1", "timeouts.initialize: it must be 0 or greater"),
        ("[timeouts]\ninitialize = nan", "timeouts.initialize: it must be a finite number"),
        ("ttl = inf", "ttl: it must be a finite number"),
        ("keep_days = nan", "keep_days: it must be a finite number"),
        ("question_timeout = -1", "question_timeout: it must be 0 or greater"),
        ("[limits]\nday_cost = nan", "limits.day_cost: it must be a finite number"),
        ("[local_model]\nmax_tokens = 0", "local_model.max_tokens: it must be greater than 0"),
        ("max_line_size = 0", "max_line_size: it must be 4096 bytes or greater"),
        ("max_line_size = 4095", "max_line_size: it must be 4096 bytes or greater"),
        ("ttl = -1", "ttl: it must be 0 or greater"),
        ("max_idle_brokers = -1", "max_idle_brokers: it must be 0 or greater"),
        ("max_depth = -1", "max_depth: it must be 0 or greater"),
        ("[limits]\nday_cost = -1.0", "limits.day_cost: it must be 0 or greater"),
        (
            "[peer.codex.limits]\nday_turns = -1",
            "peer.codex.limits.day_turns: it must be 0 or greater",
        ),
        ("[limits]\nday_turn = 1", "did you mean `day_turns`?"),
        ('fallback = "some"', "use 'all' or 'none' or 'peers'"),
        ('agent_files = ["../x/*.md"]', "must be relative to the project, without `..`"),
        ('agent_files = ["/etc/*.md"]', "must be relative to the project, without `..`"),
        ('[peer.codex]\nenv = ["A=B"]', "not a valid name of an environment variable"),
        ('[peer.codex]\nmodel = "sk-0123456789abcdefghij"', "secret"),
        ("[peers.mine]\ntitle = 'x'", "its own file"),
        ("[hosts.-oProxyCommand]\nworkspace = '/x'", "is not a valid host name"),
        ("[hosts.box]\ndestination = '-oProxyCommand=x'", "hosts.box.destination: "),
        ("[hosts.box]\nhost = 'x'", "hosts.box.host: there is no such key"),
        ("x = ", "not valid TOML"),
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


def test_a_timeout_of_an_earlier_version_has_no_effect_and_is_not_an_error(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    write(paths.config_file, "[timeouts]\nspawn = 30\ntotal = 5")
    config = load(tmp_path, paths)
    assert config.problems == ()
    assert config.settings.budgets() == Budgets(total=5.0)


@pytest.mark.parametrize("name", ["a.b", ""])
def test_a_name_that_no_peer_can_have_is_an_error_and_no_crash(tmp_path: Path, name: str) -> None:
    repo = repository(tmp_path / "repo", f'[peer."{name}"]\npermissions = "deny-all"')
    with pytest.raises(ConfigInvalid, match="not a valid peer name"):
        load(repo, paths_in(tmp_path))


# -- rules about permissions


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
def test_a_rule_that_is_none_is_reported_with_what_was_meant(
    tmp_path: Path, text: str, key: str, said: str
) -> None:
    paths = paths_in(tmp_path)
    write(paths.config_file, text)
    with pytest.raises(ConfigInvalid) as raised:
        load(tmp_path, paths)
    assert raised.value.key == key and said in raised.value.problem
