"""The roles that the built-in peers claim, and what each role is for.

A descriptor may claim other roles: any word of the right form is a role.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

ROLES: Final[Mapping[str, str]] = {
    "execute": "carry out a task: edit, run, repeat until it works",
    "research": "find out what is known, in the code and outside of it",
    "exploration": "look around in a repository and tell what is where",
    "debug": "find the cause of a failure",
    "plan": "say how something should be done, without doing it",
    "review": "judge a change",
    "write": "write prose or code to a given outline",
}


def is_generalist(roles: Iterable[str]) -> bool:
    """Whether the roles include every known one. Measuring shows how good the peer is at each."""
    return set(ROLES) <= set(roles)
