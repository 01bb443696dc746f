"""An agent that is alive but does not answer is detected, ended and replaced."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dragoman.broker.server.liveness import Liveness
from dragoman.client.budgets import Budgets
from dragoman.errors import RemoteError
from tests.aio import aio
from tests.integration.broker_stage import Stage, stage
from tests.integration.cli_shell import Cli, warm_cli
from tests.integration.pty_terminal import CTRL_C

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="a stopped process is seen in /proc"
)


ANSWER = 4.0
"""Seconds for an agent to answer, in tests where it answers only sometimes."""


@pytest.fixture
def warm() -> Iterator[Cli]:
    with warm_cli() as cli:
        yield cli


def quick(broker: Stage, **times: float) -> None:
    """Let a broker detect a hung agent sooner than real agents allow."""
    chosen = {"probe_timeout": 0.3, "stopped_timeout": 0.1, "first_look": 0.1} | times
    broker.broker.liveness = Liveness(
        broker.broker.tasks,
        is_working=broker.broker.turns.work_at,
        look_interval=0.02,
        **chosen,
    )


async def answers(scene: Stage, caller: Any, session: str, text: str) -> str:
    ended = await caller.prompting(session, f"say {text}")
    await caller.heard(text)
    return str(ended["stopReason"])


@aio
async def test_a_stopped_agent_is_replaced_and_the_call_that_found_it_out_succeeds(
    tmp_path: Path,
) -> None:
    async with (
        stage(tmp_path, "--load", "--state", str(tmp_path)) as scene,
        scene.caller() as caller,
    ):
        quick(scene)
        first = await caller.new(tmp_path)
        await answers(scene, caller, first, "before")
        os.kill(scene.host.peers[0], signal.SIGSTOP)
        second = await caller.new(tmp_path)
        assert await answers(scene, caller, second, "after") == "end_turn"
        # The session of the ended process is restored as usual.
        assert await answers(scene, caller, first, "again") == "end_turn"
        assert len(scene.host.peers) == 2


@aio
async def test_a_prompt_to_a_stopped_agent_ends_long_before_its_budgets(tmp_path: Path) -> None:
    async with stage(tmp_path) as scene, scene.caller() as caller:
        quick(scene)
        session = await caller.new(tmp_path)
        os.kill(scene.host.peers[0], signal.SIGSTOP)
        with pytest.raises(RemoteError, match="its process is stopped by a signal"):
            await caller.prompting(session, "say hello")
        other = await caller.new(tmp_path)
        assert await answers(scene, caller, other, "after") == "end_turn"


@aio
async def test_an_agent_with_a_blocked_loop_is_replaced_and_the_error_says_so(
    tmp_path: Path,
) -> None:
    budgets = Budgets(session=ANSWER, cancel_grace=0.3, replay_quiet=0.1)
    async with stage(tmp_path, budgets=budgets) as scene, scene.caller() as caller:
        quick(scene)
        session = await caller.new(tmp_path)
        caller.connection.post("_test/block", {})
        with pytest.raises(Exception, match="no answer to session/new, and it does not answer a"):
            await caller.new(tmp_path)
        other = await caller.new(tmp_path)
        assert await answers(scene, caller, other, "after") == "end_turn"
        assert session != other
        assert len(scene.host.peers) == 2


@aio
async def test_an_agent_that_does_one_thing_at_a_time_is_not_ended_while_it_works(
    tmp_path: Path,
) -> None:
    budgets = Budgets(session=ANSWER, cancel_grace=0.3, replay_quiet=0.1)
    async with stage(tmp_path, budgets=budgets) as scene, scene.caller() as caller:
        quick(scene)
        session = await caller.new(tmp_path)
        prompt = caller.connection.tasks.start(caller.prompting(session, "hang"), "prompt")
        await caller.heard("hanging")
        caller.connection.post("_test/block", {})
        with pytest.raises(Exception, match=f"no answer to session/new within {ANSWER:g} s"):
            await caller.new(tmp_path)
        assert (len(scene.host.peers), prompt.done()) == (1, False)
        # Once its turn is cancelled, it must end the turn, whatever else it does.
        caller.cancel(session)
        await asyncio.wait([prompt])
        other = await caller.new(tmp_path)
        assert await answers(scene, caller, other, "after") == "end_turn"
        assert len(scene.host.peers) == 2


@aio
async def test_an_agent_that_ignores_a_cancel_and_answers_a_probe_is_kept(tmp_path: Path) -> None:
    async with stage(tmp_path) as scene, scene.caller() as caller:
        # It answers, but perhaps not at once on a busy machine.
        quick(scene, probe_timeout=30.0)
        session = await caller.new(tmp_path)
        prompt = caller.connection.tasks.start(caller.prompting(session, "stubborn"), "prompt")
        await caller.heard("stubborn")
        caller.cancel(session)
        assert (await prompt)["stopReason"] == "cancelled"
        other = await caller.new(tmp_path)
        assert await answers(scene, caller, other, "after") == "end_turn"
        assert len(scene.host.peers) == 1


def test_a_turn_that_is_cancelled_at_a_stopped_agent_is_shown_as_cancelled_only(warm: Cli) -> None:
    with warm.terminal("run", "wait", "-s", "talk", "--", *warm.agent) as terminal:
        terminal.expect("waiting")
        (agent,) = warm.agents_left()
        os.kill(int(agent), signal.SIGSTOP)
        terminal.type(CTRL_C)
        assert terminal.wait() == 130
    assert "[ended] cancelled" in terminal.shown
    assert "cancelled by you" in terminal.shown
    assert "crashed" not in terminal.shown
    job = json.loads(warm("jobs", "list", "--format", "json").out)
    assert (job["outcome"], job["failure"]) == ("cancelled", None)


def test_after_a_turn_that_timed_out_at_a_stopped_agent_the_next_command_works(warm: Cli) -> None:
    words = ("--approve-reads", "--format", "json", "--", *warm.agent)
    with warm.terminal(
        "run", "wait", "--timeout", "15", "-s", "one", *words[:1], *words[3:]
    ) as terminal:
        terminal.expect("waiting")
        (broker,) = map(json.loads, warm("broker", "list", "--format", "json").out.splitlines())
        pid = broker["status"]["peerPid"]
        os.kill(pid, signal.SIGSTOP)
        terminal.expect("[ended] timed_out")
        assert terminal.wait() == 3
    done = warm.child("run", "hello", "-s", "two", *words)
    assert done.code == 0, done
    (after,) = map(json.loads, warm("broker", "list", "--format", "json").out.splitlines())
    assert (after["pid"], after["status"]["starts"]) == (broker["pid"], 2)
    assert after["status"]["peerPid"] != pid


def test_an_agent_that_is_stopped_behind_its_launcher_is_replaced_as_soon(warm: Cli) -> None:
    launcher = ("/bin/sh", "-c", '"$@"; true', "sh")
    words = ("--approve-reads", "--format", "json", "--", *launcher, *warm.agent)
    assert warm.child("run", "hello", "-s", "one", *words).code == 0
    (broker,) = map(json.loads, warm("broker", "list", "--format", "json").out.splitlines())
    pid = broker["status"]["peerPid"]
    (agent,) = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    os.kill(agent, signal.SIGSTOP)
    done = warm.child("run", "hello", "-s", "two", *words)
    assert done.code == 0, done
    (after,) = map(json.loads, warm("broker", "list", "--format", "json").out.splitlines())
    assert (after["pid"], after["status"]["starts"]) == (broker["pid"], 2)
    assert after["status"]["peerPid"] != pid and str(agent) not in warm.agents_left()
