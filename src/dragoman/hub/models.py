"""Which of an agent's models a person means.

Owns the matching of a name with what the agent offers, for every surface. It sets nothing: whoever
opened the session does, and reads back what became of it. A model that does not exist is an error
before anything is prompted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dragoman.errors import UsageError
from dragoman.events.parts import Choice, Option

PREVIEW: Final = "-preview"
"""Makers add and drop this at the end of a model's name; people remember the name without it."""


def model_option(options: Sequence[Option]) -> Option | None:
    """The option that chooses the model, if the agent has one."""
    return next((o for o in options if o.category == "model" and o.choices), None)


def match(wanted: str, choices: Sequence[Choice], *, peer: str) -> str:
    """The value of the choice that is meant: by its value, by its name, or by either without or
    with ``-preview``. Raises `UsageError` that lists what there is."""
    for same in (_exactly, _alike, _parent):
        # An agent may list one model under several names.
        found = {c.value: None for c in choices if same(c.value, wanted) or same(c.name, wanted)}
        if len(found) == 1:
            return next(iter(found))
        if found:
            listed = " and ".join(map(_one_line, found))
            raise UsageError(f"{wanted!r} could be {listed}: say which")
    listed = ", ".join(_one_line(choice.value) for choice in choices)
    from difflib import get_close_matches

    near = get_close_matches(wanted, [choice.value for choice in choices], n=1)
    meant = f"; did you mean {_one_line(near[0])}?" if near else "."
    raise UsageError(f"{peer} has no model {wanted!r}{meant} It has: {listed}")


def _one_line(value: str) -> str:
    return " ".join(value.split())


def _exactly(one: str, other: str) -> bool:
    return one == other


def _alike(one: str, other: str) -> bool:
    return one.casefold() == other.casefold()


def _parent(one: str, other: str) -> bool:
    return one.casefold().removesuffix(PREVIEW) == other.casefold().removesuffix(PREVIEW)
