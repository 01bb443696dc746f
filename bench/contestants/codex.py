"""dragoman's conversation API over the Codex app-server: the same events in another dialect.

The client is the public one. The server is a script that streams `item/agentMessage/delta`
notifications like the real one, so that streaming with Codex can be compared with ACP
(`dragoman_events`). It implements just enough of the protocol for that.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from bench import script
from dragoman.events.model import MessageDelta
from dragoman.rpc import Connection, ConnectionSettings, End, Router
from dragoman.transports import open_stdio, spawn

if TYPE_CHECKING:
    from bench.works import Reader
    from dragoman.client.codex import CodexPeer
    from dragoman.client.conversation import Conversation, Result

COLLECT = "bench/collect"
"""Runs the garbage collector of the server. The real server does not have this method."""

SANDBOXES = {
    "read-only": "readOnly",
    "workspace-write": "workspaceWrite",
    "danger-full-access": "dangerFullAccess",
}


class Client:
    """The driver of `bench.works`."""

    _peer: CodexPeer

    def __init__(self) -> None:
        self._sessions: dict[str, tuple[Conversation, Reader]] = {}
        self._stack = AsyncExitStack()

    async def open(self, agent: Sequence[str]) -> int:
        from dragoman.client.codex import CodexPeer

        stream = await spawn(agent, env=os.environ)
        self._peer = await CodexPeer.connect(stream, "/workspace")
        await self._stack.enter_async_context(self._peer)
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
        # A Codex thread has no modes. In the workloads of this contestant, the benchmark uses them
        # only to run the garbage collector.
        await self._peer.client.ask(COLLECT, {}, dict)

    async def close(self) -> None:
        await self._stack.aclose()


class Delta(Struct, rename="camel"):
    thread_id: str
    turn_id: str
    item_id: str
    delta: str


class Server:
    """Answers the requests before and for a turn, and streams."""

    connection: Connection

    def __init__(self, router: Router) -> None:
        self._threads = 0
        self._turns = 0
        router.on_request("initialize", lambda _: {"userAgent": "bench/0.0.0 (script)"})
        router.on_request("account/read", lambda _: {"account": None, "requiresOpenaiAuth": False})
        router.on_request("thread/start", self._thread, dict)
        router.on_request("thread/unsubscribe", lambda _: {})
        router.on_request("turn/start", self._turn, dict)
        router.on_request(COLLECT, self._collect)

    def _collect(self, _: Any) -> dict[str, Any]:
        gc.collect()
        return {}

    def _thread(self, params: dict[str, Any]) -> dict[str, Any]:
        self._threads += 1
        return {
            "thread": {"id": script.session_name(self._threads), "turns": []},
            "model": "script",
            "modelProvider": "script",
            "cwd": params["cwd"],
            "approvalPolicy": params["approvalPolicy"],
            "sandbox": {"type": SANDBOXES[params["sandbox"]]},
        }

    def _turn(self, params: dict[str, Any]) -> dict[str, Any]:
        self._turns += 1
        turn_id = script.session_name(self._turns)
        text = "".join(part.get("text", "") for part in params["input"])
        work = self._stream(params["threadId"], turn_id, int(text.removeprefix("stream ")))
        self.connection.tasks.start(work, "stream")
        return {"turn": {"id": turn_id, "status": "inProgress"}}

    async def _stream(self, thread_id: str, turn_id: str, count: int) -> None:
        connection = self.connection
        turn = {"id": turn_id, "status": "inProgress", "items": []}
        connection.post("turn/started", {"threadId": thread_id, "turn": turn})
        for part in script.update_texts(count):
            if connection.is_full:
                await connection.drain()
            connection.post("item/agentMessage/delta", Delta(thread_id, turn_id, "message", part))
        ended = {"id": turn_id, "status": "completed", "items": []}
        connection.post("turn/completed", {"threadId": thread_id, "turn": ended})


async def server() -> None:
    router = Router()
    served = Server(router)
    # Codex neither sends nor expects the `jsonrpc` member.
    settings = ConnectionSettings(jsonrpc=False)
    stream = await open_stdio()
    async with Connection(stream, End.AGENT, router, settings=settings) as served.connection:
        await served.connection.wait_ended()


def main() -> None:
    if sys.argv[1] == "agent":
        asyncio.run(server())
    else:
        from bench.works import client

        client(Client, sys.argv[2:])


if __name__ == "__main__":
    main()
