"""opencode, which writes and runs commands without asking in its default configuration: under a
policy it is made to ask, with and without a broker, whatever the project's own settings say."""

from __future__ import annotations

import json
import os
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
async def ready(home: Path) -> AsyncIterator[dict[str, str]]:
    """The environment of a user who has set opencode up."""
    pin = install.pins()["opencode"]
    if not pin.folder.is_dir():
        pytest.fail("opencode is not installed: run these tests with make test-peers")
    async with FakeModel() as model:
        options = {"baseURL": f"{model.url}/v1", "apiKey": "fake"}
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "name": "fake",
            "options": options,
            "models": {"fake-model": {"name": "fake-model"}},
        }
        folder = home / ".config" / "opencode"
        folder.mkdir(parents=True)
        settings = {"provider": {"fake": provider}, "model": "fake/fake-model"}
        (folder / "opencode.json").write_text(json.dumps(settings))
        ours = home / ".config" / "dragoman"
        ours.mkdir(parents=True)
        # It would look for news in a network that is not there.
        (ours / "config.toml").write_text('[peer.opencode]\nenv = ["OPENCODE_DISABLE_*"]\n')
        quiet = dict.fromkeys(("OPENCODE_DISABLE_MODELS_FETCH", "OPENCODE_DISABLE_AUTOUPDATE"), "1")
        environment = {**peer_environment(home), **quiet}
        programs = str(pin.folder / "node_modules" / ".bin")
        yield {**environment, "PATH": os.pathsep.join([programs, environment["PATH"]])}


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
