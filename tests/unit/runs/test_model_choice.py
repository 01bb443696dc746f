"""Which model is meant, and what is said when there is none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman.catalogue.descriptor import Descriptor, Launch, Models
from dragoman.catalogue.launch import LaunchSpec
from dragoman.dialects.codex.shapes import Model
from dragoman.errors import ProtocolMismatch, Unsupported, UsageError
from dragoman.events.parts import Choice, SessionOption
from dragoman.events.view import View
from dragoman.runs.model_choice import (
    choose_model,
    match,
    mode_choices,
    model_choices,
    model_in_use,
    model_option,
    offered_models,
    offers_choice,
    require_mode,
    switch_model,
    use_model,
    with_flag,
)
from tests.aio import aio

CHOICES = (
    Choice("gpt-5", "GPT-5"),
    Choice("gpt-5-mini", "GPT-5 mini"),
    Choice("gemini-3-pro-preview", "Gemini 3 Pro"),
)


@pytest.mark.parametrize(
    ("wanted", "value"),
    [
        ("gpt-5", "gpt-5"),
        ("GPT-5 mini", "gpt-5-mini"),
        ("Gpt-5-Mini", "gpt-5-mini"),
        ("gemini-3-pro", "gemini-3-pro-preview"),
        ("gpt-5-preview", "gpt-5"),
    ],
)
def test_a_model_is_found_by_value_by_name_and_with_or_without_preview(
    wanted: str, value: str
) -> None:
    assert match(wanted, CHOICES, peer="x") == value


def test_an_unknown_model_is_an_error_that_lists_all_and_names_the_nearest() -> None:
    with pytest.raises(Unsupported) as caught:
        match("gtp-5-mini", CHOICES, peer="codex")
    assert "codex has no model 'gtp-5-mini'; did you mean gpt-5-mini" in str(caught.value)
    assert "gpt-5, gpt-5-mini, gemini-3-pro-preview" in str(caught.value)


def test_of_many_models_only_the_nearest_are_named() -> None:
    many = [Choice(f"maker/model-{n}", f"Model {n}") for n in range(130)]
    with pytest.raises(UsageError) as caught:
        match("maker/mdel-7", many, peer="opencode")
    said = str(caught.value)
    assert "did you mean maker/model-7" in said and "It has 130" in said
    assert len(said) < 200


def test_two_that_fit_are_an_error_and_an_exact_one_is_not() -> None:
    twins = (Choice("pro", "a"), Choice("PRO", "b"))
    assert match("pro", twins, peer="x") == "pro"
    with pytest.raises(UsageError, match="matches pro and PRO: choose one"):
        match("Pro", twins, peer="x")


def test_one_model_under_two_names_is_one() -> None:
    assert match("Pro", (Choice("pro-1", "pro"), Choice("pro-1", "Pro")), peer="x") == "pro-1"
    assert match("PRO", (Choice("pro-1", "pro"), Choice("pro-1", "Pro")), peer="x") == "pro-1"


def test_the_option_for_models_is_the_one_of_that_category_with_choices() -> None:
    mode = SessionOption("mode", "Mode", "a", CHOICES, "mode")
    empty = SessionOption("m0", "Model", "a", (), "model")
    model = SessionOption("m1", "Model", "gpt-5", CHOICES, "model")
    assert model_option((mode, empty, model)) is model
    assert model_option((mode,)) is None


class ListingPeer:
    """A peer of a dialect that lists its models apart from a session."""

    def __init__(self, dialect: str, *listed: Model) -> None:
        self.dialect = dialect
        self.client = self
        self._listed = listed

    async def models(self) -> tuple[Model, ...]:
        return self._listed


@aio
async def test_the_models_come_from_the_option_the_session_or_the_server() -> None:
    async def offered(peer: ListingPeer, view: View, **how: Any) -> Any:
        return await offered_models(peer, Session(view, **how), view)  # type: ignore[arg-type]

    acp, a, b = ListingPeer("acp"), Choice("a", "A"), Choice("b", "B")
    assert await offered(acp, offering()) == (CHOICES, "gpt-5")
    assert await offered(acp, View(model="b"), models=(a, b)) == ((a, b), "b")
    assert await offered(acp, View()) == ((), None)
    listed = [Model(id="x", model=name, display_name=name.upper()) for name in ("a", "b")]
    codex = ListingPeer("codex", listed[0], replace(listed[1], is_default=True))
    assert await offered(codex, View()) == ([a, b], "b")
    assert await offered(codex, View(model="a")) == ([a, b], "a")


# -- setting it


class Session:
    """Does what it is told, unless it is `stubborn`."""

    def __init__(self, view: View, *, stubborn: bool = False, models: tuple[Choice, ...] = ()):
        self.view = view
        self.model_choices = models
        self.told: list[tuple[str, ...]] = []
        self.notices: list[str] = []
        self._stubborn = stubborn

    async def set_option(self, id: str, value: str) -> None:
        self.told.append((id, value))
        if not self._stubborn:
            self.view.options = tuple(replace(each, value=value) for each in self.view.options)

    async def set_model(self, model: str) -> None:
        self.told.append((model,))
        if not self._stubborn:
            self.view.model = model


def offering(value: str = "gpt-5", **more: Any) -> View:
    option = SessionOption("m", "Model", value, CHOICES, "model", **more)
    return View(options=(option,))


async def use(view: View, wanted: str, **how: Any) -> list[tuple[str, ...]]:
    session = Session(view, **how)
    await use_model(
        session,  # type: ignore[arg-type]
        view,
        wanted,
        peer="it",
        on_notice=session.notices.append,
    )
    return session.told


@aio
async def test_an_option_is_set_unless_it_is_set_already() -> None:
    assert await use(offering(), "gpt-5 mini") == [("m", "gpt-5-mini")]
    assert await use(offering(), "GPT-5") == []


@aio
async def test_an_option_that_takes_any_name_gets_the_one_that_was_asked_for() -> None:
    assert await use(offering(open_ended=True), "my-own") == [("m", "my-own")]
    assert await use(offering(open_ended=True), "gpt-5 mini") == [("m", "gpt-5-mini")]


@aio
async def test_without_an_option_there_is_the_method() -> None:
    assert await use(View(model="a"), "b") == [("b",)]
    assert await use(View(model="a"), "a") == []
    assert await use(View(model="a"), "GPT-5 mini", models=CHOICES) == [("gpt-5-mini",)]
    with pytest.raises(UsageError, match="it has no model 'huge'"):
        await use(View(model="a"), "huge", models=CHOICES)


@aio
async def test_what_cannot_be_had_is_an_error() -> None:
    with pytest.raises(UsageError, match="it has no model 'huge'"):
        await use(offering(), "huge")
    with pytest.raises(Unsupported, match="offers no choice of models"):
        await use(View(), "huge")


@aio
async def test_a_peer_that_takes_another_model_is_found_out() -> None:
    for view, wanted in ((offering(), "gpt-5-mini"), (View(model="a"), "b")):
        with pytest.raises(ProtocolMismatch, match="but uses"):
            await use(view, wanted, stubborn=True)


@pytest.mark.parametrize(
    ("answers", "asked", "error"),
    [
        (["b"], ["b"], None),
        (["a"], ["b"], "uses 'a'"),
        (["c", "a"], ["b", "a"], "uses 'c'"),
    ],
    ids=["taken", "kept", "third"],
)
@aio
async def test_a_switch_is_read_back_and_a_third_model_set_back(
    answers: list[str], asked: list[str], error: str | None
) -> None:
    view, told = View(model="a"), []

    async def switch(model: str) -> None:
        told.append(model)
        view.model = answers[len(told) - 1]

    if error is None:
        await switch_model(view, "b", peer="it", switch=switch)
    else:
        with pytest.raises(ProtocolMismatch, match=error):
            await switch_model(view, "b", peer="it", switch=switch)
    assert told == asked


def way(flag: str | None) -> LaunchSpec:
    known = Descriptor(name="a", title="A", launch=(Launch(),), models=Models(flag=flag))
    return LaunchSpec(command=("a", "--acp"), descriptor=known)


@aio
async def test_a_peer_with_a_flag_is_started_again_and_read_back() -> None:
    ways: list[LaunchSpec] = []
    for after, error in ((View(model="x"), None), (View(), Unsupported), (offering(), UsageError)):

        async def restart(way: LaunchSpec, after: View = after) -> Any:
            ways.append(way)
            return Session(after), after

        choosing = choose_model(
            Session(View()),  # type: ignore[arg-type]
            View(),
            "x",
            way=way("--model"),
            restart=restart,
            peer="it",
            on_notice=lambda text: None,
        )
        if error is None:
            await choosing
        else:
            with pytest.raises(error):
                await choosing
    assert [way.command for way in ways] == [("a", "--acp", "--model", "x")] * 3


def test_the_model_in_use_is_what_the_peer_says() -> None:
    assert model_in_use(offering("gpt-5-mini")) == "gpt-5-mini"
    assert model_in_use(View(model="x")) == "x"
    assert offers_choice(View(model="x")) and not offers_choice(View())


def test_a_flag_stands_at_the_end_of_the_command_line() -> None:
    for flag, words in (("--model", ("--model", "x")), ("--model=", ("--model=x",))):
        flagged = with_flag(way(flag), "x")
        assert flagged is not None and flagged.command == ("a", "--acp", *words)
    assert with_flag(way(None), "x") is None
    assert with_flag(LaunchSpec(address="unix:/x"), "x") is None


def test_another_mode_than_the_wanted_one_is_an_error() -> None:
    require_mode(View(), "plan", peer="x")
    require_mode(View(mode="plan"), "plan", peer="x")
    with pytest.raises(ProtocolMismatch, match="x was asked for the mode 'plan' but uses 'code'"):
        require_mode(View(mode="code"), "plan", peer="x")


def test_modes_are_those_of_the_option_or_those_that_the_peer_lists() -> None:
    option = SessionOption(
        "m", "Mode", "ask", (Choice("ask", "Ask"), Choice("code", "Code")), "mode"
    )
    listed = (SessionOption("plan", "Plan", "plan"),)
    assert mode_choices(View(modes=listed)) == [Choice("plan", "Plan")]
    assert mode_choices(View(options=(option,), modes=listed)) == option.choices
    assert mode_choices(View()) == []
    with pytest.raises(Unsupported, match="tester has no mode 'cod'; did you mean code"):
        match("cod", option.choices, peer="tester", what="mode")


def test_models_are_those_of_the_option_or_those_that_the_conversation_tells() -> None:
    conversation: Any = SimpleNamespace(model_choices=(Choice("big", "Big"),))
    assert model_choices(conversation, View()) == (Choice("big", "Big"),)
    option = SessionOption("m", "Model", "a", (Choice("a", "A"),), "model")
    assert model_choices(conversation, View(options=(option,))) == option.choices


@pytest.mark.parametrize(
    ("wanted", "noticed"),
    [
        ("gpt-5-mimi", "did you mean gpt-5-mini?"),
        ("gpt-5-mini", ""),
        ("gpt-4o", "it lists gpt-5, gpt-5-mini"),
        ("the-providers-own", "it lists gpt-5, gpt-5-mini"),
    ],
)
@aio
async def test_an_unlisted_model_is_taken_and_told(wanted: str, noticed: str) -> None:
    # As Codex lists them for another provider: first the model in use, which has no name there.
    known = (Choice("gpt-5", "GPT-5"), Choice("gpt-5-mini", "GPT-5 mini"))
    in_use = () if wanted == "gpt-5-mini" else (Choice(wanted, wanted),)
    option = SessionOption("m", "Model", wanted, (*in_use, *known), "model", open_ended=True)
    view = View(options=(option,))
    session = Session(view)
    await use_model(
        session,  # type: ignore[arg-type]
        view,
        wanted,
        peer="it",
        on_notice=session.notices.append,
    )
    told = [f"it does not list the model {wanted!r}, but its provider may have it; {noticed}"]
    assert session.notices == (told if noticed else [])
