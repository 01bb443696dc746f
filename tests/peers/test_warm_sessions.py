"""A conversation outlives its shell and its process: `dragoman run -s` with real agents, kept warm.

Every command is a process of its own, as from one shell and then from another; between two of them
the broker is stopped, so that the agent itself has to be started again. What the model was asked
tells whether the agent still knew what was said before.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dragoman.testing.fake_model import FakeModel
from tests.aio import aio
from tests.peers import codex
from tests.peers.agents import GEMINI, QWEN
from tests.peers.commands import RUN_TIMEOUT, Ended, dragoman, living_in
from tests.peers.programs import peer_environment

CODEX_SETTINGS = '[peer.codex]\nenv = ["FAKE_KEY"]\n'
"""The name of a key is in Codex's own configuration, so its user lets it through."""

ALL = "--approve-all"

GONE_TIMEOUT = 15.0
"""Seconds for a broker and its agent to be gone after they were told to stop."""


class Shells:
    """Commands of one user, each in a shell of its own."""

    def __init__(self, environment: dict[str, str], home: Path, model: FakeModel) -> None:
        self._environment = environment
        self._home = home
        self.model = model

    async def __call__(self, *words: str, cwd: Path, timeout: float = RUN_TIMEOUT) -> Ended:
        ended = await dragoman(*words, cwd=cwd, environment=self._environment, timeout=timeout)
        assert ended.code == 0, ended.out + ended.err
        return ended

    def asked_about(self, prompt: str) -> str:
        """Everything that the model was told with a prompt, as text."""
        bodies = [json.dumps(each.body) for each in self.model.requests]
        return next(body for body in reversed(bodies) if prompt in body)

    async def agents(self, cwd: Path) -> set[tuple[int, int]]:
        """The processes of each broker and of its agent; not the agent's own short-lived ones."""
        brokers = (await self("broker", "list", "--format", "json", cwd=cwd)).lines
        return {(each["status"]["pid"], each["status"]["peerPid"]) for each in brokers}

    async def until_gone(self) -> None:
        """Wait until no process of this user lives any more."""
        async with asyncio.timeout(GONE_TIMEOUT):
            while living_in(self._home):  # noqa: ASYNC110 - nobody tells of another's children
                await asyncio.sleep(0.05)


@asynccontextmanager
async def user_of(name: str, home: Path) -> AsyncIterator[Shells]:
    """A user who has set the agent up, and whose brokers are all stopped at the end."""
    async with FakeModel() as model:
        environment = peer_environment(home) | {"DRAGOMAN_WARM": "1"}
        if name == "codex":
            codex.configure(home, model)
            settings = home / ".config" / "dragoman"
            settings.mkdir(parents=True)
            (settings / "config.toml").write_text(CODEX_SETTINGS)
            environment["FAKE_KEY"] = "k"
        else:
            agent = {"qwen": QWEN, "gemini": GEMINI}[name]
            agent.configure(home)
            environment |= agent.provider(model.url)
        shells = Shells(environment, home, model)
        try:
            yield shells
        finally:
            await dragoman("broker", "stop", "--all", cwd=home, environment=environment)
            await shells.until_gone()


@pytest.mark.parametrize("name", ["codex", "qwen"])
@aio
async def test_a_session_goes_on_in_another_shell_and_after_a_restart_of_its_broker(
    name: str, home: Path, workspace: Path
) -> None:
    (workspace / ".git").mkdir()
    below = workspace / "below"
    below.mkdir()
    async with user_of(name, home) as shell:
        await shell("run", name, "the first word is amber", "-s", "talk", cwd=workspace)
        before = await shell.agents(workspace)
        assert before, "the agent is kept"

        await shell("run", name, "the second word is birch", "-s", "talk", cwd=below)
        assert await shell.agents(workspace) == before, "the same agent serves the second shell"
        asked = shell.asked_about("birch")
        assert "amber" in asked, "the agent knows what was said from the first shell"

        # With other permissions it may be another process, to which the session then moves.
        await shell("run", name, "the third word is cedar", "-s", "talk", ALL, cwd=workspace)
        asked = shell.asked_about("cedar")
        assert "amber" in asked and "birch" in asked, "it knows all of it"
        await shell("run", name, "the fourth word is dogwood", "-s", "talk", cwd=workspace)
        asked = shell.asked_about("dogwood")
        assert "birch" in asked and "cedar" in asked, "and so does the next"

        await shell("broker", "stop", "--all", cwd=workspace)
        await shell.until_gone()
        await shell("run", name, "the fifth word is elder", "-s", "talk", cwd=workspace)
        asked = shell.asked_about("elder")
        for word in ("amber", "birch", "cedar", "dogwood"):
            assert word in asked, f"the agent knows {word} although it was started again"

        shown = await shell("sessions", "show", "talk", "--format", "json", cwd=below)
        for word in ("amber", "birch", "cedar", "dogwood", "elder"):
            told = [line for line in shown.lines if word in json.dumps(line)]
            assert told, f"{word} is in the stored history"
        listed = await shell("sessions", "list", "--format", "json", cwd=below)
        assert [each["name"] for each in listed.lines if each["name"]] == ["talk"]


@pytest.mark.timeout(240)
@aio
async def test_gemini_keeps_a_session_although_it_is_killed_in_the_minute_in_which_it_began(
    home: Path, workspace: Path
) -> None:
    async with user_of("gemini", home) as shell:
        await shell("run", "gemini", "the first word is amber", "-s", "talk", cwd=workspace)
        ((_, agent),) = await shell.agents(workspace)
        os.kill(agent, signal.SIGKILL)
        again = ("run", "gemini", "the second word is birch", "-s", "talk")
        # It waits for the next minute, in which the session can be loaded.
        await shell(*again, cwd=workspace, timeout=60 + RUN_TIMEOUT)
        assert "amber" in shell.asked_about("birch")
        ((_, another),) = await shell.agents(workspace)
        assert another != agent
