"""What goes wrong before an agent answers: the error names the cause and what to do.

Wrong command lines are refused before anything is started, because two agents take them for a
prompt and send what they read to their model; a decoy in the agent's place would tell if one was.
A missing login is told by the real programs.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.aio import aio
from tests.peers.commands import Ended, dragoman, living_in
from tests.peers.programs import peer_environment

PEERS = ("gemini", "qwen", "copilot", "gh", "codex", "npx")


def decoy(folder: Path, name: str, does: str = "") -> Path:
    """A program of this name that says nothing and leaves a mark when it is started."""
    folder.mkdir(exist_ok=True)
    program = folder / name
    mark = shlex.quote(str(folder / "started"))
    program.write_text(f"#!/bin/sh\necho {shlex.quote(name)} >> {mark}\n{does}\n")
    program.chmod(0o755)
    return program


def only(folder: Path, home: Path) -> dict[str, str]:
    """An environment that has no other programs than those in a folder."""
    return {**peer_environment(home), "PATH": str(folder)}


def says(ended: Ended, *words: str) -> None:
    for word in words:
        assert word in ended.err


@pytest.mark.parametrize(
    ("command", "cause", "remedy"),
    [
        ("gemini acp", "gemini treats the word as a prompt", "`gemini --acp`"),
        ("qwen acp", "qwen treats the word as a prompt", "`qwen --acp`"),
        ("copilot acp", "Invalid command format", "`copilot --acp`"),
        ("gh copilot --acp", "is not an agent itself", "`copilot --acp`"),
        ("codex acp", "codex treats the word as a prompt", "`codex app-server`"),
        ("npx @google/gemini-cli acp", "gemini treats the word as a prompt", "`gemini --acp`"),
        ("{folder}/qwen acp", "qwen treats the word as a prompt", "`qwen --acp`"),
    ],
)
@aio
async def test_a_wrong_command_line_is_refused_and_not_started(
    command: str, cause: str, remedy: str, home: Path, workspace: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "bin"
    for name in PEERS:
        decoy(folder, name)
    words = command.format(folder=folder).split()
    ended = await dragoman(
        "run", "hello", "--", *words, cwd=workspace, environment=only(folder, home)
    )
    assert ended.code == 2, ended.err
    says(ended, cause, remedy)
    assert not (folder / "started").exists()


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("gemini", "npm install -g @google/gemini-cli"),
        ("qwen", "npm install -g @qwen-code/qwen-code"),
        ("copilot", "npm install -g @github/copilot"),
        ("codex", "npm install -g @openai/codex"),
    ],
)
@aio
async def test_a_program_that_is_missing_is_named_with_the_way_to_install_it(
    name: str, remedy: str, home: Path, workspace: Path, tmp_path: Path
) -> None:
    empty = only(tmp_path / "bin", home)
    ended = await dragoman("run", name, "hello", cwd=workspace, environment=empty)
    assert ended.code not in (0, 2)
    says(ended, f"{name} is not on the PATH", remedy)


@aio
async def test_a_node_that_is_too_old_is_named_with_the_one_that_is_needed(
    home: Path, workspace: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "bin"
    node = decoy(folder, "node", "echo v20.11.0")
    copilot = folder / "copilot"
    copilot.write_text("#!/usr/bin/env node\n")
    copilot.chmod(0o755)
    ended = await dragoman("run", "copilot", "hello", cwd=workspace, environment=only(folder, home))
    assert ended.code not in (0, 2)
    says(ended, "it needs node 22 or newer", f"{node} is node 20.11.0", "install node 22 or newer")
    # Only its version was asked for.
    assert (folder / "started").read_text() == "node\n"


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("gemini", "set GEMINI_API_KEY, or run `gemini` once in a terminal and log in"),
        ("qwen", "set OPENAI_API_KEY"),
        ("copilot", "run `copilot login`"),
    ],
)
@aio
async def test_a_missing_login_is_named_with_the_way_to_log_in(
    name: str, remedy: str, home: Path, workspace: Path
) -> None:
    ended = await dragoman("run", name, "hello", cwd=workspace, environment=peer_environment(home))
    assert ended.code == 6, ended.err
    says(ended, remedy)
    assert living_in(home) == []
