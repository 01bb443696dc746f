"""What a policy says. The attempts to get around it are in tests/faults/test_policy_widening.py."""

from __future__ import annotations

from typing import Any, cast

import pytest
from msgspec import structs

from dragoman.policy.evaluation import ActFacts, judge
from dragoman.policy.rules import Act, Action, Policy, Rule, narrowed

EDIT = Act(kind="edit", paths=("src/a",), workspace="/nowhere", peer="codex", role="write")
RUN = Act(kind="execute", line="make test", workspace="/nowhere")


def test_without_a_rule_the_preset_speaks() -> None:
    verdict = judge(Policy(), EDIT)
    assert (verdict.action, verdict.by, verdict.rule) == ("deny", "preset", "approve-reads")
    assert "approve-reads" in verdict.why and "edit" in verdict.why


@pytest.mark.parametrize("order", [1, -1])
def test_the_strictest_rule_counts_in_any_order(order: int) -> None:
    actions: list[Action] = ["allow", "ask", "escalate", "deny"]
    for allowed in range(1, len(actions) + 1):
        rules = tuple(Rule(action=action) for action in actions[:allowed])[::order]
        assert judge(Policy(rules=rules), EDIT).action == actions[allowed - 1]


def test_a_verdict_names_its_rule_and_the_reason_that_was_given() -> None:
    rule = Rule(action="deny", commands=("make",), why="it takes an hour")
    verdict = judge(Policy(rules=(rule,)), RUN)
    assert verdict.rule == "deny command make"
    assert verdict.why == "it takes an hour (`make test` matches)"


def test_a_verdict_names_the_word_that_no_rule_has_named() -> None:
    rule = Rule(action="allow", commands=("sort *",))
    act = Act(kind="execute", argv=("sort", "-uo", "x"), workspace="/nowhere")
    assert (
        "-uo in `sort -uo x` is not known to be harmless" in judge(Policy(rules=(rule,)), act).why
    )
    named = Rule(action="allow", commands=("sort -uo *",))
    assert judge(Policy(rules=(named,)), act).action == "allow"


def test_a_verdict_names_the_command_that_may_run_another() -> None:
    policy = Policy(preset="approve-all", rules=(Rule(action="deny", commands=("rm",)),))
    act = Act(kind="execute", line="ls; git log --ext-diff", workspace="/nowhere")
    assert judge(policy, act).why == "`git log --ext-diff` may run a matching command"


@pytest.mark.parametrize(
    ("rule", "fits"),
    [
        (Rule(action="allow", peer="codex"), True),
        (Rule(action="allow", peer=("qwen", "codex")), True),
        (Rule(action="allow", peer="qwen"), False),
        (Rule(action="allow", role="write", peer="codex"), True),
        (Rule(action="allow", role="review"), False),
        (Rule(action="allow", kind=("edit", "delete")), True),
        (Rule(action="allow", kind="delete"), False),
        (Rule(action="allow", paths=("src/**",)), True),
        (Rule(action="allow", paths=("src/b",)), False),
    ],
)
def test_every_key_of_a_rule_has_to_fit(rule: Rule, fits: bool) -> None:
    assert (judge(Policy(rules=(rule,)), EDIT).action == "allow") is fits


def test_a_rule_for_one_peer_takes_nothing_from_another() -> None:
    policy = Policy(preset="approve-all", rules=(Rule(action="deny", peer="qwen"),))
    assert judge(policy, EDIT).action == "allow"


def test_a_limit_takes_away_and_never_adds() -> None:
    allowed = Policy(rules=(Rule(action="allow"),), limits=(Rule(action="ask", kind="edit"),))
    verdict = judge(allowed, EDIT)
    assert (verdict.action, verdict.by) == ("ask", "limit")
    denied = Policy(preset="deny-all", limits=(Rule(action="ask"),))
    assert judge(denied, EDIT).action == "deny"


def test_a_child_is_never_wider_than_any_of_those_above() -> None:
    top = Policy(preset="approve-all", rules=(Rule(action="deny", kind="edit"),))
    middle = narrowed(top, Policy(preset="approve-all", rules=(Rule(action="ask"),)))
    low = narrowed(middle, Policy(preset="approve-all"))
    assert (judge(low, EDIT).action, judge(low, EDIT).by) == ("deny", "parent")
    assert judge(low, RUN).action == "ask"
    nested = Policy(preset="approve-all", ceilings=(middle,))
    assert judge(nested, EDIT).action == "deny"


def test_a_narrow_child_of_a_wide_parent_stays_narrow() -> None:
    child = narrowed(Policy(preset="approve-all"), Policy(preset="deny-all"))
    assert (judge(child, EDIT).action, judge(child, EDIT).by) == ("deny", "preset")


@pytest.mark.parametrize(
    ("act", "kinds"),
    [
        (Act(kind="read"), {"read"}),
        (Act(kind="strange"), {"other"}),
        (Act(kind="read", evident=("edit",)), {"read", "edit"}),
        (Act(kind="read", line="cat x"), {"read"}),
        (Act(kind="edit", line="cat x"), {"edit", "execute"}),
        (Act(kind="read", line="make"), {"read", "execute"}),
        (Act(kind="execute", line="echo > x"), {"execute", "edit"}),
    ],
)
def test_an_act_is_what_it_shows_and_not_only_what_it_is_called(act: Act, kinds: set[str]) -> None:
    assert ActFacts(act).kinds == kinds


def test_edits_that_are_allowed_are_those_in_the_workspace() -> None:
    policy = Policy(rules=(Rule(action="allow", kind="edit"),))
    assert judge(policy, EDIT).action == "allow"
    assert judge(policy, Act(kind="edit", workspace="/nowhere")).action == "allow"
    outside = Act(kind="edit", paths=("src/a", "../x"), workspace="/nowhere")
    assert judge(policy, outside).action == "deny"
    anywhere = Policy(rules=(Rule(action="allow", kind="edit", paths=("/**",)),))
    assert judge(anywhere, outside).action == "allow"


def test_a_rule_about_paths_never_allows_a_command() -> None:
    policy = Policy(rules=(Rule(action="allow", paths=("**",)),))
    assert (
        judge(policy, Act(kind="execute", line="ls", paths=("a",), workspace="/x")).by == "preset"
    )


def test_a_command_that_was_not_told_may_be_the_one() -> None:
    policy = Policy(preset="approve-all", rules=(Rule(action="ask", commands=("rm",)),))
    verdict = judge(policy, Act(kind="execute", workspace="/nowhere"))
    assert (verdict.action, verdict.why) == ("ask", "it runs a command that was not reported")


def test_a_folder_that_is_changed_on_the_way_counts() -> None:
    policy = Policy(preset="approve-all", rules=(Rule(action="deny", paths=("a/b/key",)),))
    for line, action in (
        ("cd a && cd b && cat key", "deny"),
        ("cd a/b; cat key", "deny"),
        ("cd c && cat key", "allow"),
        ("cd - && cat key", "deny"),
    ):
        told = Act(kind="execute", line=line, workspace="/nowhere")
        assert judge(policy, told).action == action, line


UNKNOWN_LINES = ("git status $X", "git status 2>&1", "git status \\\r\ntouch x", "git commit -m é")


@pytest.mark.parametrize("line", UNKNOWN_LINES)
def test_an_unknown_command_is_covered_by_every_denial_and_by_no_allowance(line: str) -> None:
    act = Act(kind="execute", line=line, workspace="/nowhere")
    wide = (
        Rule(action="allow"),
        Rule(action="allow", kind="execute"),
        Rule(action="allow", commands=("*", "git *")),
    )
    for kind in ("execute", "read"):
        told = structs.replace(act, kind=kind)
        for preset, expected in (("approve-reads", "deny"), ("ask", "ask"), ("deny-all", "deny")):
            verdict = judge(Policy(preset=cast(Any, preset), rules=wide), told)
            assert (verdict.action, verdict.by) == (expected, "preset")
            assert "unknown command" in verdict.why
    for rule in (Rule(action="deny", commands=("rm",)), Rule(action="deny", paths=(".env",))):
        assert judge(Policy(preset="approve-all", rules=(*wide, rule)), act).action == "deny"


def test_an_unknown_line_with_a_redirection_may_edit() -> None:
    policy = Policy(preset="approve-all", rules=(Rule(action="deny", kind="edit"),))
    for line, action in (("a > $X", "deny"), ("a &> x", "deny"), ("a $X", "allow")):
        assert judge(policy, Act(kind="execute", line=line, workspace="/x")).action == action
