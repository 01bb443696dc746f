"""Whether a line defines a name, and as what.

Owns the judgement over one line: the rules of its language (`rules`) on what stands around the
name. It sees no other line, so what it says is what a reader would say at a glance: text in a
multi-line string that looks like a definition counts as one. It is pure; `symbols` gathers.
"""

from __future__ import annotations

import functools
import re
from typing import Final, NamedTuple

from dragoman.scout.languages import Language
from dragoman.scout.rules import EXPORT, LOCAL, RULES, TRUE, VALUE

__all__ = [
    "EXPORT",
    "LOCAL",
    "TRUE",
    "VALUE",
    "DefinitionMark",
    "classify",
    "is_call",
    "name_pattern",
]

_HYPHENED: Final = frozenset({"css", "keys", "markup", "make", "shell"})
"""Families of languages in whose names a hyphen may stand."""

_CALL: Final = re.compile(r"(?:\s*(?:<[\w\s<>,.:&*\[\]?]*>|::<[^()]*>|\[[\w\s,.]*\]))?!?\s?[({]")
_COMMAND_CALL: Final = re.compile(r"(?:\s|$|[;|&)])")
_AT_COMMAND: Final = re.compile(r".*(?:[;|&({`!]|\b(?:then|do|else|if|while|until))\s*|\s*")
_PYTHON_EXPORT: Final = (
    re.compile(r"\s*(?:from\s+\S+\s+)?import\s+.*|\s*__all__\s*=.*|\s+[\"']?"),
    re.compile(r"[\"']?\s*(?:,.*|\].*|\)|as\s.*)?$"),
)


class DefinitionMark(NamedTuple):
    """What a line makes of a name."""

    rank: int
    """0 is the thing itself; see `rules`."""
    kind: str


class _Rule(NamedTuple):
    mark: DefinitionMark
    before: re.Pattern[str]
    after: re.Pattern[str]
    capital: bool


@functools.cache
def _rules(family: str) -> tuple[_Rule, ...]:
    return tuple(
        _Rule(
            DefinitionMark(rule.rank, rule.kind),
            re.compile(rule.before),
            re.compile(rule.after),
            rule.capital,
        )
        for rule in RULES[family]
    )


@functools.lru_cache(maxsize=256)
def name_pattern(name: str, family: str) -> re.Pattern[str]:
    """Finds a name, and no longer name that it is a part of."""
    more = r"\w"
    if family == "javascript":
        more += "$"
    elif family in _HYPHENED:
        more += "-"
    # A name that ends with a sign of its own, as Ruby's do, may be followed by anything.
    behind = rf"(?![{more}])" if re.match(r"[\w$]", name[-1]) else ""
    return re.compile(rf"(?<![{more}]){re.escape(name)}{behind}")


def is_comment(line: str, language: Language) -> bool:
    """Whether the line is nothing but a comment."""
    return line.lstrip().startswith(language.comments) if language.comments else False


def classify(line: str, name: str, language: Language, path: str = "") -> DefinitionMark | None:
    """What the line defines the name as; None if it only mentions or uses it."""
    if is_comment(line, language):
        return None
    best: DefinitionMark | None = None
    capital = name[:1].isupper()
    for found in name_pattern(name, language.family).finditer(line):
        start, end = found.span()
        for rule in _rules(language.family):
            if best is not None and rule.mark.rank >= best.rank:
                continue
            if rule.capital and not capital:
                continue
            if rule.before.fullmatch(line, 0, start) and rule.after.match(line, end):
                best = rule.mark
                break
        if best is None and language.family == "python" and path.endswith("__init__.py"):
            before, after = _PYTHON_EXPORT
            if before.fullmatch(line, 0, start) and after.match(line, end):
                best = DefinitionMark(EXPORT, "export")
    return best


def is_call(line: str, name: str, language: Language) -> bool:
    """Whether the name is called somewhere in the line."""
    if is_comment(line, language):
        return False
    for found in name_pattern(name, language.family).finditer(line):
        if language.family == "shell":
            if _AT_COMMAND.fullmatch(line, 0, found.start()) and _COMMAND_CALL.match(
                line, found.end()
            ):
                return True
        elif _CALL.match(line, found.end()) and not line[found.end() :].lstrip().startswith("{"):
            return True
    return False
