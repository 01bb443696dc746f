"""Letting a peer use the model that was decided on.

Owns the three ways: a word of its command line, an option of the open session, a method. Which
model it is was decided before; what the peer then uses is read back. A model that somebody asked
for and cannot have is an error before anything is prompted; one that only a tier stands for is not.
"""

from __future__ import annotations

from dataclasses import replace

from dragoman.client.conversation import Conversation, Peer
from dragoman.errors import Unsupported, UsageError
from dragoman.events.view import View
from dragoman.hub.launching import Way
from dragoman.hub.models import match, model_option


def with_flag(way: Way, model: str) -> Way | None:
    """The way with the model in its command line; None for peers that are not told it there."""
    flag = None if way.descriptor is None else way.descriptor.models.flag
    if flag is None or way.command is None:
        return None
    words = (f"{flag}{model}",) if flag.endswith("=") else (flag, model)
    return replace(way, command=(*way.command, *words))


def offers_choice(view: View) -> bool:
    """Whether a model can be chosen while a session is open."""
    return model_option(view.options) is not None or view.model is not None


def model_in_use(view: View) -> str | None:
    """The model that a peer says it uses."""
    option = model_option(view.options)
    if option is not None and isinstance(option.value, str):
        return option.value
    return view.model


async def choose(
    conversation: Conversation, peer: Peer, view: View, wanted: str, *, strict: bool
) -> str | None:
    """Let the session use a model. What could not be had is told in words; `Unsupported` if it
    was `strict`ly asked for."""
    option = model_option(view.options)
    if option is not None:
        try:
            value = match(wanted, option.choices, peer="it")
        except UsageError as error:
            return _refused(str(error), strict)
        if option.value != value:
            await conversation.set_option(option.id, value)
        return None
    if view.model is not None and peer.capabilities.set_model is not False:
        await conversation.set_model(wanted)
        return None
    return _refused("it offers no choice of models", strict)


def _refused(why: str, strict: bool) -> str:
    if strict:
        raise Unsupported(why)
    return why
