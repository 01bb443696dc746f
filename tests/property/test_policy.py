"""For any rules and acts: a restricting rule only restricts, and a line hides nothing."""

from __future__ import annotations

import re
import shlex
import string
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.policy import Act, Policy, Rule, judge, narrowed
from dragoman.policy.globs import matches, path_matches
from dragoman.policy.rules import STRICTNESS
from dragoman.policy.shell_parser import ANYTHING, read_line

FEW = settings(max_examples=100)
"""Examples of each. One takes about a millisecond, and generating it ten."""

NAMES = st.sampled_from(["a", "b", "src", ".env", "rm", "git", "push", "..", ".", "x y", "-f", "é"])
KINDS: st.SearchStrategy[Any] = st.sampled_from(
    ["read", "edit", "delete", "search", "execute", "think", "other"]
)
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
GLOBS = st.lists(st.sampled_from(["a", "src", "*", "**", ".e?v"]), min_size=1, max_size=3).map(
    "/".join
)
COMMANDS = st.lists(st.sampled_from(["rm", "git", "push", "*", "g*"]), min_size=1, max_size=3).map(
    " ".join
)
PIECES = st.sampled_from(
    [*"'\"\\$`(){}<>|&;#*? \n\tab", "rm", "git", "$(", "${", "<<", "&&", "sh -c ", "$x", "\r", "\0"]
)
LINES = st.lists(PIECES, max_size=20).map("".join)


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    return Rule(
        action=draw(st.sampled_from(["allow", "ask", "escalate", "deny"])),
        kind=tuple(draw(st.lists(KINDS, max_size=2))),
        paths=tuple(draw(st.lists(GLOBS, max_size=2))),
        commands=tuple(draw(st.lists(COMMANDS, max_size=2))),
        peer=tuple(draw(st.lists(st.sampled_from(["codex", "qwen"]), max_size=1))),
    )


def policies() -> st.SearchStrategy[Policy]:
    some = st.lists(rules(), max_size=3).map(tuple)
    presets = st.sampled_from(["ask", "approve-reads", "approve-all", "deny-all"])
    return st.builds(Policy, preset=presets, rules=some, limits=some)


@st.composite
def acts(draw: st.DrawFn) -> Act:
    return Act(
        kind=draw(KINDS),
        evident=tuple(draw(st.lists(KINDS, max_size=1))),
        paths=tuple(draw(st.lists(PATHS, max_size=2))),
        argv=draw(st.none() | st.lists(NAMES, max_size=4).map(tuple)),
        line=draw(st.none() | LINES),
        peer=draw(st.sampled_from(["codex", "qwen"])),
        workspace="/nowhere/at/all",
    )


def strictness(policy: Policy, act: Act) -> int:
    return STRICTNESS[judge(policy, act).action]


@FEW
@given(policies(), policies(), policies(), acts())
def test_a_child_is_never_wider_than_those_above_it(
    top: Policy, middle: Policy, low: Policy, act: Act
) -> None:
    below = narrowed(narrowed(top, middle), low)
    assert strictness(below, act) == max(strictness(each, act) for each in (top, middle, low))


@FEW
@given(policies(), rules(), acts())
def test_a_rule_that_denies_only_takes_away(policy: Policy, rule: Rule, act: Act) -> None:
    denying = msgspec.structs.replace(rule, action="deny")
    more = msgspec.structs.replace(policy, rules=(*policy.rules, denying))
    assert strictness(more, act) >= strictness(policy, act)


@FEW
@given(policies(), rules(), acts())
def test_a_limit_only_takes_away(policy: Policy, rule: Rule, act: Act) -> None:
    more = msgspec.structs.replace(policy, limits=(*policy.limits, rule))
    assert strictness(more, act) >= strictness(policy, act)


@FEW
@given(policies(), acts(), st.randoms(use_true_random=False))
def test_the_order_of_rules_says_nothing(policy: Policy, act: Act, random: Any) -> None:
    shuffled = list(policy.rules)
    random.shuffle(shuffled)
    again = msgspec.structs.replace(policy, rules=tuple(shuffled))
    assert strictness(again, act) == strictness(policy, act)


@FEW
@given(policies(), acts())
def test_one_more_file_is_never_allowed_more(policy: Policy, act: Act) -> None:
    # An act that names no file may affect any, so that the first name can remove a doubt.
    known = msgspec.structs.replace(act, paths=("src/a", *act.paths))
    more = msgspec.structs.replace(known, paths=(*known.paths, "/elsewhere/file"))
    assert strictness(policy, more) >= strictness(policy, known)


@FEW
@given(LINES)
def test_every_line_is_read_to_its_end(line: str) -> None:
    read = read_line(line, posix=True)
    assert all(command.words for command in read.commands)


@FEW
@given(LINES, st.sampled_from([";", "&&", "||", "|", "\n", "&"]))
def test_a_command_behind_any_other_is_seen(line: str, separator: str) -> None:
    read = read_line(f"rm x {separator} {line}", posix=True)
    assert any(each is ANYTHING or each.words[:2] == ("rm", "x") for each in read.commands)
    denied = Policy(preset="approve-all", rules=(Rule(action="deny", commands=("rm",)),))
    act = Act(kind="execute", line=f"rm x {separator} {line}", workspace="/nowhere")
    assert judge(denied, act).action == "deny"


@FEW
@given(st.lists(st.text(st.sampled_from("\n" + string.printable[:95].replace("\\", "")))))
def test_quoted_words_are_those_words(words: list[str]) -> None:
    # No backslash, which fish interprets within single quotes, too. `shlex.quote` leaves an equals
    # sign as it is, which zsh expands at the beginning of a word.
    quoted = ["'" + word.replace("'", "'\"'\"'") + "'" for word in words]
    read = read_line(" ".join(["a", *quoted]), posix=True)
    assert [command.words for command in read.commands] == [("a", *words)]


@FEW
@given(st.lists(st.text(), min_size=1))
def test_words_that_are_not_ascii_are_never_read(words: list[str]) -> None:
    line = shlex.join(["a", *words])
    plain = re.fullmatch(r"[\n -~]*", line) is not None
    assert plain or read_line(line, posix=True).commands == [ANYTHING]


@FEW
@given(st.text("ab*?", max_size=8), st.text("ab", max_size=8))
def test_stars_mean_what_they_mean_elsewhere(pattern: str, text: str) -> None:
    from fnmatch import fnmatchcase

    assert matches(pattern, text) is fnmatchcase(text, pattern)


@FEW
@given(st.lists(st.sampled_from(["a", "b", "*", "**"]), max_size=5), st.lists(NAMES, max_size=5))
def test_a_path_fits_itself_and_everything_above_with_two_stars(
    pattern: list[str], path: list[str]
) -> None:
    whole = "/" + "/".join(path)
    assert path_matches("/**", whole)
    for cut in range(len(path)):
        assert path_matches("/" + "/".join([*path[:cut], "**"]), whole)
    assert path_matches("/".join(["", *pattern]), "/" + "/".join(["q"])) is _slowly(pattern, ["q"])


def _slowly(pattern: list[str], path: list[str]) -> bool:
    """The same by trying every interpretation."""
    if not pattern:
        return not path
    if pattern[0] == "**":
        if len(pattern) == 1:
            return True
        return any(_slowly(pattern[1:], path[at:]) for at in range(len(path) + 1))
    return bool(path) and matches(pattern[0], path[0]) and _slowly(pattern[1:], path[1:])
