"""`dragoman run NAME "…"` with the four real agents: from the command line to the model and back.

Nothing stands between: the command is a process, the agent is its child, and only the model at the
very end is the fake one. Every command must leave no process behind.
"""

from __future__ import annotations

import asyncio
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dragoman.testing.fake_model import FakeModel
from tests.aio import aio
from tests.peers import codex
from tests.peers.agents import COPILOT, GEMINI, QWEN, Agent
from tests.peers.commands import COMMAND, RUN_TIMEOUT, Ended, dragoman, living_in, surroundings
from tests.peers.programs import peer_environment

ACP_AGENTS = {agent.name: agent for agent in (GEMINI, QWEN, COPILOT)}

CODEX_SETTINGS = '[peer.codex]\nenv = ["FAKE_KEY"]\n'
"""The name of a key is in Codex's own configuration, so its user lets it through."""


@asynccontextmanager
async def ready(name: str, home: Path) -> AsyncIterator[dict[str, str]]:
    """The environment of a user who has set the agent up."""
    async with FakeModel() as model:
        if name == "codex":
            yield _codex(home, model)
            return
        agent: Agent = ACP_AGENTS[name]
        agent.configure(home)
        yield {**peer_environment(home), **agent.provider(model.url)}


def _codex(home: Path, model: FakeModel) -> dict[str, str]:
    """The environment of a user who has set Codex up."""
    codex.configure(home, model)
    settings = home / ".config" / "dragoman"
    settings.mkdir(parents=True)
    (settings / "config.toml").write_text(CODEX_SETTINGS)
    return {**peer_environment(home), "FAKE_KEY": "k"}


@pytest.mark.parametrize("name", ["codex", *ACP_AGENTS])
@aio
async def test_a_named_agent_answers(name: str, home: Path, workspace: Path) -> None:
    async with ready(name, home) as environment:
        ended = await dragoman("run", name, "CHUNKS:3", cwd=workspace, environment=environment)
    assert ended.code == 0, ended.err
    assert "chunk-1 chunk-2 chunk-3" in ended.out
    assert "[done] ok" in ended.err
    assert living_in(home) == []


@pytest.mark.parametrize("warm", [True, False])
@aio
async def test_codex_uses_the_model_and_the_mode_that_were_asked_for(
    warm: bool, home: Path, workspace: Path
) -> None:
    async with FakeModel() as model:
        environment = _codex(home, model)
        # The folders of pytest have paths that are too long for a socket.
        with tempfile.TemporaryDirectory(prefix="dgm") as runtime:
            environment |= {"DRAGOMAN_RUNTIME_DIR": runtime, "DRAGOMAN_WARM": str(int(warm))}

            async def run(*words: str) -> Ended:
                return await dragoman(*words, cwd=workspace, environment=environment)

            mode = ("--mode", "workspace-write", "--approve-all")
            try:
                ends = [
                    await run("run", "codex", "hi", "-m", name, *mode)
                    for name in ("gpt-6-sol", "one-of-the-providers-own")
                ]
            finally:
                await run("broker", "stop", "--all")
        assert [ended.code for ended in ends] == [0, 0], [ended.err for ended in ends]
        used = [request.body["model"] for request in model.requests]
        assert used == ["gpt-6-sol", "one-of-the-providers-own"]
    assert living_in(home) == []


@aio
async def test_a_model_that_copilot_does_not_confirm_is_not_prompted(
    home: Path, workspace: Path
) -> None:
    async with ready("copilot", home) as environment:
        ended = await dragoman(
            "run", "copilot", "hi", "-m", "nope", cwd=workspace, environment=environment
        )
    assert ended.code == 2, ended.out + ended.err
    assert "You said" not in ended.out
    assert living_in(home) == []


@pytest.mark.parametrize("name", ACP_AGENTS)
@aio
async def test_what_is_allowed_is_done_and_told_as_json(
    name: str, home: Path, workspace: Path
) -> None:
    path = workspace / "made.txt"
    async with ready(name, home) as environment:
        ended = await dragoman(
            *("run", name, f"WRITE:{path}:some content", "--approve-all", "--json-strict"),
            cwd=workspace,
            environment=environment,
        )
    assert ended.code == 0, ended.err
    assert path.read_text().strip() == "some content"
    last = ended.lines[-1]
    assert (last["type"], last["outcome"], last["exit_code"]) == ("Result", "ok", 0)
    assert living_in(home) == []


@pytest.mark.parametrize(("flag", "made"), [("--approve-all", True), ("--approve-reads", False)])
@aio
async def test_codex_writes_only_where_everything_is_approved(
    flag: str, made: bool, home: Path, workspace: Path
) -> None:
    async with ready("codex", home) as environment:
        ended = await dragoman(
            *("run", "codex", "SHELL:touch made.txt", flag), cwd=workspace, environment=environment
        )
    assert (workspace / "made.txt").exists() is made, ended.out + ended.err
    assert living_in(home) == []


@pytest.mark.parametrize("name", ["gemini", "qwen", "copilot"])
@aio
async def test_without_a_terminal_only_reading_is_allowed_and_each_denial_is_reported(
    name: str, home: Path, workspace: Path
) -> None:
    async with ready(name, home) as environment:
        ended = await dragoman(
            "run", name, "SHELL:touch made.txt", cwd=workspace, environment=environment
        )
    assert not (workspace / "made.txt").exists()
    # Gemini's model hears of the refusal and says something about it; the others stop.
    assert ended.code == 5, ended.err
    assert "[permission] denied" in ended.err
    assert "1 permission denied" in ended.err
    assert living_in(home) == []


@aio
async def test_an_interrupt_cancels_the_turn_and_leaves_no_process(
    home: Path, workspace: Path
) -> None:
    # Qwen is three processes, of which the first ends without a thought for the others.
    async with ready("qwen", home) as environment:
        command = await asyncio.create_subprocess_exec(
            *(*COMMAND, "run", "qwen", "SLOW"),
            cwd=workspace,
            env=surroundings(environment),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert command.stdout is not None
        said = b""
        async with asyncio.timeout(RUN_TIMEOUT):
            while b"slow-2" not in said:
                piece = await command.stdout.read(1000)
                assert piece, said
                said += piece
            command.send_signal(signal.SIGINT)
            out, err = await command.communicate()
    assert command.returncode == 130, err
    assert b"cancelled" in err
    assert living_in(home) == []
