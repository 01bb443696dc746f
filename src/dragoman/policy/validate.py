"""Validate the policy rules of a settings file.

Rejects rules that have the right types but cannot work: a glob with ``..``, an open quote in a
command pattern, a rule that allows both paths and commands. `config.validate` checks the types.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dragoman.errors import ConfigInvalid
from dragoman.policy.command_patterns import pattern_words
from dragoman.policy.rules import PolicySettings, Rule

MAX_PATTERN_SIZE: Final = 500
"""Maximum length of a pattern, in characters. Longer patterns are assumed to be hostile."""

MAX_RULES: Final = 1000
"""Maximum number of rules in one list, since every question evaluates all of them."""


def check_policy(settings: PolicySettings, *, origin: str) -> None:
    """Raise `ConfigInvalid` for rules that have the right types but cannot work."""
    for name in ("rules", "limits"):
        rules: tuple[Rule, ...] = getattr(settings, name)
        if len(rules) > MAX_RULES:
            raise ConfigInvalid(origin, f"it has more than {MAX_RULES} rules", key=f"policy.{name}")
        for number, rule in enumerate(rules):
            for key, problem in _problems(rule, limit=name == "limits"):
                raise ConfigInvalid(origin, problem, key=f"policy.{name}[{number}].{key}")


def _problems(rule: Rule, *, limit: bool) -> Iterator[tuple[str, str]]:
    if limit and not rule.restricts:
        yield "action", "a limit can only restrict: use 'ask', 'escalate' or 'deny'"
    for pattern in rule.paths:
        if not pattern.strip() or len(pattern) > MAX_PATTERN_SIZE or "\0" in pattern:
            yield "paths", f"a glob must have 1 to {MAX_PATTERN_SIZE} characters, none of them NUL"
        elif ".." in pattern.split("/"):
            yield "paths", f"{pattern!r} contains `..`: write the path without it"
        elif pattern.startswith("~") and not pattern.startswith("~/"):
            yield (
                "paths",
                f"{pattern!r}: only your own home directory can be named with a tilde: `~/`",
            )
        elif "\\" in pattern:
            yield "paths", f"{pattern!r}: separate directories with `/`, on every system"
        elif any("**" in part and part != "**" for part in pattern.split("/")):
            yield (
                "paths",
                (f"{pattern!r}: `**` matches whole directories and must be alone between slashes"),
            )
    for pattern in rule.commands:
        if len(pattern) > MAX_PATTERN_SIZE:
            yield "commands", f"a pattern must have at most {MAX_PATTERN_SIZE} characters"
            continue
        try:
            words = pattern_words(pattern)
        except ValueError:
            yield "commands", f"{pattern!r} has a quote that is never closed"
            continue
        if not words or "" in words:
            yield "commands", f"{pattern!r} contains an empty word, or no word at all"
        elif "**" in words:
            yield "commands", f"{pattern!r}: use `*` at the end to match all further words"
    if rule.commands and rule.kinds and "execute" not in rule.kinds:
        yield "kind", "a rule with `commands` needs the kind 'execute'"
    if rule.action == "allow" and rule.commands and rule.paths:
        yield "paths", "the files a command touches are unknown: allow one or the other"
    if rule.action == "allow" and rule.paths and "execute" in rule.kinds:
        yield "paths", "the files a command touches are unknown: allow `commands` instead"
