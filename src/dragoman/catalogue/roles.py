"""The roles that the built-in peers claim, and what each role is for.

A descriptor may claim other roles: any word of the right form is a role.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

ROLES: Final[Mapping[str, str]] = {
    "execute": "carry out a task: edit, run, repeat until it works",
    "research": "find information, in the code and elsewhere",
    "exploration": "explore a repository and report where things are",
    "debug": "find the cause of a failure",
    "plan": "plan how to do something, without doing it",
    "review": "review a change",
    "write": "write prose or code to a given outline",
}


def is_generalist(roles: Iterable[str]) -> bool:
    """Return whether a peer with these roles claims every role in `ROLES`."""
    return set(ROLES) <= set(roles)
