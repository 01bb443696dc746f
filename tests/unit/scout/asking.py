"""scout in the same process, joined to a client by a stream in memory, for the unit tests.

It owns the asking and what is kept of a turn. The real thing, a child process, is asked in
tests/integration.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dragoman.client.acp import ClientOptions, Session, use_agent
from dragoman.client.permissions import Permit, deny_all
from dragoman.dialects.acp import v1 as acp
from dragoman.scout.agent import build
from dragoman.scout.store import SessionFiles
from dragoman.transports import memory_pair

WAIT_TIMEOUT = 20.0
"""Seconds until a wait is a failure."""


@dataclass(slots=True)
class Reply:
    """What a turn said and showed."""

    stop: str = ""
    text: str = ""
    thought: str = ""
    title: str | None = None
    plans: list[list[tuple[str, str]]] = field(default_factory=list)
    tools: dict[str, list[Any]] = field(default_factory=dict)
    """Each tool call: how it was announced, and what was told of it later."""


@asynccontextmanager
async def talking(
    folder: Path, state: Path, *, permit: Permit = deny_all
) -> AsyncIterator[Session]:
    """A session with scout in a folder."""
    ours, theirs = memory_pair()
    async with asyncio.timeout(WAIT_TIMEOUT), asyncio.TaskGroup() as tasks:
        tasks.create_task(build(SessionFiles(state)).serve(theirs))
        async with use_agent(ours, options=ClientOptions(permit=permit)) as client:
            yield await client.new_session(folder)


async def ask(session: Session, text: str) -> Reply:
    """Ask something, and keep what comes back."""
    reply = Reply()
    async with session.prompt(text) as turn:
        async for update in turn:
            match update:
                case acp.AgentMessageChunk(content=acp.TextContent(text=said)):
                    reply.text += said
                case acp.AgentThoughtChunk(content=acp.TextContent(text=said)):
                    reply.thought += said
                case acp.Plan(entries=entries):
                    reply.plans.append([(entry.content, entry.status) for entry in entries])
                case acp.ToolCall(tool_call_id=id) | acp.ToolCallProgress(tool_call_id=id):
                    reply.tools.setdefault(id, []).append(update)
                case acp.SessionInfoUpdate(title=str(title)):
                    reply.title = title
    reply.stop = turn.result.stop
    return reply


async def answer(folder: Path, state: Path, *questions: str, permit: Permit = deny_all) -> Reply:
    """The reply to the last of some questions in a new session."""
    reply = Reply()
    async with talking(folder, state, permit=permit) as session:
        for question in questions:
            reply = await ask(session, question)
    return reply


def project(folder: Path, files: Mapping[str, str]) -> Path:
    """A project below a folder, with these texts by path."""
    for path, text in files.items():
        (folder / "project" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "project" / path).write_text(text)
    return folder / "project"


async def asked(project: Path, question: str) -> Reply:
    """The reply to one question about a project; scout keeps its state beside it."""
    return await answer(project, project.parent / "state", question)
