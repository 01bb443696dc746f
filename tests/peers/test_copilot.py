"""Turns with the real Copilot CLI, whose model is the fake one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dragoman.events import model as happened
from dragoman.events.words import Outcome, ToolStatus
from tests.peers.agents import COPILOT, Stage, on_stage, staged
from tests.peers.turns import Turns

MODES = "https://agentclientprotocol.com/protocol/session-modes#"


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(COPILOT, tmp_path_factory.mktemp("copilot")) as stage:
        yield stage


class TestCopilot(Turns):
    agent = COPILOT
    calls_itself = "Copilot"
    capabilities = {
        "load": True,
        "resume": False,
        "list": True,
        "fork": False,
        "close": True,
        "delete": False,
        "logout": True,
        "image": True,
        "audio": False,
    }
    mode = MODES + "agent"
    modes = (MODES + "agent", MODES + "plan", MODES + "autopilot")
    usage_of_a_turn = (2, 3)
    writes_through_us = False
    after_refusal = (Outcome.DENIED, "Info: Operation cancelled by user")
    refused_status = ToolStatus.FAILED
    errors = {
        400: (Outcome.FAILED, "Error: 400 fake error 400"),
        401: (Outcome.AUTH_REQUIRED, "Error: Authentication failed with provider"),
    }


@on_stage
async def test_a_session_says_what_it_can_before_it_is_open(stage: Stage) -> None:
    told = [
        event
        for event in stage.seen
        if isinstance(event, happened.CommandsChanged | happened.SessionOpened)
    ]
    assert any(
        isinstance(early, happened.CommandsChanged)
        and isinstance(opened, happened.SessionOpened)
        and early.session == opened.session
        for early, opened in zip(told, told[1:], strict=False)
    )
