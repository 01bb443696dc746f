"""Slash commands: finding one at the beginning of a prompt.

Owns the syntax: a slash, a name, and what follows it. It does not know which commands there are.
A path such as ``/usr/bin`` is no command. A sentence that begins with a path, ``/etc is broken``,
looks like one, so whoever knows the commands asks whether one was meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from dragoman.dialects.acp import v1 as acp

_NAME: Final = r"[A-Za-z][\w.:-]*"
_COMMAND: Final = re.compile(rf"/({_NAME})(?:\s+(.*))?\Z", re.DOTALL)


class Command(Struct, frozen=True):
    """A command as it was typed."""

    name: str
    input: str


def is_name(name: str) -> bool:
    """Whether a command can be called that."""
    return re.fullmatch(_NAME, name) is not None


def parse(prompt: Sequence[acp.ContentBlock]) -> Command | None:
    """The command that a prompt begins with, if it does: only its first block can hold one."""
    if not prompt or not isinstance(prompt[0], acp.TextContent):
        return None
    match = _COMMAND.match(prompt[0].text.strip())
    return None if match is None else Command(match[1], (match[2] or "").strip())


def missing(name: str, known: Iterable[str]) -> str:
    """What the user is shown for a command that does not exist."""
    names = ", ".join(f"/{each}" for each in known)
    return f"There is no command /{name}. The commands are: {names}."


def is_meant(command: Command, known: Iterable[str]) -> bool:
    """Whether somebody who typed a command that does not exist most likely wanted one: it stands
    alone, or is nearly the name of one that does. Anything else is a prompt like any other."""
    if not command.input:
        return True
    # Not at the top: few prompts come here.
    import difflib

    return bool(difflib.get_close_matches(command.name, [*known], 1))
