"""A Codex app-server for tests of the command line, as a program of its own.

It has the models that it lists, and those of a provider which it cannot list. Each turn says which
model and which sandbox it was started with.
"""

from __future__ import annotations

import json
import sys
from typing import Any

MODELS = [{"id": name, "model": name, "displayName": name.title()} for name in ("sol", "luna")]
PROVIDER = "openai" if "openai" in sys.argv else "mine"


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


class Thread:
    """The only thread there is."""

    model = "sol"
    sandbox = "readOnly"


KINDS = {"read-only": "readOnly", "workspace-write": "workspaceWrite"}


def answer(method: str, params: dict[str, Any], thread: Thread) -> dict[str, Any]:
    match method:
        case "initialize":
            return {"userAgent": "codex/1.0 (test)"}
        case "account/read":
            return {"account": None, "requiresOpenaiAuth": False}
        case "model/list":
            return {"data": MODELS}
        case "thread/start":
            thread.model = params.get("model", "sol")
            thread.sandbox = KINDS[params["sandbox"]]
            return {
                "thread": {"id": "t1", "cwd": params["cwd"], "turns": []},
                "cwd": params["cwd"],
                "model": thread.model,
                "modelProvider": PROVIDER,
                "approvalPolicy": params["approvalPolicy"],
                "sandbox": {"type": thread.sandbox},
            }
        case "turn/start":
            thread.model = params.get("model", thread.model)
            thread.sandbox = params.get("sandboxPolicy", {}).get("type", thread.sandbox)
            return {"turn": {"id": "u1", "status": "inProgress", "items": []}}
        case _:
            return {}


def turn(thread: Thread) -> None:
    about = {"threadId": "t1", "turnId": "u1"}
    text = f"model {thread.model} mode {thread.sandbox}"
    item = {"type": "agentMessage", "id": "i1", "text": text}
    done = {"id": "u1", "status": "completed", "items": []}
    send({"method": "item/completed", "params": {**about, "item": item}})
    send({"method": "turn/completed", "params": {"threadId": "t1", "turn": done}})


def main() -> None:
    thread = Thread()
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        result = answer(message["method"], message.get("params") or {}, thread)
        send({"id": message["id"], "result": result})
        if message["method"] == "turn/start":
            turn(thread)


if __name__ == "__main__":
    main()
