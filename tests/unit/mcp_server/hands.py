"""A client that writes its lines by hand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from dragoman.errors import ConnectionLost
from dragoman.mcp_server.lines import Lines
from dragoman.mcp_server.stdio import serve_lines
from dragoman.mcp_server.tool_handlers import ToolHandlers
from dragoman.rpc.tasks import TaskOwner
from dragoman.transports.base import Stream
from dragoman.transports.memory import memory_pair

HELLO: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "by hand", "version": "1"},
    },
}


def asked(id: int, method: str, **params: Any) -> dict[str, Any]:
    """A request."""
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


class Hand:
    """Sends bytes and takes lines."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.lines: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.ended = asyncio.Event()
        self._rest = b""
        stream.start(self)

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self.lines.put_nowait(json.loads(line))

    def stream_ended(self, failure: ConnectionLost) -> None:
        self.ended.set()

    async def ask(self, message: Any) -> dict[str, Any]:
        self.stream.write(json.dumps(message).encode() + b"\n")
        async with asyncio.timeout(10):
            return await self.lines.get()


@asynccontextmanager
async def served(work: Path, stop: asyncio.Event | None = None) -> AsyncIterator[Hand]:
    """A client of a server in this process, which ends when the client closes its stream."""
    near, far = memory_pair()
    serving = TaskOwner("test").start(
        serve_lines(ToolHandlers(cwd=work), Lines(far), stop=stop or asyncio.Event()), "serve"
    )
    yield Hand(near)
    await near.aclose()
    async with asyncio.timeout(10):
        await serving
