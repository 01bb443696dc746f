"""Match shell commands against the command patterns of policy rules, word by word.

`surely` is for rules that allow: the whole command must match. `perhaps` is for rules that
restrict: a possible match is enough, whatever options are in between and however the program's path
is written. `command_expansion` finds the commands.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from functools import lru_cache

from dragoman.policy.command_expansion import (
    FEEDERS,
    is_interpreter,
    is_runner,
    name_of,
    real_name,
    runs_behind,
    unfolded,
)
from dragoman.policy.globs import UNKNOWN, matches, may_begin, plain
from dragoman.policy.harmless_options import doubtful, has_table
from dragoman.policy.risky_flags import beyond
from dragoman.policy.shell_parser import ShellCommand


@lru_cache(maxsize=512)
def pattern_words(pattern: str) -> tuple[str, ...]:
    """Return the words of a pattern. Raises `ValueError` for an open quote."""
    return tuple(shlex.split(pattern))


def surely(patterns: Sequence[str], command: ShellCommand) -> bool:
    """Return whether one of the patterns certainly covers the command and everything that the
    command runs."""
    if command.tainted:
        return False
    return any(
        _fits(words, command.words) and _names_all(words, command)
        for words in map(pattern_words, patterns)
    )


def unnamed(patterns: Sequence[str], command: ShellCommand) -> str | None:
    """Return a risky word that an otherwise matching pattern does not name, so that the pattern
    does not cover the command; None if there is none."""
    if command.tainted:
        return None
    for words in map(pattern_words, patterns):
        if _fits(words, command.words):
            fixed = words[:-1] if words[-1] == "*" else words
            for place in sorted(_unnamed(fixed, command)):
                if place < len(command.words):
                    return command.words[place]
    return None


def _names_all(pattern: Sequence[str], command: ShellCommand) -> bool:
    """Return whether a matching pattern names every risky word of the command.

    A rule that allows `sudo …` by name accepts that it runs other programs, and one that allows
    `sort -o …` accepts that it writes a file. A rule for `git log …` implies neither.
    """
    fixed = pattern[:-1] if pattern[-1] == "*" else pattern
    if _unnamed(fixed, command):
        return False
    if _runs_by_name(fixed, command):
        return True
    named = bool(_beyond(command.words)) and runs_behind(command.words) is None
    return named or len(unfolded(command)) == 1


def _runs_by_name(fixed: Sequence[str], command: ShellCommand) -> bool:
    """Return whether a pattern with these words accepts that the command runs another one."""
    behind = runs_behind(command.words)
    if behind is not None:
        # A rule for `pnpm *` does not say that `pnpm eslint` runs eslint.
        named = behind or 1
        if named < len(fixed) and fixed[named] == command.words[named]:
            return True
    return bool(fixed) and is_runner(fixed[0])


def _unnamed(fixed: Sequence[str], command: ShellCommand) -> set[int]:
    """Return the indices of the risky words that the pattern does not name."""
    words = command.words
    found = set(_beyond(words)) | _doubtful(fixed, words, runs=_runs_by_name(fixed, command))
    if _runs_by_name(fixed, command) and not is_interpreter(fixed[0]):
        # The inner program is covered as far as the pattern reaches.
        added = (UNKNOWN,) if name_of(words[0]) in FEEDERS else ()
        behind = runs_behind(words)
        for at in range(1 if behind is None else behind + 1, len(fixed)):
            if not words[at].startswith("-"):
                found |= {at + place for place in _beyond((*words[at:], *added))}
    return {place for place in found if place >= len(fixed) or not _is_named(fixed[place])}


def _doubtful(fixed: Sequence[str], words: Sequence[str], *, runs: bool) -> set[int]:
    """Return the indices of options that are not known to be harmless.

    After the name of a program that another one runs, options belong to the inner program.
    """
    inner = [at for at in range(1, len(fixed)) if runs and has_table(name_of(words[at]))]
    if runs and is_interpreter(words[0]):
        # Only a module is a separate program; other words are arguments of the interpreter.
        inner = [at for at in inner if words[at - 1] == "-m"]
    found: set[int] = set()
    for number, start in enumerate([0, *inner]):
        end = inner[number] if number < len(inner) else len(words)
        places = (start + at for at in doubtful(name_of(words[start]), words[start:]))
        # The outer program's arguments come before the inner program.
        found |= {at for at in places if at < end}
    return found


def _beyond(words: Sequence[str]) -> frozenset[int]:
    return beyond(name_of(words[0]), words)


def _is_named(word: str) -> bool:
    """Return whether a word of a pattern is literal, except for the value of an option."""
    name = word.partition("=")[0] if word.startswith("-") else word
    return not set(name) & set("*?")


def _fits(pattern: Sequence[str], words: Sequence[str]) -> bool:
    open_end = pattern[-1] == "*"
    fixed = pattern[:-1] if open_end else pattern
    if len(words) < len(fixed) or (len(words) > len(fixed) and not open_end):
        return False
    if fixed and ("/" in words[0] or "\\" in words[0]) and "/" not in fixed[0]:
        # A program of the same name in another directory is another program.
        return False
    known = words[: len(fixed)]
    return all(UNKNOWN not in word for word in known) and all(map(matches, fixed, known))


def perhaps(patterns: Sequence[str], command: ShellCommand, folder: str) -> bool:
    """Return whether a command may match one of the patterns."""
    return any(_may_fit(pattern_words(pattern), command.words, folder) for pattern in patterns)


def _may_fit(pattern: Sequence[str], words: Sequence[str], folder: str) -> bool:
    fixed = [plain(word) for word in (pattern[:-1] if pattern[-1] == "*" else pattern)]
    if not fixed:
        return True
    places = {0}
    previous = ""
    for at, word in enumerate(words):
        spellings = {plain(word)}
        if at == 0 and UNKNOWN not in word:
            spellings |= {plain(name_of(word)), plain(real_name(word, folder))}
        # Options may be in between, with or without a value.
        moved = set(places) if at and (word[:1] == "-" or previous[:1] == "-") else set[int]()
        for place in places:
            if UNKNOWN in word:
                known = plain(word.partition(UNKNOWN)[0])
                if not known or at == 0 or known[0] == "-":
                    moved |= set(range(place, len(fixed) + 1))
                elif may_begin(fixed[place], known):
                    moved |= set(range(place + 1, len(fixed) + 1))
            elif any(matches(fixed[place], spelling) for spelling in spellings):
                moved.add(place + 1)
        if len(fixed) in moved:
            return True
        if not moved:
            return False
        places, previous = moved, word
    return False
