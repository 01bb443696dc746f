"""Turns with the real Qwen Code, whose model is the fake one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.client.permissions import deny_all
from dragoman.events import model as happened
from dragoman.events.words import Outcome, ToolStatus
from tests.peers.agents import QWEN, Stage, on_stage, staged
from tests.peers.turns import Turns


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(QWEN, tmp_path_factory.mktemp("qwen")) as stage:
        yield stage


class TestQwen(Turns):
    agent = QWEN
    calls_itself = "qwen-code"
    capabilities = {
        "load": True,
        "resume": True,
        "list": True,
        "fork": False,
        "close": False,
        "delete": False,
        "logout": False,
        "image": True,
        "audio": True,
    }
    mode = "default"
    modes = ("plan", "default", "auto-edit", "auto", "yolo")
    vendor_methods = {"craft/drainMidTurnQueue", "qwen/notify/session/mode-update"}
    usage_of_a_turn = (2, 3)
    shows_images = False
    writes_through_us = True
    after_refusal = (Outcome.DENIED, "")
    refused_status = ToolStatus.FAILED
    errors = {
        400: (Outcome.FAILED, "400 fake error 400"),
        401: (Outcome.AUTH_REQUIRED, "401 fake error 401"),
    }


@on_stage
async def test_what_it_writes_through_us_without_a_question_is_judged(
    stage: Stage, workspace: Path
) -> None:
    # The mode that it starts in asks nothing, which is why another one is set for this agent.
    async with stage.talk(workspace, deny_all, mode="auto") as talk:
        result = await talk.ask(f"WRITE:{workspace / 'made.txt'}:some content")
    assert [denial.kind for denial in result.denials] == ["edit"]
    assert not (workspace / "made.txt").exists()


@on_stage
async def test_a_session_is_taken_out_of_that_mode(stage: Stage, workspace: Path) -> None:
    since = len(stage.seen)
    async with stage.talk(workspace):
        pass
    modes = [
        event.mode
        for event in stage.seen[since:]
        if isinstance(event, happened.SettingsChanged) and isinstance(event.mode, str)
    ]
    assert modes == ["auto", "default"]
