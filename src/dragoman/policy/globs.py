"""Glob matching for words and paths (``*``, ``?``, ``**``) without backtracking.

All possible matches of a pattern are followed at once, as in an NFA, because patterns may come from
an untrusted checkout and must not be slow. `policy.path_patterns` and `policy.command_patterns` use
it.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import Final

UNKNOWN: Final = "\0"
"""Placeholder in a text for an unknown part, such as the value of a variable."""

STAR, ONE, DEEP, REST = "*", "?", "**", "**$"
"""The tokens that are not characters. `REST` matches nothing, or a slash and whatever follows."""


def plain(text: str) -> str:
    """Return a text without the differences that some file systems ignore: case and Unicode normal
    form."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def matches(pattern: str, text: str) -> bool:
    """Return whether one word matches a pattern. ``*`` matches any run of characters, and ``?`` any
    single one."""
    return _run(_word_tokens(pattern), text, "")


def may_begin(pattern: str, text: str) -> bool:
    """Return whether a word may match a pattern if only the beginning of the word is known."""
    return _run(_word_tokens(pattern), text, "", open_end=True)


def path_matches(pattern: str, path: str) -> bool:
    """Return whether a path with slashes matches a pattern; only ``**`` crosses a slash."""
    return _run(_path_tokens(pattern), path, "/")


@lru_cache(maxsize=512)
def _word_tokens(pattern: str) -> tuple[tuple[bool, str], ...]:
    return tuple((char in (STAR, ONE), char) for char in pattern)


@lru_cache(maxsize=512)
def _path_tokens(pattern: str) -> tuple[tuple[bool, str], ...]:
    tokens: list[tuple[bool, str]] = []
    every = pattern.split("/")
    # Two of them in a row count as one.
    parts = [part for at, part in enumerate(every) if part != DEEP or every[at - 1 : at] != [DEEP]]
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        if part == DEEP and last:
            if tokens and tokens[-1] == (False, "/"):
                tokens.pop()
            tokens.append((True, REST))
        elif part == DEEP:
            tokens.append((True, DEEP))
        else:
            tokens += [(char in (STAR, ONE), char) for char in part]
            if not last:
                tokens.append((False, "/"))
    return tuple(tokens)


def _run(
    tokens: tuple[tuple[bool, str], ...], text: str, separator: str, *, open_end: bool = False
) -> bool:
    # A state is twice the position in the pattern, plus one inside `DEEP` and `REST`.
    states = _closed({0}, tokens)
    for char in text:
        moved: set[int] = set()
        for state in states:
            at, inside = divmod(state, 2)
            if at == len(tokens):
                continue
            special, token = tokens[at]
            if not special:
                if token == char:
                    moved.add(state + 2)
            elif token == STAR:
                if char != separator:
                    moved.add(state)
            elif token == ONE:
                if char != separator:
                    moved.add(state + 2)
            elif token == DEEP:
                moved.add(2 * at + 1)
                if char == separator and inside:
                    moved.add(2 * at + 2)
            elif inside or char == separator or at == 0:
                moved.add(2 * at + 1)
        states = _closed(moved, tokens)
        if not states:
            return False
    return open_end or any(
        state // 2 == len(tokens) or tokens[state // 2] == (True, REST) for state in states
    )


def _closed(states: set[int], tokens: tuple[tuple[bool, str], ...]) -> set[int]:
    """Return the states and those reachable from them without consuming a character."""
    todo = list(states)
    while todo:
        at, inside = divmod(todo.pop(), 2)
        if at < len(tokens) and not inside and tokens[at] in ((True, STAR), (True, DEEP)):
            following = 2 * at + 2
            if following not in states:
                states.add(following)
                todo.append(following)
    return states
