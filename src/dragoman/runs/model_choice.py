"""Models of a session: list them, match a name, set it at the peer, read it back.

Sets it with an option, a method or a command-line flag, and raises before a prompt is sent if the
peer does not confirm it. `runs.sessions` opens the session and sets its mode, which is read back
here too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from msgspec.structs import replace

from dragoman.catalogue.launch import LaunchSpec
from dragoman.client.conversation import Conversation, Peer
from dragoman.dialects.discovery import CODEX
from dragoman.errors import ProtocolMismatch, Unsupported, UsageError
from dragoman.errors.usage import nearest, no_such, shown
from dragoman.events.parts import Choice, SessionOption
from dragoman.events.view import View

PREVIEW: Final = "-preview"
"""A suffix that vendors add to and drop from model names; people remember the name without it."""

MISSPELLED: Final = 0.85
"""Minimum similarity between an unlisted model name and a listed one at which a notice suggests the
listed one: one or two letters of a typical name differ. Other providers have names such as
`gpt-4o`."""

SHOWN_MODELS: Final = 3
"""Number of listed models that the notice names if none is similar."""


# -- matching a name


def model_option(options: Sequence[SessionOption]) -> SessionOption | None:
    """Return the option that chooses the model, or None if the agent has none."""
    return next((o for o in options if o.category == "model" and o.choices), None)


def match(
    wanted: str,
    choices: Sequence[Choice],
    *,
    peer: str,
    what: str = "model",
    open_ended: bool = False,
) -> str:
    """Return the value of the choice that `wanted` means, matched by value or name, with or without
    ``-preview``.

    Raises `Unsupported` with the list of choices, unless there may be more (`open_ended`), and
    `UsageError` if several choices match.
    """
    for same in (_exactly, _alike, _parent):
        # An agent may list one model under several names.
        found = {c.value: None for c in choices if same(c.value, wanted) or same(c.name, wanted)}
        if len(found) == 1:
            return next(iter(found))
        if found:
            listed = " and ".join(map(_one_line, found))
            raise UsageError(f"{wanted!r} matches {listed}: choose one")
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
    """Return the models that a peer offers in an open session, and the one that it uses (None if
    not reported)."""
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
    """Return the launch spec with the model in its command line, or None for peers without such a
    flag."""
    flag = None if way.descriptor is None else way.descriptor.models.flag
    if flag is None or way.command is None:
        return None
    words = (f"{flag}{model}",) if flag.endswith("=") else (flag, model)
    return replace(way, command=(*way.command, *words))


def offers_choice(view: View) -> bool:
    """Return whether a model can be chosen while a session is open."""
    return model_option(view.options) is not None or view.model is not None


def model_in_use(view: View) -> str | None:
    """Return the model that a peer reports, or None."""
    option = model_option(view.options)
    if option is not None and isinstance(option.value, str):
        return option.value
    return view.model


def model_choices(conversation: Conversation, view: View) -> Sequence[Choice]:
    """Return the models that an open session can use; empty if its peer does not report them."""
    option = model_option(view.options)
    return conversation.model_choices if option is None else option.choices


def mode_choices(view: View) -> Sequence[Choice]:
    """Return the modes that an open session can be in."""
    option = next((o for o in view.options if o.category == "mode" and o.choices), None)
    if option is not None:
        return option.choices
    return [Choice(mode.id, mode.name) for mode in view.modes]


def require_mode(view: View, wanted: str, *, peer: str) -> None:
    """Raise `ProtocolMismatch` if a peer reports a mode other than `wanted` for its session."""
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
    on_notice: Callable[[str], None],
) -> None:
    """Set the model of a newly opened session, and read it back. A peer that takes its model only
    from its command line is restarted with `restart`, which returns the new session.

    Raises before a prompt is sent: `Unsupported` if the peer does not have the model, offers no
    choice of models or does not report its model, `UsageError` if several models match, and
    `ProtocolMismatch` if the peer then uses another one.
    """
    flagged = None if offers_choice(view) else with_flag(way, wanted)
    if flagged is not None:
        conversation, view = await restart(flagged)
        if not offers_choice(view):
            raise Unsupported(
                f"{peer} was started with the model {wanted!r} and does not say which model it "
                f"uses; omit the model, and choose it in the settings of {peer} itself"
            )
    await use_model(conversation, view, wanted, peer=peer, on_notice=on_notice)


async def use_model(
    conversation: Conversation,
    view: View,
    wanted: str,
    *,
    peer: str,
    on_notice: Callable[[str], None],
) -> None:
    """Set the model of an open session, and read it back. Raises what `choose_model` raises.

    If the peer accepts models that it does not list, an unlisted name is used, with a notice. It is
    not an error: Codex lists OpenAI's models even for another provider, which may have models with
    similar names.
    """
    option = model_option(view.options)
    if option is not None:
        wanted = match(wanted, option.choices, peer=peer, open_ended=option.open_ended)
        listed = _listed(option)
        if option.open_ended and listed and wanted not in listed:
            told = f"{peer} does not list the model {shown(wanted)}, but its provider may have it"
            on_notice(f"{told}; {_meant(wanted, listed)}")
        if option.value != wanted:
            await conversation.set_option(option.id, wanted)
    elif view.model is not None:
        if conversation.model_choices:
            wanted = match(wanted, conversation.model_choices, peer=peer)
        if view.model != wanted:
            await conversation.set_model(wanted)
    else:
        raise Unsupported(
            f"{peer} offers no choice of models; omit the model, and choose it in the "
            f"settings of {peer} itself"
        )
    taken = model_in_use(view)
    if taken != wanted:
        raise _not_taken(peer, "model", wanted, taken)


def _listed(option: SessionOption) -> list[str]:
    """Return the models that the peer lists. If the model in use is not one of them, an open-ended
    option has it as its first choice, with its value as its name; that choice is left out."""
    choices = option.choices
    if choices and choices[0].value == choices[0].name:
        choices = choices[1:]
    return [choice.value for choice in choices]


def _meant(wanted: str, listed: Sequence[str]) -> str:
    """Return a hint: which of the listed models may be meant, or some of their names."""
    if close := nearest(wanted, listed, close=MISSPELLED):
        return f"did you mean {' or '.join(map(_one_line, close))}?"
    more = ", …" if len(listed) > SHOWN_MODELS else ""
    return f"it lists {', '.join(map(_one_line, listed[:SHOWN_MODELS]))}{more}"


async def switch_model(
    view: View, wanted: str, *, peer: str, switch: Callable[[str], Awaitable[None]]
) -> None:
    """Switch a session to the model `wanted` with `switch`, and read it back. Raises
    `ProtocolMismatch` if the peer then uses another model. If that is not the previous one either,
    the session is switched back first."""
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
        f"{peer} was asked for the {what} {wanted!r} but uses {taken!r}",
        hint=f"choose another {what}, or omit it: then {peer} decides",
    )
