"""Natural questions about this repository, and the files that answer them.

They measure the ranking on real code. A question counts if one of its files is in the first three
places of the answer.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from dragoman.events.words import Outcome
from tests.aio import aio
from tests.integration.scout_child import find_ripgrep, places, programs, scout

ROOT: Final = Path(__file__).resolve().parents[2]
ENOUGH: Final = 16

ASKING_TIMEOUT: Final = 150.0
"""Seconds for all questions: they take about 10 on a machine at rest."""

QUESTIONS: Final = {
    "where is the line framing implemented?": ["wire/framing.py"],
    "how is the socket path of a broker chosen?": ["broker/endpoint.py"],
    "where are secrets redacted from messages?": ["redaction/messages.py", "redaction/redactor.py"],
    "where are the exit codes of the command line?": ["cli/exit_codes.py"],
    "how are shell commands parsed for the permission rules?": ["policy/shell_parser.py"],
    "where does the bandit sample its posterior?": ["delegation/bandit/sampling.py"],
    "which code kills stray processes?": ["process/strays.py", "setup/doctor.py"],
    "how long is history kept before it is deleted?": ["store/retention.py"],
    "where is the price of a model looked up?": ["delegation/prices.py"],
    "how are patches made from a git worktree?": ["delegation/worktree/patch.py"],
    "where is the database schema of the ledger?": ["store/ledger/schema.py"],
    "what decides which peer gets a delegated task?": ["delegation/routing/decide.py"],
    "how does the websocket transport send messages?": ["websocket_stream.py", "websocket.py"],
    "where is .gitignore parsed?": ["scout/gitignore.py"],
    "how does the doctor command work?": ["setup/doctor.py", "cli/doctor.py"],
    "how does a broker stop when it is idle?": ["broker/server/idle.py"],
    "where are MCP tools defined?": ["mcp_server/tools.py"],
    "who checks the bearer token of HTTP requests?": ["http_guard.py", "cli/serve_mcp.py"],
    "where is the spending limit enforced?": ["delegation/spending_limits.py"],
    "how is a project's configuration file trusted?": ["config/trust.py"],
}


@pytest.mark.parametrize(
    "names",
    [
        pytest.param((), id="python"),
        pytest.param(
            ("rg",),
            id="ripgrep",
            marks=pytest.mark.skipif(find_ripgrep() is None, reason="there is no ripgrep here"),
        ),
    ],
)
@pytest.mark.timeout(ASKING_TIMEOUT)
@aio
async def test_most_questions_are_answered_by_one_of_the_first_three_places(
    names: tuple[str, ...], tmp_path: Path
) -> None:
    path = programs(tmp_path / "bin", *names)
    missed = []
    async with scout(ROOT, tmp_path / "state", path=path) as peer, peer.session() as session:
        for question, files in QUESTIONS.items():
            result = await session.ask(question)
            assert result.outcome is Outcome.OK, question
            first = [place.rpartition(":")[0] for place in places(result.text)[:3]]
            if not any(found.endswith(f"/{file}") for found in first for file in files):
                missed.append(f"{question} {first}")
    assert len(QUESTIONS) - len(missed) >= ENOUGH, "\n".join(missed)
