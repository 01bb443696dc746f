"""Parse plain `dragoman run` command lines without importing typer.

Importing typer takes an eighth of a warm run. Help, mistakes and unusual spellings return None and
are left to typer, which declares the same options in `cli.run`. `cli.run_prompt` executes the
result.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from dragoman.cli.argv_checks import checked

COMPLETING: Final = "_DRAGOMAN_COMPLETE"
"""Set by a shell that wants to know which words are possible."""

FORMATS: Final = ("text", "json", "quiet")

PLACES: Final = ("peer", "prompt")
"""What the words that are no options stand for, in their order."""

FLAGS: Final[Mapping[str, str]] = {
    "--json-strict": "json_strict",
    "--approve-all": "approve_all",
    "--approve-reads": "approve_reads",
    "--deny-all": "deny_all",
    "--allow-unenforced": "allow_unenforced",
    "--fresh": "fresh",
    "--brief": "brief",
    "--no-wait": "no_wait",
    "--no-stdin": "no_stdin",
    "--cold": "cold",
    "--agent-stderr": "agent_stderr",
    "--verbose": "verbose",
    "-v": "verbose",
}


def _format(word: str) -> str:
    if word not in FORMATS:
        raise ValueError(word)
    return word


OPTIONS: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    "--file": ("file", Path),
    "-f": ("file", Path),
    "--image": ("image", Path),
    "--cwd": ("cwd", Path),
    "--format": ("format", _format),
    "--model": ("model", str),
    "-m": ("model", str),
    "--mode": ("mode", str),
    "--role": ("role", str),
    "--timeout": ("timeout", float),
    "--mcp-config": ("mcp_config", Path),
    "--dialect": ("dialect", str),
    "--env": ("env", str),
    "--session": ("session", str),
    "-s": ("session", str),
    "--ttl": ("ttl", str),
    "--trace": ("trace", Path),
}
"""Every option with a value: the name of the value, and what makes it of its word."""

REPEATED: Final = frozenset({"image", "env"})
"""Options that count as often as they are given; of any other the last one counts."""


def read(words: Sequence[str]) -> dict[str, Any] | None:
    """What `run_prompt.run` is called with; None if typer has to look at the words."""
    # On Windows typer takes file names with * in them apart, which no shell has done there.
    if not words or words[0] != "run" or os.name == "nt" or COMPLETING in os.environ:
        return None
    words = words[1:]
    given: dict[str, Any] = {"command": None}
    if "--" in words:
        at = words.index("--")
        given["command"] = tuple(words[at + 1 :])
        words = words[:at]
    places = iter(PLACES)
    rest = iter(words)
    for word in rest:
        if not _is_option(word):
            place = next(places, None)
            if place is None or not _is_text(word):
                return None
            given[place] = word
        elif word in FLAGS:
            given[FLAGS[word]] = True
        elif not _take(word, rest, given):
            return None
    return given


def _take(word: str, rest: Any, given: dict[str, Any]) -> bool:
    """Read an option with its value, which may be the next word; whether that could be done."""
    value: str | None
    if word in OPTIONS:
        value = next(rest, None)
        if value is None or _is_option(value):
            return False
    else:
        word, equals, value = word.partition("=")
        if not equals or not word.startswith("--") or word not in OPTIONS:
            return False
    name, make = OPTIONS[word]
    try:
        made = checked(make(value), value)
    except ValueError:
        return False
    if name in REPEATED:
        given.setdefault(name, []).append(made)
    else:
        given[name] = made
    return True


def _is_option(word: str) -> bool:
    """Whether it looks like one; a dash alone is stdin."""
    return word.startswith("-") and word != "-"


def _is_text(word: str) -> bool:
    """Whether it came in as UTF-8."""
    try:
        checked(word, word)
    except ValueError:
        return False
    return True
