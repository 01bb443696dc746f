"""What a line stands in: the function around it, the class around that.

Owns the look upwards by indentation, which works for every language that people indent. It is
pure: it gets the lines. Whether a line defines something is judged by `definitions`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from dragoman.scout.definitions import TRUE, classify, name_pattern
from dragoman.scout.languages import Language

MAX_LINES_UP: Final = 5000
"""Lines that are looked at. A function that is longer has no name here."""

_NAMED: Final = (
    re.compile(
        r"\s*(?:[\w()]+\s+){0,4}?(?:def|func|function|fn|fun|sub|proc)\b\*?\s*(?:\([^)]*\)\s*)?"
        r"(?:<[^>]*>\s*)?(?:self\.)?(?P<name>[\w$.:]+[?!]?)"
    ),
    re.compile(
        r"\s*(?:export\s+)?(?:const|let|var)\s+(?P<name>[\w$]+)\s*(?::[^=]*)?="
        r"\s*(?:async\s*)?(?:\(|function\b|\w+\s*=>)"
    ),
    re.compile(
        r"(?!\s*(?:if|for|while|switch|else|catch|try|do|return|with|using|elif|when|match|case"
        r"|foreach|lock|unless|until|synchronized)\b)[\w\s<>\[\],.?&*:@~]*?(?P<name>[\w~:]+)"
        r"\s*\([^;=]*$"
    ),
)
_CONTAINER: Final = re.compile(
    r"\s*(?:[\w()@]+\s+){0,5}?(?:class|struct|interface|trait|impl|enum|module|object|namespace"
    r"|extension|record|protocol|actor|mixin|message|service)\b"
)


def _above(lines: Sequence[str], index: int) -> Iterator[tuple[int, str]]:
    """The lines around a line, from the inside out: each is less indented than the one before."""
    indent = _indent(lines[index])
    for at in range(index - 1, max(-1, index - 1 - MAX_LINES_UP), -1):
        if indent == 0:
            return
        line = lines[at]
        if line.strip() == "{":
            continue  # It belongs to the line above it, which says whose it is.
        if (
            line.strip()
            and _indent(line) < indent
            and not line.lstrip().startswith((")", "}", "]"))
        ):
            indent = _indent(line)
            yield at, line


def _indent(line: str) -> int:
    expanded = line.expandtabs(4)
    return len(expanded) - len(expanded.lstrip())


def enclosing_function(lines: Sequence[str], index: int) -> str:
    """The name of the function that a line stands in; nothing if it stands in none."""
    for _, line in _above(lines, index):
        if _CONTAINER.match(line):
            continue
        for pattern in _NAMED:
            match = pattern.match(line[:500])
            if match is not None:
                return match["name"]
    return ""


def is_inside(lines: Sequence[str], index: int, container: str, language: Language) -> bool:
    """Whether a line stands in the class, or whatever it is, of this name, or names it itself."""
    pattern = name_pattern(container, language.family)
    if pattern.search(lines[index]):
        return True
    for _, line in _above(lines, index):
        if not pattern.search(line):
            continue
        mark = classify(line, container, language)
        if (mark is not None and mark.rank == TRUE) or _CONTAINER.match(line):
            return True
    return False
