"""The words of a policy."""

from __future__ import annotations

import msgspec
import pytest

from dragoman.policy import rules
from dragoman.policy.rules import (
    PRESETS,
    Policy,
    PolicySettings,
    Rule,
    Verdict,
    of_settings,
    preset,
    unattended,
)


def test_a_rule_says_in_words_what_it_is_about() -> None:
    rule = Rule(action="deny", kind=("edit", "delete"), paths=(".env",), peer="codex")
    assert str(rule) == "deny kind edit or delete, path .env, peer codex"
    assert str(Rule(action="ask")) == "ask everything"


def test_one_kind_or_several_can_be_written() -> None:
    told = {"rules": [{"action": "ask", "kind": "edit"}, {"action": "ask", "kind": ["edit"]}]}
    one, several = msgspec.convert(told, PolicySettings).rules
    assert one.kinds == several.kinds == {"edit"}


@pytest.mark.parametrize(
    "table", [{"kind": "edit"}, {"action": "allow", "path": ["x"]}, {"action": "permit"}]
)
def test_a_rule_without_action_or_with_unknown_words_is_none(table: object) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(table, Rule)


@pytest.mark.parametrize(
    ("preset", "reads", "writes"),
    [
        ("approve-all", "allow", "allow"),
        ("approve-reads", "allow", "deny"),
        ("ask", "allow", "ask"),
        ("deny-all", "deny", "deny"),
    ],
)
def test_every_preset_has_an_answer(preset: rules.Preset, reads: str, writes: str) -> None:
    assert rules.by_preset(preset, frozenset({"read", "think"})) == reads
    assert rules.by_preset(preset, frozenset({"read", "edit"})) == writes


def test_nothing_known_is_not_a_reading() -> None:
    assert rules.by_preset("approve-reads", frozenset()) == "deny"


def test_the_default_is_to_approve_reads() -> None:
    assert Policy() == PRESETS["approve-reads"]


def test_a_narrowed_policy_keeps_every_ceiling() -> None:
    top = Policy(preset="deny-all")
    middle = rules.narrowed(top, Policy(preset="ask"))
    low = rules.narrowed(middle, Policy(preset="approve-all"))
    assert low.ceilings == (Policy(preset="ask"), top)
    assert low.preset == "approve-all"


def test_a_policy_travels_as_json() -> None:
    policy = rules.narrowed(
        Policy(rules=(Rule(action="deny", commands=("rm",)),)), Policy(preset="ask")
    )
    assert msgspec.json.decode(msgspec.json.encode(policy), type=Policy) == policy


@pytest.mark.parametrize(
    ("verdict", "final"),
    [
        (Verdict(action="allow", rule="ask", why="", by="preset"), True),
        (Verdict(action="deny", rule="deny all", why="", by="rule"), True),
        (Verdict(action="deny", rule="approve-reads", why="", by="parent"), True),
        (Verdict(action="deny", rule="deny-all", why="", by="preset"), True),
        (Verdict(action="deny", rule="approve-reads", why="", by="preset"), False),
        (Verdict(action="ask", rule="ask", why="", by="preset"), False),
        (Verdict(action="escalate", rule="x", why="", by="limit"), False),
    ],
)
def test_only_an_explicit_decision_is_final(verdict: Verdict, final: bool) -> None:
    assert verdict.final is final


def test_settings_become_a_policy_over_the_preset() -> None:
    settings = PolicySettings(limits=(Rule(action="deny"),))
    assert rules.of_settings(settings, "ask") == Policy(preset="ask", limits=settings.limits)


def test_a_policy_for_one_peer_leaves_out_rules_for_others() -> None:
    mine = Rule(action="deny", kind="fetch", peer=("codex", "qwen"), role="review")
    others = Rule(action="allow", peer="gemini")
    policy = Policy(
        rules=(mine, others), limits=(Rule(action="ask", role="write"),), ceilings=(Policy(),)
    )
    told = rules.for_whom(policy, peer="codex", role="review")
    assert told == Policy(rules=(Rule(action="deny", kind="fetch"),), ceilings=(Policy(),))
    nested = Policy(ceilings=(policy,))
    assert rules.for_whom(nested, peer="gemini").ceilings == (
        Policy(rules=(Rule(action="allow"),), ceilings=(Policy(),)),
    )


@pytest.mark.parametrize(
    ("policy", "free"),
    [
        (rules.preset("approve-all"), True),
        (Policy(preset="approve-all", ceilings=(rules.preset("approve-all"),)), True),
        (Policy(preset="approve-all", ceilings=(rules.preset("ask"),)), False),
        (Policy(preset="approve-all", limits=(Rule(action="deny"),)), False),
        (rules.preset("ask"), False),
    ],
)
def test_only_a_policy_without_any_limit_allows_everything(policy: Policy, free: bool) -> None:
    assert rules.allows_everything(policy) is free


def test_a_turn_that_goes_on_alone_keeps_its_rules() -> None:
    assert unattended(preset("ask"), peer="alpha", role="review") == "approve-reads"
    assert unattended(preset("approve-all"), peer="alpha", role="review") == "approve-all"
    rules = (
        Rule(action="deny", kind="edit", role="review"),
        Rule(action="deny", kind="read", peer="beta"),
    )
    policy = of_settings(PolicySettings(rules=rules), "approve-all")
    left = unattended(policy, peer="alpha", role="review")
    assert isinstance(left, Policy) and left.rules == (Rule(action="deny", kind="edit"),)
