"""Editors that are not ours drive `dragoman serve acp`, with real agents and a fake model behind.

acpx, the official TypeScript SDK and the official Python SDK: each does what an editor does, and a
peer is chosen, changed and delegated to. acpx starts a process for each command, so that a session
is resumed by another one before its first prompt.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import acp as sdk
import pytest
from acp import schema

from dragoman.testing.fake_model import FakeModel
from scripts.peers import install
from tests.aio import aio
from tests.integration.test_serve_acp import Editor
from tests.peers.agents import GEMINI, QWEN
from tests.peers.commands import COMMAND, Ended, dragoman, living_in, surroundings
from tests.peers.programs import node_program, peer_environment, sdk_module

DOOR = [*COMMAND, "serve", "acp"]
EDITOR = Path(__file__).with_name("ts") / "editor.mjs"

RUN_TIMEOUT = 55.0
"""Seconds for one command of an editor; a test has sixty."""

GONE_TIMEOUT = 20.0
"""Seconds for brokers and editors to be gone after they were told to stop."""

IDLE_SECONDS = "8"
"""How long acpx keeps its own process after a prompt."""


class User:
    """Somebody who has two agents set up and enabled."""

    def __init__(self, home: Path, workspace: Path, model: FakeModel) -> None:
        self.home = home
        self.workspace = workspace
        self.model = model
        provided = QWEN.provider(model.url) | GEMINI.provider(model.url)
        self.environment = surroundings(peer_environment(home) | provided | {"DRAGOMAN_WARM": "1"})

    async def run(self, *words: str) -> Ended:
        """A command of an editor, to its end."""
        process = await asyncio.create_subprocess_exec(
            *words,
            cwd=self.workspace,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(RUN_TIMEOUT):
                out, err = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode is not None
        return Ended(process.returncode, out.decode(), err.decode())

    async def acpx(self, *words: str) -> str:
        """A command of acpx with our agent; what it prints."""
        options = ["--ttl", IDLE_SECONDS, "--approve-all", "--agent", shlex.join(DOOR)]
        ended = await self.run(*install.program("acpx"), *options, *words)
        assert ended.code == 0, ended.out + ended.err
        return ended.out

    def asked_about(self, prompt: str) -> str:
        """Everything that the model was told with a prompt, as text."""
        bodies = [json.dumps(each.body) for each in self.model.requests]
        return next(body for body in reversed(bodies) if prompt in body)


@asynccontextmanager
async def user(home: Path, workspace: Path) -> AsyncIterator[User]:
    settings = home / ".config" / "dragoman"
    settings.mkdir(parents=True)
    (settings / "config.toml").write_text('enabled_peers = ["gemini", "qwen"]\n')
    QWEN.configure(home)
    async with FakeModel() as model:
        person = User(home, workspace, model)
        try:
            yield person
        finally:
            stop = ("broker", "stop", "--all")
            await dragoman(*stop, cwd=home, environment=person.environment)
            async with asyncio.timeout(GONE_TIMEOUT):
                while living_in(home):  # noqa: ASYNC110 - nobody tells of another's children
                    await asyncio.sleep(0.05)


@aio
async def test_acpx_chooses_a_peer_prompts_it_and_gives_permissions(
    home: Path, workspace: Path
) -> None:
    async with user(home, workspace) as person:
        created = await person.acpx("sessions", "new", "--name", "talk")
        session = created.strip().splitlines()[-1]
        # Another process takes up a session in which nothing was said yet.
        assert "peer=qwen" in await person.acpx("set", "-s", "talk", "peer", "qwen")
        told = await person.acpx("prompt", "-s", "talk", "the first word is amber")
        assert "You said: the first word is amber" in told and "[done] end_turn" in told
        made = workspace / "made.txt"
        await person.acpx("prompt", "-s", "talk", f"WRITE:{made}:some content")
        assert made.read_text() == "some content"
        assert "amber" in person.asked_about("WRITE:"), "the peer knows what was said before"
        assert session in await person.acpx("sessions", "list")
        await person.acpx("sessions", "close", "talk")


@aio
async def test_acpx_cancels_a_turn(home: Path, workspace: Path) -> None:
    async with user(home, workspace) as person:
        await person.acpx("sessions", "new", "--name", "talk")
        await person.acpx("set", "-s", "talk", "peer", "qwen")
        async with asyncio.TaskGroup() as group:
            turn = group.create_task(person.acpx("prompt", "-s", "talk", "SLOW"))
            async with asyncio.timeout(RUN_TIMEOUT):
                while not any("SLOW" in str(one.body) for one in person.model.requests):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            while "cancel requested" not in await person.acpx("cancel", "-s", "talk"):
                pass
        assert "cancelled" in turn.result()


@aio
async def test_acpx_changes_the_peer_and_delegates(home: Path, workspace: Path) -> None:
    async with user(home, workspace) as person:
        await person.acpx("sessions", "new", "--name", "talk")
        await person.acpx("set", "-s", "talk", "peer", "scout")
        await person.acpx("prompt", "-s", "talk", "where is amberwood defined?")
        assert "peer=gemini" in await person.acpx("set", "-s", "talk", "peer", "gemini")
        told = await person.acpx("prompt", "-s", "talk", "the word is birch")
        assert "gemini takes over with a brief: 1 message" in told
        assert "User: where is amberwood defined?" in person.asked_about("birch")
        told = await person.acpx("prompt", "-s", "talk", "/delegate research the word is cedar")
        assert "Delegate research → gemini (completed)" in told
        assert "it claims research" in told
        assert "cedar" in person.asked_about("cedar")


@aio
async def test_an_editor_of_the_typescript_sdk_and_the_door_understand_each_other(
    home: Path, workspace: Path, subtests: pytest.Subtests
) -> None:
    async with user(home, workspace) as person:
        words = [node_program(), str(EDITOR), str(sdk_module()), str(workspace)]
        ended = await person.run(*words, "gemini", "research", *DOOR)
        assert ended.code == 0, ended.err
        for act, verdict in json.loads(ended.out).items():
            with subtests.test(act=act):
                assert verdict == "ok", verdict


@aio
async def test_a_client_of_the_python_sdk_works_with_a_real_peer(
    home: Path, workspace: Path
) -> None:
    async with user(home, workspace) as person:
        async with editor(person) as it:
            session = (await it.agent.new_session(str(workspace))).session_id
            chosen = await it.agent.set_config_option("peer", session, "qwen")
            assert {"peer", "role", "mode"} <= {option.id for option in chosen.config_options}
            changed = await it.agent.set_config_option("mode", session, "plan")
            assert {o.id: o.current_value for o in changed.config_options}["mode"] == "plan"
            # A mode in which qwen does not ask would get around the policy.
            with pytest.raises(sdk.RequestError, match="it does not ask in the mode yolo"):
                await it.agent.set_config_option("mode", session, "yolo")
            await it.agent.set_config_option("mode", session, "default")
            assert (await it.ask(session, "the word is amber")) == "You said: the word is amber"
            made = workspace / "made.txt"
            await it.ask(session, f"WRITE:{made}:content")
            assert made.read_text() == "content" and len(it.asked) == 1
            # A session of its own: whoever takes over is told its prompts, and would be slow, too.
            slow = (await it.agent.new_session(str(workspace))).session_id
            await it.agent.set_config_option("peer", slow, "qwen")
            async with asyncio.TaskGroup() as group:
                turn = group.create_task(it.agent.prompt(slow, [sdk.text_block("SLOW")]))
                await it.hear("slow-1")
                other = (await it.agent.new_session(str(workspace))).session_id
                await it.agent.set_config_option("peer", other, "scout")
                await it.agent.prompt(other, [sdk.text_block("where is amberwood defined?")])
                await it.agent.cancel(slow)
            assert turn.result().stop_reason == "cancelled"
        async with editor(person) as it:
            listed = (await it.agent.list_sessions(cwd=str(workspace))).sessions
            assert session in [one.session_id for one in listed]
            await it.agent.load_session(cwd=str(workspace), session_id=session)
            assert "You said: the word is amber" in it.text()
            await it.ask(session, "the word is birch")
            assert "amber" in person.asked_about("birch")
            # Whoever takes over is told what the other one has said.
            await it.agent.set_config_option("peer", session, "gemini")
            told = await it.ask(session, "the word is cedar")
            assert told.startswith("gemini takes over with a brief: ")
            assert "User: the word is birch" in person.asked_about("cedar")
            told = await it.ask(session, "/delegate write the word is dogwood")
            assert "dogwood" in person.asked_about("dogwood") and told.strip()


@aio
async def test_the_door_keeps_to_the_protocol(home: Path, workspace: Path) -> None:
    # Here and not among the quicker tests, because every check starts the command anew.
    async with user(home, workspace) as person:
        given = [f"{name}={value}" for name, value in person.environment.items()]
        judge = [COMMAND[0], "-m", "dragoman.testing.conformance", "--turns", "--", "env"]
        ended = await person.run(*judge, *given, *DOOR, "--peer", "scout")
        assert ended.code == 0, ended.out + ended.err
        assert " 0 failed, 0 warned" in ended.out


@asynccontextmanager
async def editor(person: User) -> AsyncIterator[Editor]:
    client = Editor()
    async with (
        asyncio.timeout(RUN_TIMEOUT),
        sdk.spawn_agent_process(
            client,  # type: ignore[arg-type]
            *DOOR,
            env=person.environment,
            cwd=person.workspace,
        ) as (agent, process),
    ):
        client.agent = agent
        await agent.initialize(1, client_capabilities=schema.ClientCapabilities())
        yield client
        assert process.stdin is not None
        process.stdin.close()
        assert await process.wait() == 0
