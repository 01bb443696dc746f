"""Agents that write or run commands without asking in their default configuration: under a policy
they are made to ask, with and without a broker, whatever the project's own settings say."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dragoman.testing.fake_model import FakeModel
from scripts.peers import install
from tests.aio import aio
from tests.peers.commands import dragoman, living_in
from tests.peers.programs import peer_environment

ALLOWING = {"permission": {"edit": "allow", "bash": "allow"}}


@asynccontextmanager
async def ready(home: Path, name: str = "opencode") -> AsyncIterator[dict[str, str]]:
    """The environment of a user who has set opencode, kilo or kimi up."""
    pin = install.pins()[name]
    if not pin.folder.is_dir():
        pytest.fail(f"{name} is not installed: run these tests with make test-peers")
    async with FakeModel() as model:
        options = {"baseURL": f"{model.url}/v1", "apiKey": "fake"}
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "name": "fake",
            "options": options,
            "models": {"fake-model": {"name": "fake-model"}},
        }
        folder = home / ".config" / name
        folder.mkdir(parents=True)
        settings = {"provider": {"fake": provider}, "model": "fake/fake-model"}
        (folder / f"{name}.json").write_text(json.dumps(settings))
        ours = home / ".config" / "dragoman"
        ours.mkdir(parents=True)
        # It would look for news in a network that is not there.
        prefix = f"{name.upper()}_DISABLE_"
        (ours / "config.toml").write_text(f'[peer.{name}]\nenv = ["{prefix}*"]\n')
        quiet = {f"{prefix}MODELS_FETCH": "1", f"{prefix}AUTOUPDATE": "1"}
        environment = {**peer_environment(home), **quiet, **_of_kimi(model)}
        programs = str(pin.folder / "node_modules" / ".bin")
        yield {**environment, "PATH": os.pathsep.join([programs, environment["PATH"]])}


def _of_kimi(model: FakeModel) -> dict[str, str]:
    """What leads kimi to the model; the others read files."""
    return {
        "KIMI_MODEL_NAME": "fake-model",
        "KIMI_MODEL_API_KEY": "fake",
        "KIMI_MODEL_BASE_URL": f"{model.url}/v1",
        "KIMI_MODEL_PROVIDER_TYPE": "openai",
    }


@pytest.mark.parametrize(
    ("name", "prompt"),
    [
        ("kilo", "SHELL:touch made.txt"),
        ("kimi", "SHELL:touch made.txt"),
        ("kimi", "WRITE:made.txt:hello"),
    ],
)
@pytest.mark.timeout(180)
@aio
async def test_a_policy_is_kept_by_agents_that_do_not_ask_by_themselves(
    name: str, prompt: str, home: Path, workspace: Path
) -> None:
    # Elsewhere kimi asks by itself.
    for line in ("init", "-c user.name=n -c user.email=e commit --allow-empty -m x"):
        done = await asyncio.to_thread(
            subprocess.run, ["git", *line.split()], cwd=workspace, capture_output=True
        )
        assert done.returncode == 0, done.stderr
    words = ("run", name, prompt, "--approve-reads", "--format", "json")
    async with ready(home, name) as environment:
        ended = await dragoman(*words, cwd=workspace, environment=environment)
    assert ended.code == 5, ended.err
    assert len(ended.lines[-1]["denials"]) == 1
    assert (ended.lines[-1]["unenforced"], ended.lines[-1]["violations"]) == (None, [])
    assert not (workspace / "made.txt").exists()
    assert living_in(home) == []


@pytest.mark.timeout(180)
@aio
async def test_a_refusal_keeps_it_from_writing_although_the_project_allows_everything(
    home: Path, workspace: Path
) -> None:
    project = {**ALLOWING, "agent": {"build": ALLOWING}}
    (workspace / "opencode.json").write_text(json.dumps(project))
    words = ("run", "opencode", "WRITE:made.txt:hello", "--deny-all", "--format", "json")
    async with ready(home) as environment:
        ended = await dragoman(*words, cwd=workspace, environment=environment)
    assert ended.code == 5, ended.err
    assert len(ended.lines[-1]["denials"]) == 1
    assert (ended.lines[-1]["unenforced"], ended.lines[-1]["violations"]) == (None, [])
    assert not (workspace / "made.txt").exists()
    assert living_in(home) == []


@pytest.mark.timeout(180)
@aio
async def test_a_refusal_keeps_a_subagent_of_the_project_from_working(
    home: Path, workspace: Path
) -> None:
    free = {**ALLOWING, "mode": "subagent", "description": "free", "prompt": "work"}
    (workspace / "opencode.json").write_text(json.dumps({**ALLOWING, "agent": {"free": free}}))
    task = {"description": "x", "prompt": "SHELL:touch made.txt", "subagent_type": "free"}
    words = ("run", "opencode", f"TOOL:task:{json.dumps(task)}", "--approve-reads")
    async with ready(home) as environment:
        ended = await dragoman(*words, cwd=workspace, environment=environment)
    assert ended.code == 5, ended.out + ended.err
    assert not (workspace / "made.txt").exists()


@pytest.mark.timeout(180)
@aio
async def test_a_broker_that_may_do_everything_is_not_used_under_a_policy(workspace: Path) -> None:
    # The folders of pytest have paths that are too long for a socket.
    with tempfile.TemporaryDirectory(prefix="dgm") as name:
        home = Path(os.path.realpath(name))  # noqa: ASYNC240
        async with ready(home) as environment:
            warm = {**environment, "DRAGOMAN_WARM": "1"}
            try:
                free = await dragoman(
                    *("run", "opencode", "WRITE:free.txt:hello", "--approve-all"),
                    cwd=workspace,
                    environment=warm,
                )
                ended = await dragoman(
                    *("run", "opencode", "SHELL:touch ran.txt", "--approve-reads"),
                    cwd=workspace,
                    environment=warm,
                )
            finally:
                await dragoman("broker", "stop", "--all", cwd=workspace, environment=warm)
        assert (free.code, ended.code) == (0, 5), free.err + ended.err
        assert (workspace / "free.txt").exists()
        assert not (workspace / "ran.txt").exists()
        assert living_in(home) == []
