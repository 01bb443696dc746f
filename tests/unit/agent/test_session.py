"""A session as its agent's author sees it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.agent.session import Session
from dragoman.agent.settings import SessionSettings
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import UsageError
from tests.unit.agent.test_settings import DEPTH, LOUD, MODES

CLIENT = acp.InitializeRequest(protocol_version=1)


def test_a_session_has_its_folders_and_a_place_for_anything() -> None:
    session = Session(
        "s1",
        Path("/a"),
        additional_directories=[Path("/b"), Path("/c")],
        meta={"k": 1},
        client=CLIENT,
    )
    assert session.roots == (Path("/a"), Path("/b"), Path("/c"))
    assert session.meta == {"k": 1}
    session.state.anything = [1]
    assert session.state.anything == [1]
    with pytest.raises(AttributeError, match="'Session' object has no attribute 'sate'"):
        session.sate  # type: ignore[attr-defined]  # noqa: B018
    assert session.turn is None
    with pytest.raises(AttributeError):
        session.typo = 1  # type: ignore[attr-defined]


def test_a_session_of_an_agent_without_choices_has_none() -> None:
    session = Session("s1", Path("/a"), client=CLIENT)
    assert (session.mode, session.options, session.meta) == (None, {}, {})
    session.meta["k"] = 2
    assert session.meta == {"k": 2}
    assert session.mode_state() is None
    assert session.config_options() == []


def test_choices_belong_to_one_session() -> None:
    settings = SessionSettings(MODES, [DEPTH, LOUD])
    one = Session("s1", Path("/a"), client=CLIENT, settings=settings)
    two = Session("s2", Path("/a"), client=CLIENT, settings=settings)
    one.switch_mode("plan")
    one.set_option("depth", "deep")
    assert (one.mode, one.options) == ("plan", {"depth": "deep", "loud": False})
    assert (two.mode, two.options) == ("code", {"depth": "flat", "loud": False})
    state = one.mode_state()
    assert state is not None and state.current_mode_id == "plan"
    assert [option.current_value for option in one.config_options()] == [  # type: ignore[union-attr]
        "plan",
        "deep",
    ]


def test_a_choice_that_is_not_offered_changes_nothing() -> None:
    session = Session("s1", Path("/a"), client=CLIENT, settings=SessionSettings(MODES, [DEPTH]))
    with pytest.raises(UsageError, match="yolo"):
        session.switch_mode("yolo")
    with pytest.raises(UsageError, match="bottomless"):
        session.set_option("depth", "bottomless")
    with pytest.raises(UsageError, match="colour"):
        session.set_option("colour", "red")
    assert (session.mode, session.options) == ("code", {"depth": "flat"})
