"""An agent that says the `_meta` of its session, and the words that it was started with."""

from __future__ import annotations

import json
import sys

lines: dict[str, str] = {}
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    params, told = asked.get("params") or {}, []
    match asked["method"]:
        case "initialize":
            answer = {"result": {"protocolVersion": 1, "agentCapabilities": {}}}
        case "session/new":
            id = f"s{len(lines)}"
            lines[id] = json.dumps([params.get("_meta"), sys.argv[1:]], sort_keys=True)
            answer = {"result": {"sessionId": id}}
        case "session/prompt":
            id = params["sessionId"]
            content = {"type": "text", "text": lines[id]}
            chunk = {"sessionUpdate": "agent_message_chunk", "content": content}
            update = {"sessionId": id, "update": chunk}
            told.append({"jsonrpc": "2.0", "method": "session/update", "params": update})
            answer = {"result": {"stopReason": "end_turn"}}
        case _:
            answer = {"error": {"code": -32601, "message": "no such method"}}
    told.append({"jsonrpc": "2.0", "id": asked["id"], **answer})
    sys.stdout.write("".join(json.dumps(each) + "\n" for each in told))
    sys.stdout.flush()
