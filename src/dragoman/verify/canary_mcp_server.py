"""Minimal MCP server on stdio that records its start and each call in a file.

Appends one word per event to the file: ``started``, then each method. Has one tool. Uses only the
standard library, because the peer runs it by its path in the peer's own environment:

    python canary_mcp_server.py FILE
"""

from __future__ import annotations

import json
import sys
from typing import IO, Any, Final

NAME: Final = "dragoman-canary"
TOOL: Final = "sing"
SONG: Final = "tweet"

VERSION: Final = "2025-06-18"
"""The MCP version that is returned if the client sends none."""


def serve(source: IO[str], sink: IO[str], mark: str) -> None:
    """Answer requests until end of input, and append each event to the file `mark`."""
    leave(mark, "started")
    for line in source:
        try:
            message = json.loads(line)
        except ValueError:
            continue
        if not isinstance(message, dict) or not isinstance(message.get("method"), str):
            continue
        leave(mark, message["method"])
        if message.get("id") is not None:
            reply = {"jsonrpc": "2.0", "id": message["id"], **answer(message)}
            sink.write(json.dumps(reply) + "\n")
            sink.flush()


def answer(message: dict[str, Any]) -> dict[str, Any]:
    """Return the response to a request, without its id: its result or its error."""
    params = message.get("params")
    match message["method"]:
        case "initialize":
            asked = params.get("protocolVersion") if isinstance(params, dict) else None
            result: dict[str, Any] = {
                "protocolVersion": asked if isinstance(asked, str) else VERSION,
                "capabilities": {"tools": {}},
                "serverInfo": {"name": NAME, "version": "1"},
            }
        case "ping":
            result = {}
        case "tools/list":
            schema = {"type": "object", "properties": {}}
            tool = {"name": TOOL, "description": "Says one word.", "inputSchema": schema}
            result = {"tools": [tool]}
        case "tools/call":
            result = {"content": [{"type": "text", "text": SONG}], "isError": False}
        case method:
            return {"error": {"code": -32601, "message": f"Method not found: {method}"}}
    return {"result": result}


def leave(mark: str, word: str) -> None:
    with open(mark, "a", encoding="utf-8") as file:
        file.write(f"{word}\n")


if __name__ == "__main__":
    serve(sys.stdin, sys.stdout, sys.argv[1])
