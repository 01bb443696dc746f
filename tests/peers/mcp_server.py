"""A tiny MCP server on stdio, for tests: one tool, and a file that says what it was asked.

A second argument is the number of seconds that it takes to start.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

GREETING = "HELLO-FROM-MCP"


def answer(method: str, params: Any) -> dict[str, Any]:
    match method:
        case "initialize":
            return {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "tiny", "version": "1"},
            }
        case "tools/list":
            schema = {"type": "object", "properties": {}}
            return {"tools": [{"name": "hello", "description": "Hello", "inputSchema": schema}]}
        case "tools/call":
            return {"content": [{"type": "text", "text": GREETING}]}
        case _:
            return {}


def serve(mark: Path) -> None:
    for line in sys.stdin:
        message = json.loads(line)
        with mark.open("a", encoding="utf-8") as file:
            file.write(f"{message.get('method')}\n")
        if "id" in message:
            result = answer(message["method"], message.get("params"))
            reply = {"jsonrpc": "2.0", "id": message["id"], "result": result}
            sys.stdout.write(json.dumps(reply) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    time.sleep(float(sys.argv[2]) if len(sys.argv) > 2 else 0)
    serve(Path(sys.argv[1]))
