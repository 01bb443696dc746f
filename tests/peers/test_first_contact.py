"""The first minute with a real agent program that nobody has logged in to.

It shakes hands, says who it is, asks for a login when a session is opened, and leaves no process
behind. Each program gets an empty home and no credentials, so no model can be reached.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from dragoman.client.acp import open_agent
from dragoman.errors import AuthRequired
from scripts.peers import install
from tests.aio import aio
from tests.peers import programs


@dataclass(frozen=True, slots=True)
class Program:
    """A real agent, and what is known of it."""

    name: str
    calls_itself: str
    login_methods: frozenset[str]
    hint: str
    """A part of what we tell a user who has to log in."""


PROGRAMS = [
    Program(
        "gemini",
        "gemini-cli",
        frozenset({"oauth-personal", "gemini-api-key", "vertex-ai", "gateway"}),
        "Log in with Google",
    ),
    Program("qwen", "qwen-code", frozenset({"openai"}), "--auth-type=openai"),
    Program("copilot", "Copilot", frozenset({"copilot-login"}), "login"),
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
@aio
async def test_a_program_without_a_login_asks_for_one(
    program: Program, home: Path, workspace: Path
) -> None:
    # The flag is the only form that is safe: gemini and qwen take the word `acp` for a prompt.
    argv = [*programs.peer_program(program.name), "--acp"]
    environment = programs.peer_environment(home)
    async with open_agent(argv, cwd=workspace, env=environment) as client:
        info = client.agent.agent_info
        assert info is not None
        assert info.name == program.calls_itself
        assert info.version == install.pins()[program.name].version
        assert {method.id for method in client.agent.auth_methods} == program.login_methods
        with pytest.raises(AuthRequired) as wanted:
            await client.new_session(workspace)
    assert wanted.value.hint.startswith("log in first: ")
    assert program.hint in wanted.value.hint
