"""dragoman's conversation API over ACP: the same events for every dialect.

The layer above `dragoman_acp`: each update becomes an event that keeps its line, and the turn
collects the text. It uses the agent of `dragoman_acp`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.events.model import MessageDelta

if TYPE_CHECKING:
    from bench.works import Reader
    from dragoman.client.acp.peer import AcpPeer
    from dragoman.client.conversation import Conversation, Result


class Client:
    """The driver of `bench.works`."""

    _peer: AcpPeer

    def __init__(self) -> None:
        self._sessions: dict[str, tuple[Conversation, Reader]] = {}
        self._stack = AsyncExitStack()

    async def open(self, agent: Sequence[str]) -> int:
        from dragoman.client.acp import ClientOptions, use_agent
        from dragoman.client.acp.peer import AcpPeer
        from dragoman.client.permissions import approve_all
        from dragoman.transports import spawn

        stream = await spawn(agent, env=os.environ)
        options = ClientOptions(permit=approve_all)
        client = await self._stack.enter_async_context(use_agent(stream, options=options))
        self._peer = AcpPeer(client, Path("/workspace"))
        return stream.pid

    async def new_session(self, reader: Reader) -> str:
        conversation = await self._stack.enter_async_context(self._peer.session())
        self._sessions[conversation.id] = conversation, reader
        return conversation.id

    async def prompt(self, session_id: str, text: str) -> Result:
        conversation, reader = self._sessions[session_id]
        async with conversation.prompt(text) as turn:
            async for event in turn:
                if isinstance(event, MessageDelta):
                    reader.take(event.text)
            return turn.result

    async def set_mode(self, session_id: str, mode_id: str) -> None:
        await self._sessions[session_id][0].set_mode(mode_id)

    async def close(self) -> None:
        await self._stack.aclose()


def main() -> None:
    from bench.works import client

    client(Client, sys.argv[1:])


if __name__ == "__main__":
    main()
