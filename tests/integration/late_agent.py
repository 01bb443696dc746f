"""An agent that speaks and asks for permission when no turn runs, as a program of its own.

It answers every prompt at once. When the pipe ``go`` in its folder has been read to its end it says
something and asks whether it may write a file, and then says what the answer was.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

SESSION = "late-1"


def send(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def say(text: str) -> None:
    update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
    send(method="session/update", params={"sessionId": SESSION, "update": update})


def ask_later(folder: Path) -> None:
    (folder / "go").read_text()
    for word in ("late ", "words"):
        say(word)
    call = {"toolCallId": "t1", "title": "Write late.md", "kind": "edit"}
    options = [
        {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
        {"optionId": "no", "name": "No", "kind": "reject_once"},
    ]
    params = {"sessionId": SESSION, "toolCall": call, "options": options}
    send(id="q1", method="session/request_permission", params=params)


for line in sys.stdin:
    message = json.loads(line)
    match message.get("method"):
        case "initialize":
            told = {"protocolVersion": 1, "agentCapabilities": {}, "authMethods": []}
            send(id=message["id"], result=told)
        case "session/new":
            send(id=message["id"], result={"sessionId": SESSION})
            threading.Thread(
                target=ask_later, args=(Path(message["params"]["cwd"]),), daemon=True
            ).start()
        case "session/prompt":
            text = message["params"]["prompt"][0]["text"]
            say(f"heard {text}\n")
            send(id=message["id"], result={"stopReason": "end_turn"})
        case None if message.get("id") == "q1":
            say(f"the answer was {json.dumps(message.get('result'))}\n")
        case None | "session/cancel":
            pass
        case _:
            error = {"code": -32601, "message": "Method not found"}
            if "id" in message:
                send(id=message["id"], error=error)
