"""Our client drives an agent that was written with the official Python SDK, in a child process.

Covers every stable method that the SDK has, act by act, and checks everything that we send with the
SDK's own models.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dragoman.client.acp import open_agent
from dragoman.dialects.acp import v1 as acp
from tests.aio import aio
from tests.integration.conftest import nothing_is_left_behind
from tests.interop import models, wire
from tests.interop.acts import ACTS, OPENING, Stage, play_all

__all__ = ["nothing_is_left_behind"]  # It applies to every test of this module.

CHECKOUT = Path(__file__).resolve().parents[2]
SDK_AGENT = [sys.executable, "-m", "tests.interop.sdk_agent"]

LACKING = {
    "logout": "its agents have no handler for it, though it has the models",
    "session/delete": "its agents have no handler for it, though it has the models",
    "$/cancel_request": "it ignores the notification",
}
"""The stable methods that an agent of this SDK cannot answer."""

PLAYED = {name: act for name, act in ACTS.items() if not act.methods & LACKING.keys()}


@aio
async def test_our_client_and_an_agent_of_the_sdk_understand_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    trace = tmp_path / "trace.jsonl"
    monkeypatch.setenv("DRAGOMAN_TRACE", str(trace))
    stage = Stage(tmp_path / "workspace")
    stage.workspace.mkdir()
    async with open_agent(SDK_AGENT, cwd=CHECKOUT, options=stage.options()) as client:
        await play_all(PLAYED, client, stage, trace, subtests)
    messages = wire.said(trace)
    wire.judge_all(messages, models.judge)
    assert wire.answered(messages) == {
        method.name for method in acp.METHODS if method.direction == "agent_to_client"
    } - {"session/update", "elicitation/complete"}


def test_the_acts_show_every_stable_method_that_the_sdk_has() -> None:
    shown = OPENING.union(*(act.methods for act in PLAYED.values()))
    assert shown == {method.name for method in acp.METHODS} - LACKING.keys()
