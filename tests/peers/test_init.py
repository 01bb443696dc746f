"""`dragoman init --yes` on a machine with the four real agents: found, verified, enabled, at work.

Only the model at the very end is the fake one.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from dragoman.testing.fake_model import FakeModel
from scripts.peers import install
from tests.aio import aio
from tests.peers import codex
from tests.peers.agents import COPILOT, GEMINI, QWEN
from tests.peers.commands import COMMAND, Ended, living_in, surroundings
from tests.peers.programs import PEERS, peer_environment

CODEX_SETTINGS = '# mine\n[peer.codex]\nenv = ["FAKE_KEY"]\n'
"""The name of a key is in Codex's own configuration, so its user lets it through."""

INIT_TIMEOUT = 150.0
"""Seconds for one beginning: each of the four is started several times to be verified, which takes
half a minute where nothing else runs."""


async def init(*words: str, cwd: Path, environment: Mapping[str, str]) -> Ended:
    """Run the command to its end, while the model goes on in this event loop."""
    ended = await asyncio.to_thread(
        subprocess.run,
        [*COMMAND, "init", "--yes", *words],
        cwd=cwd,
        env=surroundings(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=INIT_TIMEOUT,
        check=False,
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def set_up(home: Path, model: FakeModel) -> dict[str, str]:
    """The environment of a user who has set up all four."""
    environment = {**peer_environment(home), "FAKE_KEY": "k"}
    codex.configure(home, model)
    for agent in (GEMINI, QWEN, COPILOT):
        agent.configure(home)
        environment |= agent.provider(model.url)
    settings = home / ".config" / "dragoman"
    settings.mkdir(parents=True)
    (settings / "config.toml").write_text(CODEX_SETTINGS)
    return environment


@pytest.mark.timeout(2 * INIT_TIMEOUT)
@aio
async def test_four_agents_are_verified_and_enabled_and_one_of_them_is_at_work(
    home: Path, workspace: Path
) -> None:
    async with FakeModel() as model:
        environment = set_up(home, model)
        ended = await init("--format", "json", *PEERS, cwd=workspace, environment=environment)
        assert ended.code == 0, ended.out + ended.err
        proofs = {line["peer"]: line for line in ended.lines if line["type"] == "Proof"}
        assert {name: one["ready"] for name, one in proofs.items()} == dict.fromkeys(PEERS, True)
        versions = {name: install.pins()[name].version for name in PEERS}
        assert {name: one["version"] for name, one in proofs.items()} == versions
        (delegation,) = [line for line in ended.lines if line["type"] == "Delegation"]
        assert (delegation["ok"], delegation["answered"]) == (True, "gemini")
        assert delegation["text"] == "You said: What can you do?"
        last = ended.lines[-1]
        assert (last["type"], last["enabled"], last["exit_code"]) == ("Beginning", [*PEERS], 0)
        # Nothing was asked of a model but the piece of work.
        assert {question.text for question in model.questions} == {"What can you do?"}

        written = (home / ".config" / "dragoman" / "config.toml").read_text()
        assert written.startswith("enabled_peers = [") and CODEX_SETTINGS in written

        # What is known is not measured again, and a second time changes nothing.
        again = await init(*PEERS, cwd=workspace, environment=environment)
        assert again.code == 0, again.out + again.err
        assert again.out.count("ok  ") == 4 and again.out.count("(measured on ") == 4
        assert "It works: gemini answered." in again.out
        assert (home / ".config" / "dragoman" / "config.toml").read_text() == written
    assert living_in(home) == []
