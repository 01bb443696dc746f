"""`dragoman run --mcp-config` with real agents: each uses the servers, or the command says that it
does not."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.aio import aio
from tests.peers import mcp_server
from tests.peers.commands import dragoman
from tests.peers.test_cli_run import ready

CALLS = {"codex": "TOOL:mcp__tiny.hello:{}", "gemini": "TOOL:mcp_tiny_hello:{}"}
"""How the model of each agent calls the tool."""


def configure(workspace: Path, mark: Path) -> str:
    """A file for `--mcp-config` with the tiny server."""
    server = {"command": sys.executable, "args": [mcp_server.__file__, str(mark)]}
    file = workspace.parent / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"tiny": server}}))
    return str(file)


@pytest.mark.parametrize("name", list(CALLS))
@aio
async def test_an_agent_calls_the_tools_of_the_servers_it_was_handed(
    name: str, home: Path, workspace: Path
) -> None:
    mark = workspace.parent / "mark"
    words = ("--mcp-config", configure(workspace, mark), "--approve-all", "--format", "json")
    async with ready(name, home) as environment:
        ended = await dragoman(
            "run", name, CALLS[name], *words, cwd=workspace, environment=environment
        )
    assert ended.code == 0, ended.err
    assert mcp_server.GREETING in ended.lines[-1]["text"]
    assert ended.lines[-1]["ignored_mcp_servers"] == []
    assert "tools/call" in mark.read_text().split()


@aio
async def test_a_server_that_an_agent_ignores_is_named(home: Path, workspace: Path) -> None:
    mark = workspace.parent / "mark"
    words = ("--mcp-config", configure(workspace, mark), "--format", "json")
    async with ready("copilot", home) as environment:
        ended = await dragoman(
            "run", "copilot", "hi", *words, cwd=workspace, environment=environment
        )
    assert ended.code == 0, ended.err
    assert "copilot does not use the MCP servers tiny" in ended.err
    assert ended.lines[-1]["ignored_mcp_servers"] == ["tiny"]
    assert not mark.exists()


@aio
async def test_gemini_is_not_made_to_trust_a_folder_that_has_settings_for_it(
    home: Path, workspace: Path
) -> None:
    mark = workspace.parent / "mark"
    (workspace / ".gemini").mkdir()
    words = ("--mcp-config", configure(workspace, mark), "--format", "json")
    async with ready("gemini", home) as environment:
        ended = await dragoman(
            "run", "gemini", "hi", *words, cwd=workspace, environment=environment
        )
    assert ended.code == 0, ended.err
    assert f"because of {workspace / '.gemini'}" in ended.err
    assert not mark.exists()
