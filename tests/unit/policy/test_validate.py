"""Rules of the right shape that make no sense."""

from __future__ import annotations

import pytest

from dragoman.errors import ConfigInvalid
from dragoman.policy.rules import PolicySettings, Rule
from dragoman.policy.validate import MAX_RULES, check_policy


@pytest.mark.parametrize(
    ("rule", "key", "said"),
    [
        (Rule(action="deny", paths=("a/../b",)), "paths", "write the path without it"),
        (Rule(action="deny", paths=("",)), "paths", "1 to 500"),
        (Rule(action="deny", paths=("x" * 501,)), "paths", "1 to 500"),
        (Rule(action="deny", paths=("~you/x",)), "paths", "your own home"),
        (Rule(action="deny", paths=("a\\b",)), "paths", "separate directories with `/`"),
        (Rule(action="deny", paths=("a**",)), "paths", "alone between slashes"),
        (Rule(action="deny", commands=("a 'b",)), "commands", "never closed"),
        (Rule(action="deny", commands=(" ",)), "commands", "empty word"),
        (Rule(action="deny", commands=("a ''",)), "commands", "empty word"),
        (Rule(action="deny", commands=("a **",)), "commands", "all further words"),
        (Rule(action="deny", commands=("x" * 501,)), "commands", "at most 500"),
        (Rule(action="deny", kind="edit", commands=("a",)), "kind", "'execute'"),
        (Rule(action="allow", commands=("a",), paths=("b",)), "paths", "one or the other"),
        (Rule(action="allow", kind="execute", paths=("b",)), "paths", "`commands` instead"),
    ],
)
def test_a_rule_that_means_nothing_is_refused_by_its_key(rule: Rule, key: str, said: str) -> None:
    with pytest.raises(ConfigInvalid) as raised:
        check_policy(PolicySettings(rules=(Rule(action="ask"), rule)), origin="file")
    assert raised.value.key == f"policy.rules[1].{key}"
    assert said in raised.value.problem


def test_a_limit_that_allows_is_refused() -> None:
    with pytest.raises(ConfigInvalid, match="only restrict"):
        check_policy(PolicySettings(limits=(Rule(action="allow"),)), origin="file")


def test_a_file_has_no_end_of_rules_it_may_not_have() -> None:
    many = PolicySettings(rules=(Rule(action="ask"),) * (MAX_RULES + 1))
    with pytest.raises(ConfigInvalid, match="more than 1000"):
        check_policy(many, origin="file")


def test_rules_that_make_sense_pass() -> None:
    rules = (
        Rule(action="allow", kind="execute", commands=("git status *", "/usr/bin/make")),
        Rule(action="deny", paths=("**/*.pem", "~/.ssh/**", "/etc/", "src/*/x?")),
        Rule(action="deny", commands=("rm",), paths=("src/**",)),
    )
    check_policy(PolicySettings(rules=rules, limits=rules[1:]), origin="file")
