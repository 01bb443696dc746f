"""A client written with the official TypeScript SDK drives our agent.

Every stable method and every kind of update, act by act (the acts are in ts/client.mjs); everything
that our agent sends is held against the official schema.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dragoman.dialects.acp import v1 as acp
from tests.interop import wire
from tests.interop.script import SCRIPT
from tests.peers import programs, schema

CHECKOUT = Path(__file__).resolve().parents[2]
CLIENT = Path(__file__).with_name("ts") / "client.mjs"

PLAY_TIMEOUT = 50.0
"""Seconds for all acts: they take about one, and a test has sixty."""

NOT_SENT = {"$/cancel_request"}
"""Our agent sends it when it gives up on a request, which no act makes it do."""


def test_a_client_of_the_sdk_and_our_agent_understand_each_other(
    tmp_path: Path, workspace: Path, subtests: pytest.Subtests
) -> None:
    trace = tmp_path / "trace.jsonl"
    play = subprocess.run(
        [programs.node_program(), str(CLIENT), str(programs.sdk_module()), str(SCRIPT)]
        + [str(workspace), sys.executable, "-m", "tests.interop.our_agent"],
        cwd=CHECKOUT,
        env={
            **programs.peer_environment(tmp_path),
            "PYTHONPATH": str(CHECKOUT / "src"),
            "DRAGOMAN_TRACE": str(trace),
        },
        capture_output=True,
        text=True,
        timeout=PLAY_TIMEOUT,
        check=False,
    )
    assert play.returncode == 0, play.stderr
    for act, verdict in json.loads(play.stdout).items():
        with subtests.test(act=act):
            assert verdict == "ok", verdict
    assert play.stderr == ""

    messages = wire.said(trace)
    wire.judge_all(messages, schema.judge)
    assert (
        wire.called(messages)
        == {m.name for m in acp.METHODS if m.direction != "client_to_agent"} - NOT_SENT
    )
    assert wire.answered(messages) == {
        m.name for m in acp.METHODS if m.kind == "request" and m.direction == "client_to_agent"
    }
    assert wire.updates(messages) == schema.update_kinds()
