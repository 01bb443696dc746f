"""A model is chosen by what the peer offers, and what it cannot have is said before a prompt."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dragoman.errors import Unsupported
from dragoman.events.parts import Choice, Option
from dragoman.events.view import View
from dragoman.hub.catalogue.descriptor import Descriptor, Launch, Models
from dragoman.hub.delegating import choosing_model
from dragoman.hub.launching import Way
from tests.aio import aio

CHOICES = (Choice("small", "Small"), Choice("large-preview", "Large"))


class Session:
    """Remembers what it was told to use."""

    def __init__(self) -> None:
        self.told: list[tuple[str, ...]] = []

    async def set_option(self, id: str, value: str) -> None:
        self.told.append((id, value))

    async def set_model(self, model: str) -> None:
        self.told.append((model,))


def offering(value: str = "small") -> View:
    option = Option(id="m", name="Model", category="model", value=value, choices=CHOICES)
    return View(options=(option,))


async def choose(view: View, wanted: str, *, strict: bool = True, can: Any = None) -> Any:
    session, peer = Session(), SimpleNamespace(capabilities=SimpleNamespace(set_model=can))
    note = await choosing_model.choose(session, peer, view, wanted, strict=strict)  # type: ignore[arg-type]
    return note, session.told


@aio
async def test_an_option_is_set_unless_it_is_set_already() -> None:
    assert await choose(offering(), "large") == (None, [("m", "large-preview")])
    assert await choose(offering(), "SMALL") == (None, [])


@aio
async def test_without_an_option_there_is_the_method() -> None:
    assert await choose(View(model="a"), "b") == (None, [("b",)])


@aio
async def test_what_cannot_be_had_is_an_error_only_if_it_was_asked_for() -> None:
    for view, can in ((offering(), None), (View(), None), (View(model="a"), False)):
        with pytest.raises(Unsupported):
            await choose(view, "huge", can=can)
        note, told = await choose(view, "huge", strict=False, can=can)
        assert note and told == []


@aio
async def test_a_name_that_fits_two_models_is_never_guessed() -> None:
    twins = (Choice("a", "Same"), Choice("b", "Same"))
    view = View(options=(Option(id="m", name="M", category="model", value="a", choices=twins),))
    note, told = await choose(view, "same", strict=False)
    assert "a and b" in note and told == []


def test_the_model_in_use_is_what_the_peer_says() -> None:
    assert choosing_model.model_in_use(offering("large-preview")) == "large-preview"
    assert choosing_model.model_in_use(View(model="x")) == "x"
    assert choosing_model.offers_choice(View(model="x")) and not choosing_model.offers_choice(
        View()
    )


def test_a_flag_stands_at_the_end_of_the_command_line() -> None:
    def way(flag: str | None) -> Way:
        known = Descriptor(name="a", title="A", launch=(Launch(),), models=Models(flag=flag))
        return Way(command=("a", "--acp"), descriptor=known)

    for flag, words in (("--model", ("--model", "x")), ("--model=", ("--model=x",))):
        flagged = choosing_model.with_flag(way(flag), "x")
        assert flagged is not None and flagged.command == ("a", "--acp", *words)
    assert choosing_model.with_flag(way(None), "x") is None
    assert choosing_model.with_flag(Way(address="unix:/x"), "x") is None
