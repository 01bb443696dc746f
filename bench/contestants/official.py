"""The official Python SDK for ACP (`agent-client-protocol`), used as in its documentation.

Both ends use its public API: `spawn_agent_process` with a `Client`, `run_agent` with an `Agent`.
The only changed setting is the client's buffer limit, raised to the SDK's own value for agents,
because with the default of 64 KiB large messages are read in small pieces.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import Awaitable, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import acp
from acp import schema
from acp.core import DEFAULT_STDIO_BUFFER_LIMIT_BYTES

from bench import script

if TYPE_CHECKING:
    from bench.works import Reader


class Updates(acp.Client):
    """The callbacks of the SDK for messages of the agent. It runs one task per message."""

    def __init__(self) -> None:
        self.readers: dict[str, Reader] = {}

    async def session_update(self, session_id: str, update: Any, **kwargs: Any) -> None:
        self.readers[session_id].take(update.content.text)

    async def request_permission(
        self, session_id: str, tool_call: Any, options: Any, **kwargs: Any
    ) -> acp.RequestPermissionResponse:
        return acp.RequestPermissionResponse(
            outcome=schema.AllowedOutcome(outcome="selected", option_id=script.ALLOW)
        )

    async def read_text_file(
        self,
        session_id: str,
        path: str,
        line: int | None = None,
        limit: int | None = None,
        **kwargs: Any,
    ) -> acp.ReadTextFileResponse:
        # The SDK has no file service, so answer without reading a file.
        return acp.ReadTextFileResponse(content=script.FILE_TEXT)


class Client:
    """The driver of `bench.works`."""

    def __init__(self) -> None:
        # All methods of the SDK's protocols are optional, which a type checker cannot know.
        self._updates = Updates()  # type: ignore[abstract]
        self.workspace = "/workspace"
        self._stack = AsyncExitStack()

    async def open(self, agent: Sequence[str]) -> int:
        self._connection, process = await self._stack.enter_async_context(
            acp.spawn_agent_process(
                self._updates,
                *agent,
                env=os.environ,
                transport_kwargs={"limit": DEFAULT_STDIO_BUFFER_LIMIT_BYTES, "stderr": None},
            )
        )
        await self._connection.initialize(
            script.PROTOCOL_VERSION,
            client_capabilities=schema.ClientCapabilities(
                fs=schema.FileSystemCapabilities(read_text_file=True)
            ),
        )
        return process.pid

    async def new_session(self, reader: Reader) -> str:
        session = await self._connection.new_session(self.workspace, mcp_servers=[])
        self._updates.readers[session.session_id] = reader
        return session.session_id

    def prompt(self, session_id: str, text: str) -> Awaitable[schema.PromptResponse]:
        return self._connection.prompt(session_id, [acp.text_block(text)])

    def set_mode(self, session_id: str, mode_id: str) -> Awaitable[schema.SetSessionModeResponse]:
        return self._connection.set_session_mode(session_id, mode_id)

    async def close(self) -> None:
        await self._stack.aclose()


class Agent(acp.Agent):
    """The agent of `bench.script`."""

    _client: acp.Client

    def __init__(self) -> None:
        self._sessions = 0
        self._together: list[str] = []
        self._all_sent = asyncio.Event()

    def on_connect(self, conn: acp.Client) -> None:
        self._client = conn

    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: schema.ClientCapabilities | None = None,
        client_info: schema.Implementation | None = None,
        **kwargs: Any,
    ) -> acp.InitializeResponse:
        return acp.InitializeResponse(protocol_version=protocol_version)

    async def new_session(
        self,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: Any = None,
        **kwargs: Any,
    ) -> acp.NewSessionResponse:
        self._sessions += 1
        return acp.NewSessionResponse(session_id=script.session_name(self._sessions))

    async def set_session_mode(
        self, session_id: str, mode_id: str, **kwargs: Any
    ) -> acp.SetSessionModeResponse:
        if mode_id == script.COLLECT:
            gc.collect()
        return acp.SetSessionModeResponse()

    async def prompt(self, session_id: str, prompt: Any, **kwargs: Any) -> acp.PromptResponse:
        text: str = prompt[0].text
        if text.startswith("stream "):
            for part in script.update_texts(int(text[7:])):
                await self._update(session_id, part)
        elif text.startswith("ask "):
            for _ in range(int(text[4:])):
                await self._ask(session_id)
        elif text.startswith("read "):
            count, folder = text[5:].split(maxsplit=1)
            for number in range(int(count)):
                name = script.file_name(number)
                answer = await self._client.read_text_file(session_id, f"{folder}/{name}")
                if answer.content != script.FILE_TEXT:
                    raise ValueError(f"{name} has another text")
        elif text.startswith("together "):
            await self._turn_together(session_id, *map(int, text[9:].split()))
        else:
            await self._update(session_id, text)
        return acp.PromptResponse(stop_reason="end_turn")

    async def _turn_together(self, session: str, sessions: int, updates: int) -> None:
        self._together.append(session)
        if len(self._together) < sessions:
            await self._all_sent.wait()
            return
        for part in script.update_texts(updates):
            for member in self._together:
                await self._update(member, part)
        self._together = []
        self._all_sent.set()
        self._all_sent = asyncio.Event()

    def _ask(self, session: str) -> Awaitable[acp.RequestPermissionResponse]:
        return self._client.request_permission(
            session,
            schema.ToolCallUpdate(tool_call_id=script.TOOL_CALL, title=script.TOOL_TITLE),
            [
                schema.PermissionOption(option_id=option_id, name=name, kind=kind)  # type: ignore[arg-type]
                for option_id, name, kind in script.OPTIONS
            ],
        )

    def _update(self, session: str, text: str) -> Awaitable[None]:
        return self._client.session_update(session, acp.update_agent_message_text(text))


def main() -> None:
    if sys.argv[1] == "agent":
        asyncio.run(acp.run_agent(Agent()))  # type: ignore[abstract]
    else:
        from bench.works import client

        client(Client, sys.argv[2:])


if __name__ == "__main__":
    main()
