"""Our client drives an agent that was written with the official TypeScript SDK.

Every stable method, act by act; everything that we send is held against the official schema.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.client.acp import open_agent
from dragoman.dialects.acp import v1 as acp
from tests.aio import aio
from tests.interop import wire
from tests.interop.acts import ACTS, OPENING, Stage, play_all
from tests.interop.script import SCRIPT
from tests.peers import programs, schema

AGENT = Path(__file__).with_name("ts") / "agent.mjs"


@aio
async def test_our_client_and_an_agent_of_the_sdk_understand_each_other(
    tmp_path: Path,
    workspace: Path,
    monkeypatch: pytest.MonkeyPatch,
    subtests: pytest.Subtests,
) -> None:
    trace = tmp_path / "trace.jsonl"
    monkeypatch.setenv("DRAGOMAN_TRACE", str(trace))
    stage = Stage(workspace)
    argv = [programs.node_program(), str(AGENT), str(programs.sdk_module()), str(SCRIPT)]
    async with open_agent(argv, options=stage.options()) as client:
        await play_all(ACTS, client, stage, trace, subtests)
    messages = wire.said(trace)
    wire.judge_all(messages, schema.judge)
    requests = {m.name: m.direction for m in acp.METHODS if m.kind == "request"}
    assert wire.called(messages) == {
        m.name for m in acp.METHODS if m.direction in ("client_to_agent", "both")
    }
    assert wire.answered(messages) == {
        name for name, direction in requests.items() if direction == "agent_to_client"
    }


def test_the_acts_show_every_stable_method() -> None:
    shown = OPENING.union(*(act.methods | act.if_offered for act in ACTS.values()))
    assert {method.name for method in acp.METHODS} <= shown
