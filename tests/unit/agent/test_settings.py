"""Modes and options as a client sees them."""

from __future__ import annotations

import pytest

from dragoman.agent.settings import MODE_OPTION, SessionSettings
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import UsageError

MODES = [
    acp.SessionMode(id="code", name="Code"),
    acp.SessionMode(id="plan", name="Plan", description="Think first"),
]
DEPTH = acp.SessionConfigSelect(
    id="depth",
    name="Depth",
    current_value="flat",
    options=[
        acp.SessionConfigSelectOption(value="flat", name="Flat"),
        acp.SessionConfigSelectOption(value="deep", name="Deep"),
    ],
)
MODEL = acp.SessionConfigSelect(
    id="model",
    name="Model",
    category="model",
    current_value="small",
    options=[
        acp.SessionConfigSelectGroup(
            group="g",
            name="Group",
            options=[
                acp.SessionConfigSelectOption(value="small", name="Small"),
                acp.SessionConfigSelectOption(value="large", name="Large"),
            ],
        )
    ],
)
LOUD = acp.SessionConfigBoolean(id="loud", name="Loud", current_value=False)

PLAIN = acp.ClientCapabilities()
MODERN = acp.ClientCapabilities(
    session=acp.ClientSessionCapabilities(
        config_options=acp.SessionConfigOptionsCapabilities(boolean=acp.Supported())
    )
)


def test_an_agent_without_choices_offers_none() -> None:
    settings = SessionSettings([], [])
    assert settings.first_mode is None
    assert settings.first_values == {}
    assert settings.mode_state(None) is None
    assert settings.config_options(None, {}, MODERN) == []


def test_the_mode_is_offered_as_mode_and_as_option_with_the_same_value() -> None:
    settings = SessionSettings(MODES, [DEPTH])
    assert settings.first_mode == "code"
    state = settings.mode_state("plan")
    assert state is not None
    assert (state.current_mode_id, list(state.available_modes)) == ("plan", MODES)
    mode, depth = settings.config_options("plan", {"depth": "deep"}, PLAIN)
    assert isinstance(mode, acp.SessionConfigSelect)
    assert (mode.id, mode.category, mode.current_value) == (MODE_OPTION, "mode", "plan")
    assert [(each.value, each.name) for each in mode.options] == [  # type: ignore[union-attr]
        ("code", "Code"),
        ("plan", "Plan"),
    ]
    assert isinstance(depth, acp.SessionConfigSelect)
    assert depth.current_value == "deep"


def test_booleans_are_shown_only_to_clients_that_take_them() -> None:
    settings = SessionSettings([], [DEPTH, LOUD])
    values: dict[str, str | bool] = {"depth": "flat", "loud": True}
    assert settings.first_values == {"depth": "flat", "loud": False}
    empty = acp.ClientCapabilities(session=acp.ClientSessionCapabilities())
    for client in (PLAIN, empty):
        assert [type(o) for o in settings.config_options(None, values, client)] == [
            acp.SessionConfigSelect
        ]
    loud = settings.config_options(None, values, MODERN)[1]
    assert isinstance(loud, acp.SessionConfigBoolean)
    assert loud.current_value is True


@pytest.mark.parametrize(
    ("option", "value", "allowed"),
    [
        ("depth", "deep", True),
        ("depth", "bottomless", False),
        ("depth", True, False),
        ("model", "large", True),
        ("model", "g", False),
        ("loud", True, True),
        ("loud", False, True),
        ("loud", "true", False),
        ("loud", 1, False),
        ("unknown", "x", False),
        (MODE_OPTION, "code", False),
    ],
)
def test_only_offered_values_are_allowed(option: str, value: object, allowed: bool) -> None:
    assert SessionSettings(MODES, [DEPTH, MODEL, LOUD]).allows(option, value) is allowed


def test_modes_are_known_by_their_id() -> None:
    settings = SessionSettings(MODES, [])
    assert settings.has_mode("plan")
    assert not settings.has_mode("Plan")
    assert not settings.has_mode(None)


def test_an_error_says_whether_the_option_or_its_value_does_not_exist() -> None:
    settings = SessionSettings(MODES, [DEPTH, LOUD])
    assert settings.no_mode("plam") == (
        "the agent has no mode 'plam'; did you mean plan? It has code, plan"
    )
    assert settings.not_allowed("size", "big") == (
        "the agent has no option 'size'; it has depth, loud"
    )
    assert settings.not_allowed("depth", "x") == (
        "the option 'depth' has no value 'x'; it has flat, deep"
    )
    assert settings.not_allowed("loud", "yes") == "the option 'loud' takes true or false, not 'yes'"
    assert SessionSettings((), ()).no_mode("plan") == "the agent has no mode 'plan'; it has none"


def test_an_id_stands_for_one_option() -> None:
    with pytest.raises(UsageError, match="depth"):
        SessionSettings([], [DEPTH, DEPTH])
    mode = acp.SessionConfigBoolean(id=MODE_OPTION, name="Mode", current_value=True)
    SessionSettings([], [mode])
    with pytest.raises(UsageError, match="modes are also offered as an option"):
        SessionSettings(MODES, [mode])
