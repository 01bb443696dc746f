"""System prompt and allowed tools, from the command line to the model.

The agents are the real programs; only the model behind them is the fake one, which shows what it
was sent.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dragoman.testing.fake_model import FakeModel
from tests.aio import aio
from tests.peers import codex
from tests.peers.agents import COPILOT, QWEN
from tests.peers.commands import Ended, dragoman, living_in
from tests.peers.programs import peer_environment

AGENTS = {agent.name: agent for agent in (QWEN, COPILOT)}

ADDED = "Answer in rhymes, whatever the question is."


class Stage:
    """A user who has set an agent up, and the model behind it."""

    def __init__(self, model: FakeModel, environment: dict[str, str], workspace: Path) -> None:
        self.model = model
        self._environment = environment
        self._workspace = workspace

    async def run(self, *words: str) -> Ended:
        return await dragoman(*words, cwd=self._workspace, environment=self._environment)


@asynccontextmanager
async def ready(
    name: str, home: Path, workspace: Path, *, warm: bool = False
) -> AsyncIterator[Stage]:
    # The folders of pytest have paths that are too long for a socket.
    async with FakeModel() as model:
        with tempfile.TemporaryDirectory(prefix="dgm") as runtime:
            environment = peer_environment(home)
            if name == "codex":
                codex.configure(home, model)
                settings = home / ".config" / "dragoman"
                settings.mkdir(parents=True)
                (settings / "config.toml").write_text('[peer.codex]\nenv = ["FAKE_KEY"]\n')
                environment["FAKE_KEY"] = "k"
            else:
                AGENTS[name].configure(home)
                environment |= AGENTS[name].provider(model.url)
            environment |= {"DRAGOMAN_RUNTIME_DIR": runtime, "DRAGOMAN_WARM": str(int(warm))}
            stage = Stage(model, environment, workspace)
            try:
                yield stage
            finally:
                await stage.run("broker", "stop", "--all")
    assert living_in(home) == []


@pytest.mark.parametrize("warm", [True, False], ids=["warm", "cold"])
@pytest.mark.parametrize("name", ["codex", "qwen"])
@aio
async def test_the_system_prompt_reaches_the_model(
    name: str, warm: bool, home: Path, workspace: Path
) -> None:
    file = workspace / "rules.md"
    file.write_text(ADDED)
    async with ready(name, home, workspace, warm=warm) as stage:
        plain = await stage.run("run", name, "hi")
        assert plain.code == 0, plain.err
        assert ADDED not in json.dumps([each.body for each in stage.model.requests])
        told = await stage.run("run", name, "hi", "--system-prompt", f"@{file}")
        assert told.code == 0, told.err
        assert ADDED in json.dumps(stage.model.requests[-1].body)
        for prompt in ("one", "two"):
            words = ("-s", "rhymes", "--system-prompt", ADDED)
            named = await stage.run("run", name, prompt, *words)
            assert named.code == 0, named.err
            assert ADDED in json.dumps(stage.model.requests[-1].body)


@pytest.mark.parametrize(
    ("name", "tool"), [("qwen", "run_shell_command"), ("copilot", "shell(touch:*)")]
)
@aio
async def test_a_tool_that_is_allowed_is_used_without_a_question(
    name: str, tool: str, home: Path, workspace: Path
) -> None:
    path = workspace / "made.txt"
    async with ready(name, home, workspace) as stage:
        refused = await stage.run("run", name, f"SHELL:touch {path}")
        assert refused.code == 5 and not path.exists(), refused.err
        done = await stage.run("run", name, f"SHELL:touch {path}", "--allow-tool", tool)
        assert done.code == 0, done.err
        assert path.exists() and "policy violated" not in done.err
