"""What a client may choose in a session that lives at the peer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dragoman.bridge.choices import Choices, stands_for_models
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1 import codec
from dragoman.events import parts
from dragoman.events.view import View

PLAIN = acp.ClientCapabilities()
BOOLEANS = codec.convert(
    {"session": {"configOptions": {"boolean": {}}}},
    acp.ClientCapabilities,
)

VIEW = View(
    mode="plan",
    modes=(parts.Option("plan", "Plan", "plan"), parts.Option("code", "Code", "code")),
    options=(
        parts.Option("web", "Web", False),
        parts.Option(
            "effort", "Effort", "low", (parts.Choice("low", "Low", "little"),), "thought_level"
        ),
    ),
)

MODELS = SimpleNamespace(
    current_model_id="big",
    available_models=[
        SimpleNamespace(model_id="big", name="Big", description=None),
        SimpleNamespace(model_id="small", name="Small", description="quick"),
    ],
)


def native(**session: Any) -> Any:
    """A conversation with an agent that speaks ACP itself."""
    return SimpleNamespace(
        session=SimpleNamespace(
            **{"config_options": None, "models": None, "modes": None, **session}
        )
    )


def select(category: str | None) -> acp.SessionConfigSelect:
    return acp.SessionConfigSelect(
        id="llm", name="LLM", current_value="a", options=[], category=category
    )


# -- a peer that is translated


def test_the_modes_are_those_that_the_peer_told_last() -> None:
    state = Choices(None, VIEW).mode_state("what the client believes")
    assert state is not None
    assert state.current_mode_id == "plan"
    assert [(mode.id, mode.name) for mode in state.available_modes] == [
        ("plan", "Plan"),
        ("code", "Code"),
    ]
    assert Choices(None, VIEW).first_mode == "plan"


@pytest.mark.parametrize(
    "view",
    [View(), View(mode="plan"), View(modes=(parts.Option("plan", "Plan", "plan"),))],
    ids=["nothing", "a mode without a list", "a list without a mode"],
)
def test_half_a_list_of_modes_is_not_shown(view: View) -> None:
    assert Choices(None, view).mode_state(None) is None
    assert Choices(None, view).first_mode is None


def test_what_the_view_learns_later_is_shown_from_then_on() -> None:
    view = View()
    choices = Choices(None, view)
    assert choices.config_options(None, {}, BOOLEANS) == []
    view.options = VIEW.options
    assert [option.id for option in choices.config_options(None, {}, BOOLEANS)] == [  # type: ignore[union-attr]
        "web",
        "effort",
    ]


def test_options_are_put_into_the_words_of_acp() -> None:
    web, effort = Choices(None, VIEW).config_options(None, {"web": True}, BOOLEANS)
    assert web == acp.SessionConfigBoolean(id="web", name="Web", current_value=False)
    assert effort == acp.SessionConfigSelect(
        id="effort",
        name="Effort",
        current_value="low",
        category="thought_level",
        options=[acp.SessionConfigSelectOption(value="low", name="Low", description="little")],
    )


def test_a_client_that_knows_no_switches_gets_none() -> None:
    (only,) = Choices(None, VIEW).config_options(None, {}, PLAIN)
    assert isinstance(only, acp.SessionConfigSelect)


def test_the_peer_has_the_last_word_on_every_value() -> None:
    choices = Choices()
    assert choices.has_mode("never heard of")
    assert choices.allows("never heard of", object())


# -- a peer that speaks ACP itself


def test_modes_of_an_acp_agent_are_shown_with_all_they_have() -> None:
    mode = acp.SessionMode(id="plan", name="Plan", description="asks first")
    modes = acp.SessionModeState(current_mode_id="code", available_modes=[mode])
    state = Choices(native(modes=modes), View(mode="plan")).mode_state(None)
    assert state is not None
    assert state.available_modes == [mode]
    assert state.current_mode_id == "plan"


def test_options_of_an_acp_agent_are_shown_as_they_are() -> None:
    option = select("model")
    shown = Choices(native(config_options=[option]), VIEW).config_options(None, {}, PLAIN)
    assert shown == [option]
    assert shown[0] is option


def test_models_that_stand_apart_become_an_option() -> None:
    (option,) = Choices(native(models=MODELS)).config_options(None, {}, PLAIN)
    assert option == acp.SessionConfigSelect(
        id="model",
        name="Model",
        category="model",
        current_value="big",
        options=[
            acp.SessionConfigSelectOption(value="big", name="Big"),
            acp.SessionConfigSelectOption(value="small", name="Small", description="quick"),
        ],
    )


def test_models_are_not_offered_twice() -> None:
    conversation = native(models=MODELS, config_options=[select("model")])
    options = Choices(conversation).config_options(None, {}, PLAIN)
    assert options == [select("model")]


def test_the_option_that_was_made_up_for_models_is_told_from_a_real_one() -> None:
    made_up = native(models=MODELS, config_options=[select(None)])
    assert stands_for_models(made_up, "model")
    assert not stands_for_models(made_up, "llm")
    assert not stands_for_models(native(models=MODELS, config_options=[select("model")]), "model")
    assert not stands_for_models(native(config_options=[]), "model")
    translated: Any = SimpleNamespace()
    assert not stands_for_models(translated, "model")
