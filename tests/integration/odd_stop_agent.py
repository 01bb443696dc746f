"""An agent of ACP that ends each turn with the stop reason that the prompt names.

Written with plain `json`, so that nothing of ours checks what it sends.
"""

from __future__ import annotations

import json
import sys
import uuid
from typing import Any


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        params: dict[str, Any] = message.get("params") or {}
        match message["method"]:
            case "initialize":
                result: Any = {"protocolVersion": 1, "agentCapabilities": {}}
            case "session/new":
                result = {"sessionId": uuid.uuid4().hex}
            case "session/prompt":
                _send(
                    method="session/update",
                    params={
                        "sessionId": params["sessionId"],
                        "update": {
                            "sessionUpdate": "agent_message_chunk",
                            "content": {"type": "text", "text": "said"},
                        },
                    },
                )
                result = {"stopReason": json.loads(params["prompt"][0]["text"])}
            case _:
                result = {}
        _send(id=message["id"], result=result)


def _send(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
