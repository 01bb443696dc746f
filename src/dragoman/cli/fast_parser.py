"""Parse plain `dragoman run` command lines without importing typer.

Importing typer takes an eighth of a warm run. Help, mistakes and unusual spellings return None and
are left to typer, which is given the same table of options (`cli.prompt_options`).
`cli.run_prompt` executes the result.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from dragoman.cli.prompt_options import COMMANDS, CommandOption

COMPLETING: Final = "_DRAGOMAN_COMPLETE"
"""Set by a shell that wants to know which words are possible."""

ARGUMENTS: Final = tuple(option for option in COMMANDS["run"] if option.argument)

OPTIONS: Final[Mapping[str, CommandOption]] = {
    word: option for option in COMMANDS["run"] if not option.argument for word in option.words
}


def read(words: Sequence[str]) -> dict[str, Any] | None:
    """What `run_prompt.run` is called with; None if typer has to look at the words."""
    # On Windows typer takes file names with * in them apart, which no shell has done there.
    if not words or words[0] != "run" or os.name == "nt" or COMPLETING in os.environ:
        return None
    words = words[1:]
    given: dict[str, Any] = {option.name: option.initial for option in COMMANDS["run"]}
    given["command"] = None
    if "--" in words:
        at = words.index("--")
        given["command"] = tuple(words[at + 1 :])
        words = words[:at]
    arguments = iter(ARGUMENTS)
    rest = iter(words)
    try:
        for word in rest:
            if _is_option(word):
                option, value = _with_value(word, rest)
            else:
                option, value = next(arguments, ARGUMENTS[-1]), word
            _put(given, option, value)
    except (LookupError, StopIteration, ValueError):
        return None
    return given


def _with_value(word: str, rest: Iterator[str]) -> tuple[CommandOption, str]:
    """An option and its value, which may be the next word. Raises an exception if there is no such
    option or no value."""
    if word not in OPTIONS:
        word, equals, value = word.partition("=")
        if not equals or not word.startswith("--") or OPTIONS[word].kind is bool:
            raise LookupError(word)
        return OPTIONS[word], value
    option = OPTIONS[word]
    value = "" if option.kind is bool else next(rest)
    if _is_option(value):
        raise ValueError(value)
    return option, value


def _put(given: dict[str, Any], option: CommandOption, word: str) -> None:
    """Store the value of an option. Raises `ValueError` if the word does not make one."""
    value = True if option.kind is bool else option.value(word)
    if option.repeat:
        given[option.name].append(value)
    else:
        given[option.name] = value


def _is_option(word: str) -> bool:
    """Whether it looks like one; a dash alone is stdin."""
    return word.startswith("-") and word != "-"
