"""Choices that live at the peer."""

from __future__ import annotations

from typing import Any

from dragoman.client.acp.session import Session
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1 import translate
from dragoman.events.parts import Choice, SessionOption
from dragoman.events.view import View
from dragoman.gateway.choices import MODEL_OPTION, Choices, stands_for_models, wanted_model

PLAIN = acp.ClientCapabilities()
BOOLEAN = acp.decode(b'{"session":{"configOptions":{"boolean":{}}}}', acp.ClientCapabilities)


def native(**fields: Any) -> Session:
    """A session of an agent that speaks ACP itself, with these settings."""
    session = Session.__new__(Session)
    for name, value in {"modes": None, "models": None, "config_options": None, **fields}.items():
        setattr(session, name, value)
    return session


def test_the_peer_has_the_last_word_on_every_value() -> None:
    choices = Choices()
    assert choices.has_mode("anything")
    assert choices.allows("anything", "at all")
    assert choices.mode_state("x") is None
    assert choices.config_options(None, {}, PLAIN) == []
    assert choices.first_mode is None


def test_modes_and_options_in_common_words_become_those_of_acp() -> None:
    view = View(
        mode="b",
        modes=(SessionOption("a", "A", "a"), SessionOption("b", "B", "b")),
        options=(
            SessionOption("o", "O", "x", (Choice("x", "X"), Choice("y", "Y", "why")), "effort"),
            SessionOption("f", "F", True),
        ),
    )
    choices = Choices(None, view)
    state = choices.mode_state(None)
    assert state is not None
    assert (state.current_mode_id, [mode.id for mode in state.available_modes]) == ("b", ["a", "b"])
    assert choices.first_mode == "b"
    select, boolean = choices.config_options(None, {}, BOOLEAN)
    assert isinstance(select, acp.SessionConfigSelect)
    assert (select.current_value, len(select.options), select.category) == ("x", 2, "effort")
    assert isinstance(boolean, acp.SessionConfigBoolean)
    assert len(choices.config_options(None, {}, PLAIN)) == 1
    view.mode = "a"
    state = choices.mode_state(None)
    assert state is not None
    assert state.current_mode_id == "a"


def test_an_acp_sessions_own_options_are_passed_on_as_they_are() -> None:
    option = acp.SessionConfigSelect(id="o", name="O", current_value="x", options=[])
    conversation = native(config_options=[option])
    assert Choices(conversation).config_options(None, {}, PLAIN) == [option]


def test_models_that_are_apart_from_options_are_offered_as_one() -> None:
    models = acp.decode(
        b'{"currentModelId":"m","availableModels":[{"modelId":"m","name":"M"}]}',
        acp.SessionModelState,
    )
    conversation = native(models=models)
    (option,) = Choices(conversation).config_options(None, {}, PLAIN)
    assert isinstance(option, acp.SessionConfigSelect)
    assert (option.id, option.category, option.current_value) == (MODEL_OPTION, "model", "m")
    assert stands_for_models(conversation, MODEL_OPTION)
    assert not stands_for_models(conversation, "other")
    assert not stands_for_models(native(), MODEL_OPTION)
    own = acp.SessionConfigSelect(id="x", name="X", category="model", current_value="m", options=[])
    both = native(models=models, config_options=[own])
    assert Choices(both).config_options(None, {}, PLAIN) == [own]
    assert not stands_for_models(both, MODEL_OPTION)


def test_the_model_in_use_is_shown_if_no_other_can_be_chosen() -> None:
    (option,) = Choices(None, View(model="x")).config_options(None, {}, PLAIN)
    assert isinstance(option, acp.SessionConfigSelect)
    assert (option.id, option.category, option.current_value) == (MODEL_OPTION, "model", "x")
    offered = SessionOption("m", "Model", "x", (Choice("x", "X"),), "model")
    (option,) = Choices(None, View(model="x", options=(offered,))).config_options(None, {}, PLAIN)
    assert isinstance(option, acp.SessionConfigSelect) and option.id == "m"


def test_an_option_that_takes_any_value_says_so_at_the_other_end() -> None:
    for open_ended in (False, True):
        offered = SessionOption("m", "Model", "x", (Choice("x", "X"),), "model", open_ended)
        told = Choices(None, View(options=(offered,))).config_options(None, {}, PLAIN)
        assert translate.settings(None, told)["options"] == (offered,)


def test_a_client_may_ask_for_a_model_with_the_opening() -> None:
    assert wanted_model({"dragoman": {"model": "x"}}) == "x"
    others: tuple[dict[str, Any], ...] = ({}, {"dragoman": 1}, {"dragoman": {"model": 3}})
    for meta in others:
        assert wanted_model(meta) is None
