"""A client that writes its lines by hand."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from dragoman.errors import ConnectionLost
from dragoman.transports.base import Stream

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
