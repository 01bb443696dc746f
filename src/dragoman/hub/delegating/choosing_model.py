"""Letting a peer use the model that was decided on.

Owns the three ways: a word of its command line, an option of the open session, a method. Which
model it is was decided before; what the peer then uses is read back. A model that somebody asked
for and cannot have is an error before anything is prompted; one that only a tier stands for is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from dragoman.client.conversation import Conversation, Peer
from dragoman.errors import Unsupported
from dragoman.events.parts import Choice, Option
from dragoman.events.view import View
from dragoman.hub.launching import Way

PREVIEW: Final = "-preview"
"""Makers add and drop this at the end of a model's name."""


def with_flag(way: Way, model: str) -> Way | None:
    """The way with the model in its command line; None for peers that are not told it there."""
    flag = None if way.descriptor is None else way.descriptor.models.flag
    if flag is None or way.command is None:
        return None
    words = (f"{flag}{model}",) if flag.endswith("=") else (flag, model)
    return replace(way, command=(*way.command, *words))


def model_option(view: View) -> Option | None:
    """The option of a session that chooses the model."""
    return next((one for one in view.options if one.category == "model" and one.choices), None)


def offers_choice(view: View) -> bool:
    """Whether a model can be chosen while a session is open."""
    return model_option(view) is not None or view.model is not None


def model_in_use(view: View) -> str | None:
    """The model that a peer says it uses."""
    option = model_option(view)
    if option is not None and isinstance(option.value, str):
        return option.value
    return view.model


async def choose(
    conversation: Conversation, peer: Peer, view: View, wanted: str, *, strict: bool
) -> str | None:
    """Let the session use a model. What could not be had is told in words; `Unsupported` if it
    was `strict`ly asked for."""
    option = model_option(view)
    if option is not None:
        value = match(wanted, option.choices)
        if value is None:
            listed = ", ".join(choice.value for choice in option.choices)
            return _refused(f"it has no model {wanted}, but {listed}", strict)
        if option.value != value:
            await conversation.set_option(option.id, value)
        return None
    if view.model is not None and peer.capabilities.set_model is not False:
        await conversation.set_model(wanted)
        return None
    return _refused("it offers no choice of models", strict)


def match(wanted: str, choices: Sequence[Choice]) -> str | None:
    """The choice that is meant, by its value or its name; None if none is, or more than one."""
    for same in (str, str.casefold, _parent):
        key = same(wanted)
        found = {one.value for one in choices if key in (same(one.value), same(one.name))}
        if found:
            return found.pop() if len(found) == 1 else None
    return None


def _parent(name: str) -> str:
    return name.casefold().removesuffix(PREVIEW)


def _refused(why: str, strict: bool) -> str:
    if strict:
        raise Unsupported(why)
    return why
