"""Delegation with the real agents: each role of theirs, and every way in which one gives up.

The command is a process, the agents are its children, and only their models are fakes. Cursor's
roles are played by a stand-in. Whoever answers, the text, the JSON and the ledger have to agree on
who was asked before and why that was not enough.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dragoman.testing.fake_model import FakeModel
from tests.aio import aio
from tests.peers import codex, cursor_agent
from tests.peers.agents import COPILOT, GEMINI, QWEN
from tests.peers.commands import COMMAND, RUN_TIMEOUT, dragoman, living_in, surroundings
from tests.peers.programs import peer_environment

SETTINGS = """\
enabled_peers = {enabled}
{extra}
[timeouts]
cancel_grace = 3
[peer.codex]
env = ["FAKE_KEY"]
"""

ROLES = {
    "execute": "codex",
    "research": "gemini",
    "exploration": "gemini",
    "write": "qwen",
    "review": "copilot",
    "debug": "cursor",
    "plan": "cursor",
}
"""The roles of the documents, and who is the first to be asked."""

SILENCE = "[limits]\nsilence = 6\n"


def furnish(home: Path, *enabled: str, extra: str = "") -> dict[str, str]:
    """The home of a user who has all of them, and its environment without any model."""
    settings = home / ".config" / "dragoman"
    settings.mkdir(parents=True)
    text = SETTINGS.format(enabled=json.dumps(enabled or ["codex", "gemini", "qwen", "copilot",
                                                          "cursor"]), extra=extra)  # fmt: skip
    (settings / "config.toml").write_text(text)
    folder = home / "bin"
    folder.mkdir()
    program = folder / "cursor-agent"
    words = shlex.join([sys.executable, cursor_agent.__file__])
    program.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    program.chmod(0o755)
    environment = peer_environment(home)
    environment["PATH"] = f"{folder}:{environment['PATH']}"
    return {**environment, "CURSOR_API_KEY": "fake", "FAKE_KEY": "k"}


@asynccontextmanager
async def failing(status: int | None) -> AsyncIterator[str]:
    """A server that turns every request away, or with None answers none."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.read(65536):
                if status is None:
                    continue
                error = {"type": "insufficient_quota", "code": str(status), "message": "no more"}
                body = json.dumps({"error": error}).encode()
                head = f"HTTP/1.1 {status} No\r\nContent-Type: application/json\r\n"
                head += f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                writer.write(head.encode() + body)
                break
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.close()


async def delegated(*words: str, workspace: Path, environment: Mapping[str, str]) -> dict[str, Any]:
    """Delegate, and return the last line of JSON."""
    ended = await dragoman(
        "delegate", *words, "--format", "json", cwd=workspace, environment=environment
    )
    last = ended.lines[-1]
    assert last["type"] == "Delegation", ended.err
    for number, one in enumerate(last["attempts"], 1):
        assert f"{number}. {one['peer']}" in ended.err
    exported = await dragoman("ledger", "export", cwd=workspace, environment=environment)
    kept = exported.lines
    assert [(one["peer"], one["outcome"], one["reason"]) for one in last["attempts"]] == [
        (one["peer"], one["outcome"], one["reason"])
        for one in kept
        if one["type"] == "Attempt" and one["job"] == last["job"]
    ]
    return last


def is_gemini(pid: int) -> bool:
    return b"gemini" in Path(f"/proc/{pid}/cmdline").read_bytes()


def tried(done: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one["peer"], one["outcome"]) for one in done["attempts"]]


@pytest.mark.parametrize("role", ROLES)
@aio
async def test_each_role_goes_to_the_agent_that_claims_it(
    role: str, home: Path, workspace: Path
) -> None:
    environment = furnish(home)
    QWEN.configure(home)
    async with FakeModel() as model:
        codex.configure(home, model)
        for agent in (GEMINI, QWEN, COPILOT):
            environment |= agent.provider(model.url)
        done = await delegated(role, "CHUNKS:3", workspace=workspace, environment=environment)
    assert tried(done) == [(ROLES[role], "ok")]
    assert "chunk-3" in done["text"] or ROLES[role] == "cursor"
    assert living_in(home) == []


@pytest.mark.parametrize(
    ("status", "outcome"), [(429, "timed_out"), (None, "timed_out"), (401, "auth_required")]
)
@aio
async def test_gemini_gives_way_where_its_model_does_not_answer(
    status: int | None, outcome: str, home: Path, workspace: Path
) -> None:
    # Turned away for its quota, Gemini says nothing and tries again: the silence limit ends that.
    environment = furnish(home, "gemini", "copilot", extra=SILENCE)
    async with FakeModel() as model, failing(status) as address:
        environment |= {**GEMINI.provider(address), **COPILOT.provider(model.url)}
        done = await delegated("research", "hello", workspace=workspace, environment=environment)
    assert tried(done) == [("gemini", outcome), ("copilot", "ok")]
    assert done["attempts"][1]["reason"].startswith("gemini ")
    assert living_in(home) == []


@aio
async def test_copilot_says_in_its_text_that_it_cannot_and_gives_way(
    home: Path, workspace: Path
) -> None:
    environment = furnish(home, "copilot", "gemini", extra=SILENCE)
    async with FakeModel() as model, failing(401) as address:
        environment |= {**COPILOT.provider(address), **GEMINI.provider(model.url)}
        done = await delegated("research", "hello", workspace=workspace, environment=environment)
    assert tried(done) == [("copilot", "auth_required"), ("gemini", "ok")]
    assert living_in(home) == []


@aio
async def test_an_agent_without_a_login_is_parked_with_the_command(
    home: Path, workspace: Path
) -> None:
    environment = furnish(home, "gemini", "copilot")
    async with FakeModel() as model:
        environment |= COPILOT.provider(model.url)
        done = await delegated("research", "hello", workspace=workspace, environment=environment)
    assert tried(done) == [("gemini", "auth_required"), ("copilot", "ok")]
    assert not done["attempts"][0]["mayHaveRun"]
    explained = await dragoman(
        "explain", "research", "--format", "json", cwd=workspace, environment=environment
    )
    reasons = {one["peer"]: one for one in explained.lines[0]["passed_over"]}
    assert reasons["gemini"]["reason"] == "parked" and "login" in reasons["gemini"]["detail"]
    assert living_in(home) == []


@aio
async def test_codex_gives_way_to_the_local_model_and_says_why(home: Path, workspace: Path) -> None:
    async with FakeModel() as model, FakeModel() as refusing, failing(429) as quota:
        local = f'[local_model]\napi = "openai"\nmodel = "m"\nbase_url = "{model.url}/v1"\n'
        environment = furnish(home, "codex", extra=local)
        codex.configure(home, refusing)
        done = await delegated("execute", "HTTP:400\nhello", "--strict", workspace=workspace,
                               environment=environment)  # fmt: skip
        assert tried(done) == [("codex", "failed")] and done["exit_code"] == 1
        again = await delegated("execute", "hello", workspace=workspace, environment=environment)
        assert tried(again) == [("codex", "ok")]
        file = home / ".codex" / "config.toml"
        file.write_text(file.read_text().replace(refusing.url, quota))
        spent = await delegated("execute", "hello", workspace=workspace, environment=environment)
        assert tried(spent) == [("codex", "quota"), ("local-model", "ok")]
        # A quota that does not pass in a moment parks it.
        later = await delegated("execute", "hello", workspace=workspace, environment=environment)
    assert tried(later) == [("local-model", "ok")] and later["text"] == "You said: hello"
    assert living_in(home) == []


@aio
async def test_an_agent_that_is_killed_in_its_turn_gives_way(home: Path, workspace: Path) -> None:
    environment = furnish(home, "gemini", "copilot")
    async with FakeModel() as model, FakeModel() as other:
        environment |= {**GEMINI.provider(model.url), **COPILOT.provider(other.url)}
        other.release()
        command = await asyncio.create_subprocess_exec(
            *(*COMMAND, "delegate", "research", "HOLD", "--json-strict"),
            cwd=workspace,
            env=surroundings(environment),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            limit=1 << 24,
        )
        assert command.stdout is not None
        lines: list[dict[str, Any]] = []
        killed = False
        async with asyncio.timeout(RUN_TIMEOUT):
            async for line in command.stdout:
                lines.append(json.loads(line))
                begun = [one for one in lines if one["type"] == "AttemptBegun"]
                if lines[-1]["type"] == "MessageDelta" and not killed and len(begun) == 1:
                    killed = True
                    for pid in living_in(home):
                        if is_gemini(pid):
                            os.kill(pid, signal.SIGKILL)
                if len(begun) == 2:
                    other.release()
            await command.wait()
    done = lines[-1]
    assert tried(done) == [("gemini", "crashed"), ("copilot", "ok")]
    assert done["attempts"][0]["mayHaveRun"] and command.returncode == 0
    assert living_in(home) == []
