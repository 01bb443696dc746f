"""Slash commands: finding one at the beginning of a prompt.

Owns the syntax: a slash, a name, and what follows it. It does not know which commands there are.
A path such as ``/usr/bin`` is no command.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dragoman.dialects.acp import v1 as acp

_COMMAND: Final = re.compile(r"/([A-Za-z][\w.:-]*)(?:\s+(.*))?\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Command:
    """A command as it was typed."""

    name: str
    input: str


def parse(prompt: Sequence[acp.ContentBlock]) -> Command | None:
    """The command that a prompt begins with, if it does: only its first block can hold one."""
    if not prompt or not isinstance(prompt[0], acp.TextContent):
        return None
    match = _COMMAND.match(prompt[0].text.strip())
    return None if match is None else Command(match[1], (match[2] or "").strip())
