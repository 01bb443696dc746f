"""Models of a session: list them, match a name, set it at the peer, read it back.

Sets it by an option, a method or a command-line flag, and raises before anything is prompted if
the peer does not confirm it. `runs.sessions` opens the session and sets its mode, which is read
back here too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from msgspec.structs import replace

from dragoman.catalogue.launch import LaunchSpec
from dragoman.client.conversation import Conversation, Peer
from dragoman.dialects.discovery import CODEX
from dragoman.errors import ProtocolMismatch, Unsupported, UsageError
from dragoman.errors.usage import no_such
from dragoman.events.parts import Choice, SessionOption
from dragoman.events.view import View

PREVIEW: Final = "-preview"
"""Vendors add and drop this suffix of a model's name; people remember the name without it."""


# -- matching a name


def model_option(options: Sequence[SessionOption]) -> SessionOption | None:
    """The option that chooses the model, if the agent has one."""
    return next((o for o in options if o.category == "model" and o.choices), None)


def match(
    wanted: str,
    choices: Sequence[Choice],
    *,
    peer: str,
    what: str = "model",
    open_ended: bool = False,
) -> str:
    """The value of the choice that is meant: by its value, by its name, or by either without or
    with ``-preview``. Raises `Unsupported` with the list of choices, unless there may be more."""
    for same in (_exactly, _alike, _parent):
        # An agent may list one model under several names.
        found = {c.value: None for c in choices if same(c.value, wanted) or same(c.name, wanted)}
        if len(found) == 1:
            return next(iter(found))
        if found:
            listed = " and ".join(map(_one_line, found))
            raise UsageError(f"{wanted!r} could be {listed}: say which")
    if open_ended:
        return wanted
    raise no_such(what, wanted, (choice.value for choice in choices), peer=peer)


def _one_line(value: str) -> str:
    return " ".join(value.split())


def _exactly(one: str, other: str) -> bool:
    return one == other


def _alike(one: str, other: str) -> bool:
    return one.casefold() == other.casefold()


def _parent(one: str, other: str) -> bool:
    return one.casefold().removesuffix(PREVIEW) == other.casefold().removesuffix(PREVIEW)


# -- listing models


async def offered_models(
    peer: Peer, conversation: Conversation, view: View
) -> tuple[Sequence[Choice], str | None]:
    """The models that a peer offers in an open session, and its default; None if it does not
    report them."""
    option = model_option(view.options)
    if option is not None:
        return option.choices, model_in_use(view)
    if peer.dialect == CODEX:
        listed = await peer.client.models()
        default = next((each.model for each in listed if each.is_default), None)
        choices = [Choice(one.model, one.display_name, one.description or None) for one in listed]
        return choices, view.model or default
    return conversation.model_choices, view.model


# -- setting the model


def with_flag(way: LaunchSpec, model: str) -> LaunchSpec | None:
    """The launch spec with the model in its command line; None for peers without such a flag."""
    flag = None if way.descriptor is None else way.descriptor.models.flag
    if flag is None or way.command is None:
        return None
    words = (f"{flag}{model}",) if flag.endswith("=") else (flag, model)
    return replace(way, command=(*way.command, *words))


def offers_choice(view: View) -> bool:
    """Whether a model can be chosen while a session is open."""
    return model_option(view.options) is not None or view.model is not None


def model_in_use(view: View) -> str | None:
    """The model that a peer reports."""
    option = model_option(view.options)
    if option is not None and isinstance(option.value, str):
        return option.value
    return view.model


def model_choices(conversation: Conversation, view: View) -> Sequence[Choice]:
    """The models that an open session can use, if its peer reports them."""
    option = model_option(view.options)
    return conversation.model_choices if option is None else option.choices


def mode_choices(view: View) -> Sequence[Choice]:
    """The modes that an open session can be in."""
    option = next((o for o in view.options if o.category == "mode" and o.choices), None)
    if option is not None:
        return option.choices
    return [Choice(mode.id, mode.name) for mode in view.modes]


def require_mode(view: View, wanted: str, *, peer: str) -> None:
    """Raise `ProtocolMismatch` if a peer reports another mode for its session."""
    if view.mode is not None and view.mode != wanted:
        raise _not_taken(peer, "mode", wanted, view.mode)


async def choose_model(
    conversation: Conversation,
    view: View,
    wanted: str,
    *,
    way: LaunchSpec,
    restart: Callable[[LaunchSpec], Awaitable[tuple[Conversation, View]]],
    peer: str,
) -> None:
    """Set the model of a newly opened session, and read it back. A peer that takes its model only
    from its command line is restarted: `restart` does that, and returns the new session.

    Raises before anything is prompted: `UsageError` for a model that the peer does not have or does
    not confirm, and `ProtocolMismatch` if it took another one.
    """
    flagged = None if offers_choice(view) else with_flag(way, wanted)
    if flagged is not None:
        conversation, view = await restart(flagged)
        if not offers_choice(view):
            raise Unsupported(
                f"{peer} was started with the model {wanted!r} and does not say which model it "
                f"uses; leave the model out, and choose it in the settings of {peer} itself"
            )
    await use_model(conversation, view, wanted, peer=peer)


async def use_model(conversation: Conversation, view: View, wanted: str, *, peer: str) -> None:
    """Set the model of an open session, and read it back. Raises what `choose_model` raises."""
    option = model_option(view.options)
    if option is not None:
        wanted = match(wanted, option.choices, peer=peer, open_ended=option.open_ended)
        if option.value != wanted:
            await conversation.set_option(option.id, wanted)
    elif view.model is not None:
        if conversation.model_choices:
            wanted = match(wanted, conversation.model_choices, peer=peer)
        if view.model != wanted:
            await conversation.set_model(wanted)
    else:
        raise Unsupported(
            f"{peer} offers no choice of models; leave the model out, and choose it in the "
            f"settings of {peer} itself"
        )
    taken = model_in_use(view)
    if taken != wanted:
        raise _not_taken(peer, "model", wanted, taken)


async def switch_model(
    view: View, wanted: str, *, peer: str, switch: Callable[[str], Awaitable[None]]
) -> None:
    """Switch a session to another model with `switch`, and read it back. If the peer takes a
    third one, it is switched back. Raises `ProtocolMismatch` if it did not take the wanted one."""
    before = model_in_use(view)
    await switch(wanted)
    taken = model_in_use(view)
    if taken == wanted:
        return
    if before is not None and taken != before:
        await switch(before)
    raise _not_taken(peer, "model", wanted, taken)


def _not_taken(peer: str, what: str, wanted: str, taken: str | None) -> ProtocolMismatch:
    return ProtocolMismatch(
        f"{peer} was asked for the {what} {wanted!r} and took {taken!r}",
        hint=f"choose another {what}, or leave it out: then {peer} decides",
    )
