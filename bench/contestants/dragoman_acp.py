"""dragoman as users use it for ACP: the typed client and the agent kit.

The closest equivalent of the official SDK: typed values for the whole protocol, sessions, iteration
over turns, permissions decided by a policy. `dragoman_rpc` is the layer below.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import Awaitable, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from bench import script
from dragoman.dialects.acp import v1 as acp

if TYPE_CHECKING:
    from bench.works import Reader
    from dragoman.agent import Session as AgentSession
    from dragoman.agent import Turn
    from dragoman.client.acp import AcpClient, Session


class Client:
    """The driver of `bench.works`."""

    _client: AcpClient

    def __init__(self) -> None:
        self.workspace = "/workspace"
        self._sessions: dict[str, tuple[Session, Reader]] = {}
        self._stack = AsyncExitStack()

    async def open(self, agent: Sequence[str]) -> int:
        from dragoman.client.acp import ClientOptions, use_agent
        from dragoman.client.permissions import approve_all
        from dragoman.transports import spawn

        # The same as `open_agent`, but in two steps, because we need the process id.
        stream = await spawn(agent, env=os.environ)
        options = ClientOptions(permit=approve_all)
        self._client = await self._stack.enter_async_context(use_agent(stream, options=options))
        return stream.pid

    async def new_session(self, reader: Reader) -> str:
        session = await self._client.new_session(self.workspace)
        self._sessions[session.id] = session, reader
        return session.id

    async def prompt(self, session_id: str, text: str) -> str:
        session, reader = self._sessions[session_id]
        async with session.prompt(text) as turn:
            async for update in turn:
                # A permission request also produces an update for its tool call.
                if isinstance(update, acp.AgentMessageChunk):
                    reader.take(update.content.text)  # type: ignore[union-attr]
            # A turn of file requests alone has no text: its outcome is EMPTY.
            if turn.result.failure is not None or turn.result.stop != "end_turn":
                raise SystemExit(f"the turn failed: {turn.result}")
            return turn.result.stop

    def set_mode(self, session_id: str, mode_id: str) -> Awaitable[acp.SetSessionModeResponse]:
        # Not `Session.set_mode`, which sets a config option if the agent has one: all contestants
        # must send the same message.
        request = acp.SetSessionModeRequest(session_id=session_id, mode_id=mode_id)
        return self._client.ask(acp.SESSION_SET_MODE, request)

    async def close(self) -> None:
        await self._stack.aclose()


def agent() -> None:
    """The agent of `bench.script`."""
    from dragoman.agent import Agent

    served = Agent("bench", modes=[acp.SessionMode(id=mode, name=mode) for mode in script.MODES])
    together: list[Turn] = []
    all_sent = asyncio.Event()

    @served.set_mode
    async def set_mode(session: AgentSession, mode_id: str) -> None:
        if mode_id == script.COLLECT:
            gc.collect()

    @served.prompt
    async def prompt(turn: Turn) -> None:
        text = turn.text
        if text.startswith("stream "):
            for part in script.update_texts(int(text[7:])):
                await turn.say(part)
        elif text.startswith("ask "):
            for _ in range(int(text[4:])):
                await turn.client.permission(
                    acp.ToolCallUpdate(tool_call_id=script.TOOL_CALL, title=script.TOOL_TITLE),
                    [
                        acp.PermissionOption(option_id=option_id, name=name, kind=kind)
                        for option_id, name, kind in script.OPTIONS
                    ],
                )
        elif text.startswith("read "):
            count, folder = text[5:].split(maxsplit=1)
            for number in range(int(count)):
                name = script.file_name(number)
                if await turn.client.read_file(f"{folder}/{name}") != script.FILE_TEXT:
                    raise ValueError(f"{name} has another text")
        elif text.startswith("together "):
            await turn_together(turn, *map(int, text[9:].split()))
        else:
            await turn.say(text)

    async def turn_together(turn: Turn, sessions: int, updates: int) -> None:
        nonlocal all_sent
        together.append(turn)
        if len(together) < sessions:
            await all_sent.wait()
            return
        for part in script.update_texts(updates):
            for member in together:
                await member.say(part)
        together.clear()
        all_sent.set()
        all_sent = asyncio.Event()

    served.run()


def main() -> None:
    if sys.argv[1] == "agent":
        agent()
    else:
        from bench.works import client

        client(Client, sys.argv[2:])


if __name__ == "__main__":
    main()
