"""Slash commands: find one at the beginning of a prompt.

The syntax is a slash, a name, and the text after it. A path such as ``/usr/bin`` is not a command.
A sentence that begins with a path, ``/etc is broken``, looks like one, so the caller compares it
with the existing commands.
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
    """A slash command as the user typed it."""

    name: str
    input: str


def is_name(name: str) -> bool:
    """Return whether this is a valid name for a command."""
    return re.fullmatch(_NAME, name) is not None


def parse(prompt: Sequence[acp.ContentBlock]) -> Command | None:
    """Return the command at the beginning of a prompt, or None. Only the first block can contain
    one."""
    if not prompt or not isinstance(prompt[0], acp.TextContent):
        return None
    match = _COMMAND.match(prompt[0].text.strip())
    return None if match is None else Command(match[1], (match[2] or "").strip())


def missing(name: str, known: Iterable[str]) -> str:
    """Return the message to the user for a command that does not exist."""
    names = ", ".join(f"/{each}" for each in known)
    return f"There is no command /{name}. The commands are: {names}."


def is_meant(command: Command, known: Iterable[str]) -> bool:
    """Return whether a user who typed an unknown command most likely meant a command: it has no
    input, or its name is similar to that of a command in `known`.

    Anything else is an ordinary prompt.
    """
    if not command.input:
        return True
    # Not at the top: few prompts get here.
    import difflib

    return bool(difflib.get_close_matches(command.name, [*known], 1))
