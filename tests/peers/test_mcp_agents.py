"""A real agent that is configured with our MCP server delegates to another real agent.

Nothing stands between: the agent's own program starts `dragoman serve mcp`, whose tools its model
calls, and the peer that is asked is a program of its own, too. Only the model behind both is the
fake one.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from dragoman.testing.fake_model import FakeModel
from scripts.peers import install
from tests.aio import aio
from tests.peers import mcp_server
from tests.peers.agents import GEMINI, QWEN
from tests.peers.codex import configure as configure_codex
from tests.peers.commands import dragoman, living_in, surroundings
from tests.peers.programs import peer_environment, peer_program

TURN_TIMEOUT = 100.0
"""Seconds for an agent's whole turn. Inside, dragoman and another agent start."""

SERVER = "dragoman"

SETTINGS = 'enabled_peers = ["qwen"]\n'


@dataclass(frozen=True)
class Host:
    """A user who has put our server into the settings of an agent."""

    home: Path
    workspace: Path
    environment: dict[str, str]
    model: FakeModel

    async def ask(self, prompt: str) -> subprocess.CompletedProcess[str]:
        """What Gemini says to a prompt, as a command of a shell."""
        return await self.run(*peer_program("gemini"), "-p", prompt)

    async def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command of a shell, to its end."""
        return await asyncio.to_thread(
            subprocess.run,
            words,
            cwd=self.workspace,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TURN_TIMEOUT,
            check=False,
        )


def call(tool: str, **arguments: str) -> str:
    """The words that let the fake model call a tool of ours, by the name that Gemini gives it."""
    return f"TOOL:mcp_{SERVER}_{tool}:{json.dumps(arguments)}"


@asynccontextmanager
async def host(home: Path, workspace: Path) -> AsyncIterator[Host]:
    async with FakeModel() as model:
        environment = {
            **peer_environment(home),
            **GEMINI.provider(model.url),
            **QWEN.provider(model.url),
        }
        QWEN.configure(home)
        configure(home, workspace, environment)
        yield Host(home, workspace, environment, model)


def configure(home: Path, workspace: Path, environment: dict[str, str]) -> None:
    config = home / ".config" / "dragoman"
    config.mkdir(parents=True)
    (config / "config.toml").write_text(SETTINGS)
    server = {
        "command": sys.executable,
        "args": ["-m", "dragoman", "serve", "mcp"],
        # Gemini gives a server nothing of its own environment that it does not name.
        "env": surroundings(environment),
        "trust": True,
        "timeout": int(TURN_TIMEOUT * 1000),
    }
    folder = home / ".gemini"
    folder.mkdir()
    settings = {
        "mcpServers": {SERVER: server},
        "security": {"auth": {"selectedType": "gemini-api-key"}},
    }
    (folder / "settings.json").write_text(json.dumps(settings))
    # It starts servers only in folders that its user trusts.
    trusted = {str(workspace): "TRUST_FOLDER"}
    (folder / "trustedFolders.json").write_text(json.dumps(trusted))


@pytest.mark.timeout(120)
@aio
async def test_an_agent_delegates_to_another_agent(home: Path, workspace: Path) -> None:
    async with host(home, workspace) as user:
        said = await user.ask(call("delegate", role="write", prompt="CHUNKS:3", fallback="none"))
        assert said.returncode == 0, said.stderr
        assert "chunk-1 chunk-2 chunk-3" in said.stdout
        assert "[dragoman: qwen did it]" in said.stdout
        listed = await dragoman(
            "jobs", "list", "--format", "json", cwd=workspace, environment=user.environment
        )
    ended = [(line["peer"], line["outcome"]) for line in listed.lines]
    assert ("qwen", "ok") in ended
    assert living_in(home) == []


@pytest.mark.timeout(120)
@aio
async def test_an_agent_that_asks_itself_is_stopped(home: Path, workspace: Path) -> None:
    # The inner one calls the same tool of the same server, and would go on forever.
    inner = call("ask_peer", peer="gemini", prompt="go on")
    async with host(home, workspace) as user:
        said = await user.ask(call("ask_peer", peer="gemini", prompt=inner))
        asked = [one.text for one in user.model.questions if one.tools]
    assert said.returncode == 0, said.stderr
    assert "FAILED: no peer can be used" in said.stdout
    assert "this is delegated work already, at depth 1, and 1 is the limit" in said.stdout
    assert inner in asked, "the inner one was asked"
    assert "go on" not in asked, "and nobody below it"
    assert living_in(home) == []


SLOW_START = 5.0
"""Seconds. Codex begins its first turn about one second after it has started its servers."""

SLOW_SDK = f"""
import sys, time

class Slow:
    def find_spec(name, path, target=None):
        if name == "mcp.server":
            time.sleep({SLOW_START})

sys.meta_path.insert(0, Slow)
"""
"""A `sitecustomize` that makes loading the MCP SDK slow, as it is on a busy machine."""


@pytest.mark.timeout(120)
@aio
async def test_codex_begins_its_first_turn_without_the_tools_of_a_server_that_starts_slowly(
    home: Path, workspace: Path
) -> None:
    # This is why dragoman answers before the SDK is loaded. If Codex waits for its servers some
    # day, `EarlyResponder` in `mcp_server.stdio_entry` can go.
    async with FakeModel() as model:
        environment = {**peer_environment(home), "FAKE_KEY": "k"}
        configure_codex(home, model)
        mark = workspace.parent / "mark"
        words = [mcp_server.__file__, str(mark), str(SLOW_START)]
        with (home / ".codex" / "config.toml").open("a") as file:
            file.write(f"\n[mcp_servers.tiny]\ncommand = {json.dumps(sys.executable)}\n")
            file.write(f"args = {json.dumps(words)}\nstartup_timeout_sec = 60\n")
        host = Host(home, workspace, environment, model)
        said = await host.run(*peer_program("codex"), "exec", "--skip-git-repo-check", "hi")
        offered = {tool.called for tool in model.questions[0].tools}
    assert said.returncode == 0, said.stderr
    assert offered and not any("tiny" in name for name in offered)


@pytest.mark.parametrize("slow_sdk", [False, True], ids=["installed", "slow SDK"])
@pytest.mark.timeout(120)
@aio
async def test_codex_has_the_tools_in_its_first_turn(
    slow_sdk: bool, home: Path, workspace: Path
) -> None:
    async with FakeModel() as model:
        environment = {**peer_environment(home), "FAKE_KEY": "k"}
        if slow_sdk:
            (home / "slow").mkdir()
            (home / "slow" / "sitecustomize.py").write_text(SLOW_SDK)
        configure_codex(home, model)
        installed = await dragoman(
            "mcp", "install", "--client", "codex", "--write", cwd=workspace, environment=environment
        )
        assert installed.code == 0, installed.err
        with (home / ".codex" / "config.toml").open("a") as file:
            # It gives a server little of its own environment, and asks nobody in `exec`.
            file.write('default_tools_approval_mode = "approve"\n[mcp_servers.dragoman.env]\n')
            given = surroundings(environment)
            if slow_sdk:
                given["PYTHONPATH"] = os.pathsep.join([str(home / "slow"), given["PYTHONPATH"]])
            for name, value in given.items():
                file.write(f"{name} = {json.dumps(value)}\n")
        host = Host(home, workspace, environment, model)
        program = [*peer_program("codex"), "exec", "--skip-git-repo-check"]
        asked = json.dumps({"peer": "scout", "prompt": "where is main?"})
        said = await host.run(*program, f"TOOL:mcp__dragoman.ask_peer:{asked}")
        offered = {tool.called for tool in model.questions[0].tools}
    assert {"mcp__dragoman.delegate", "mcp__dragoman.job_result"} <= offered
    # It shows a model the values alone, and those say what a failure means.
    failed = "FAILED: scout did not complete it (refused). Do not answer in the peer's place"
    assert failed in said.stdout, said.stderr
    assert living_in(home) == []


@pytest.mark.timeout(120)
@aio
async def test_qwen_finds_the_tools_by_its_search_and_calls_them(
    home: Path, workspace: Path
) -> None:
    async with FakeModel() as model:
        environment = {**peer_environment(home), **QWEN.provider(model.url)}
        QWEN.configure(home)
        file = home / ".qwen" / "settings.json"
        server = {
            "command": sys.executable,
            "args": ["-m", "dragoman", "serve", "mcp"],
            "env": surroundings(environment),
            "trust": True,
        }
        settings = {**json.loads(file.read_text()), "mcpServers": {SERVER: server}}
        file.write_text(json.dumps(settings))
        wanted = json.dumps({"name": "mcp__dragoman__list_peers", "arguments": {}})
        host = Host(home, workspace, environment, model)
        said = await host.run(*peer_program("qwen"), "-p", f"TOOL:tool_call:{wanted}")
        offered = {tool.name for tool in model.questions[0].tools}
    assert "tool_search" in offered and not any("dragoman" in name for name in offered)
    assert '{"peers":[{"peer":"auggie"' in said.stdout, said.stderr
    assert living_in(home) == []


@pytest.mark.parametrize("name", ["codex", "gemini", "qwen", "copilot", "opencode"])
@aio
async def test_an_agent_lists_the_server_until_it_is_taken_out(
    name: str, home: Path, workspace: Path
) -> None:
    environment = peer_environment(home)
    # Not all of them are on the PATH of these tests, and one is not a program for node.
    program = install.pins()[name].folder / "node_modules" / ".bin" / name

    async def listed() -> bool:
        done = await asyncio.to_thread(
            subprocess.run,
            [str(program), "mcp", "list"],
            cwd=workspace,
            env=surroundings(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TURN_TIMEOUT,
            check=False,
        )
        return "coworkers" in done.stdout + done.stderr

    for action, there in (("install", True), ("uninstall", False)):
        words = ("mcp", action, "--client", name, "--name", "coworkers", "--write")
        done = await dragoman(*words, cwd=workspace, environment=environment)
        assert done.code == 0, done.err
        assert await listed() is there
    assert living_in(home) == []
