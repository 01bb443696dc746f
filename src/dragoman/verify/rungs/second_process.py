"""Rungs `mcp`, `list`, `load` and `resume`, measured in a second process of the peer.

They show whether this process starts MCP servers, and whether it finds a session of the first
process. Some peers store only sessions with content: if that session had no turn, a refusal counts
as unknown.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from dragoman.client.conversation import Peer
from dragoman.config.safe_files import read_file
from dragoman.dialects.acp.v1 import McpServerStdio
from dragoman.dialects.discovery import ACP, CODEX
from dragoman.errors import CallTimeout, DragomanError, Unsupported
from dragoman.verify import canary_mcp_server, remedies
from dragoman.verify.canary_prompts import NEVER, fill
from dragoman.verify.rung import Rung, RungFinding, passed, skipped, warned
from dragoman.verify.verification import Verification, allow

LOOK_INTERVAL: Final = 0.05
"""Seconds between two checks for the file of the MCP server."""

MAX_LISTED: Final = 10_000
"""Maximum number of sessions to search for ours, because a list may be endless."""


async def mcp(state: Verification) -> RungFinding:
    if not state.canaries.tool:
        return passed(NEVER.format("uses the tools of others"), mcp=False)
    connected = await state.successor()
    mark = state.surroundings.marks / "mcp"
    try:
        conversation = await state.open(connected.peer, mcp_servers=[canary(mark)])
    except Unsupported as error:
        return skipped(str(error))
    except DragomanError as error:
        return warned(f"it opens no session with an MCP server: {error}", remedies.MCP, mcp=False)
    speaking = state.turns and state.held("echo")
    if not await _marked(state, mark) and speaking:
        state.decide_with(allow)
        names = {"tool": canary_mcp_server.TOOL, "server": canary_mcp_server.NAME}
        # A peer that calls a tool has started its server by then, so there is no further wait.
        await state.take_turn(conversation, fill(state.canaries.tool, **names))
    # The peer knows the path, and may have put anything there.
    written = read_file(mark)
    if written is not None:
        done = ", ".join(dict.fromkeys(written.decode("utf-8", "replace").split()))
        return passed(f"it used the MCP server of the session: {done}", mcp=True)
    if not speaking:
        return passed("the MCP server was not started with the session; a turn may start it")
    return warned("it did not start the MCP server of the session", remedies.MCP, mcp=False)


def canary(mark: Path) -> McpServerStdio:
    """Return the MCP server for the peer. It is run by its path, so it needs nothing installed."""
    return McpServerStdio(
        name=canary_mcp_server.NAME,
        command=sys.executable,
        args=[os.path.abspath(canary_mcp_server.__file__), str(mark)],
        env=[],
    )


async def _marked(state: Verification, mark: Path) -> bool:
    try:
        async with asyncio.timeout(state.limits.mcp_start):
            # A file that another program writes can only be polled.
            while not os.path.exists(mark):  # noqa: ASYNC110, ASYNC240
                await asyncio.sleep(LOOK_INTERVAL)
    except TimeoutError:
        return False
    return True


async def listing(state: Verification) -> RungFinding:
    peer = (await state.successor()).peer
    if peer.capabilities.list is False:
        return passed(_cannot(peer, "list"), lists_sessions=False)
    try:
        async with asyncio.timeout(state.limits.session):
            seen = await _found(state, peer)
    except (DragomanError, TimeoutError) as error:
        return _refused(state, "list", "lists_sessions", error)
    if seen:
        return passed(f"another process lists the session, at position {seen}", lists_sessions=True)
    if not state.spoken:
        return passed("another process does not list an empty session")
    return warned(
        "another process does not list the session", remedies.MEMORY, lists_sessions=False
    )


def _cannot(peer: Peer, what: str) -> str:
    """Return why a peer is not asked to list, load or resume sessions."""
    if peer.dialect in (ACP, CODEX):
        return f"it does not claim to {what} sessions"
    return f"the dialect {peer.dialect} has no known method to {what} sessions"


async def _found(state: Verification, peer: Peer) -> int:
    """Return the position of the first process's session in the list of sessions, from 1; 0 if it
    is not among the first `MAX_LISTED`."""
    place = 0
    async for one in peer.list_sessions(state.surroundings.workspace):
        place += 1
        if one.id == state.session_id:
            return place
        if place == MAX_LISTED:
            break
    return 0


async def load(state: Verification) -> RungFinding:
    peer = (await state.successor()).peer
    if peer.capabilities.load is False:
        return passed(_cannot(peer, "load"), loads_sessions=False)
    if state.way.quirks.loads_next_minute and _in_its_first_minute(state):
        return skipped(
            "not tried, because it loses a session that is loaded in the minute in which it "
            "was created, and that minute is not over"
        )
    try:
        replayed = await _reopen(state, peer, "load")
    except DragomanError as error:
        return _refused(state, "load", "loads_sessions", error)
    if state.spoken and not replayed:
        return warned(
            "another process loads the session, but replays none of it",
            remedies.MEMORY,
            loads_sessions=False,
        )
    if state.facts.get("unknown_session_code") == 0 and not replayed:
        return passed("another process loads the session, but also any other id")
    return passed(
        f"another process loads the session with {replayed} events of its history",
        loads_sessions=True,
    )


def _in_its_first_minute(state: Verification) -> bool:
    """Return whether the session was opened in the current minute. The peer reads its clock before
    we do, so the boundary counts as the same minute."""
    began = state.session_began
    if began is None:
        return False
    return datetime.now(UTC).replace(second=0, microsecond=0) <= began


async def resume(state: Verification) -> RungFinding:
    peer = (await state.successor()).peer
    if peer.capabilities.resume is False:
        return passed(_cannot(peer, "resume"), resumes_sessions=False)
    try:
        await _reopen(state, peer, "resume")
    except DragomanError as error:
        return _refused(state, "resume", "resumes_sessions", error)
    return passed("another process resumes the session", resumes_sessions=True)


async def _reopen(state: Verification, peer: Peer, how: str) -> int:
    """Open the session of the first process by the method `how` (load or resume), wait for its
    replay, and close it again. Returns the number of replayed events."""
    conversation = await state.open(peer, how=how, session_id=state.session_id)
    await conversation.wait_replayed()
    replayed = len(conversation.replayed)
    # It may be opened again by another method. A failure to close it does not matter.
    with contextlib.suppress(DragomanError):
        await conversation.close()
    return replayed


def _refused(state: Verification, what: str, fact: str, error: Exception) -> RungFinding:
    if isinstance(error, CallTimeout | TimeoutError):
        # A `TimeoutError` is that of the whole list, and has no text.
        detail = str(error) or f"it did not finish within {state.limits.session:g} s"
        return warned(
            f"no answer when asked to {what}: {detail}", remedies.UNANSWERED, **{fact: False}
        )
    if not state.spoken:
        return passed(f"it cannot {what} an empty session: {error}")
    return warned(f"it claims to {what} sessions, but: {error}", remedies.MEMORY, **{fact: False})


RUNGS: Final = (
    Rung(
        name="mcp",
        asks="Does it start a session's MCP servers?",
        measure=mcp,
        fields=("mcp",),
        needs=("session",),
    ),
    Rung(
        name="list",
        asks="Does a new process of the peer list the session?",
        measure=listing,
        fields=("lists_sessions",),
        needs=("session",),
    ),
    Rung(
        name="load",
        asks="Does a new process of the peer load the session?",
        measure=load,
        fields=("loads_sessions",),
        needs=("session",),
    ),
    Rung(
        name="resume",
        asks="Does a new process of the peer resume the session?",
        measure=resume,
        fields=("resumes_sessions",),
        needs=("session",),
    ),
)
