"""A Codex app-server for tests of the command line, as a program of its own.

It has the models that it lists, and those of a provider which it cannot list. Each turn says which
model and which sandbox it was started with. The prompt ``edit PATH`` announces a change of that
file, asks for its approval and says what was decided. With the prompt ``help``, another agent in a
thread of its own speaks and ends its turn first. Started with ``unlisted TEXT`` it refuses to list
its models, with that text.
"""

from __future__ import annotations

import json
import sys
from typing import Any

MODELS = [{"id": name, "model": name, "displayName": name.title()} for name in ("sol", "luna")]
UNLISTED = sys.argv[sys.argv.index("unlisted") + 1] if "unlisted" in sys.argv else None
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


ABOUT = {"threadId": "t1", "turnId": "u1"}


def ask(path: str) -> None:
    change = {"path": path, "kind": {"type": "add"}, "diff": "planted\n"}
    item = {"type": "fileChange", "id": "f1", "status": "inProgress", "changes": [change]}
    send({"method": "item/started", "params": {**ABOUT, "item": item}})
    params = {**ABOUT, "itemId": "f1"}
    send({"id": "q1", "method": "item/fileChange/requestApproval", "params": params})


def turn(thread: Thread, decided: str = "") -> None:
    about = ABOUT
    text = f"model {thread.model} mode {thread.sandbox}{decided}"
    item = {"type": "agentMessage", "id": "i1", "text": text}
    done = {"id": "u1", "status": "completed", "items": []}
    send({"method": "item/completed", "params": {**about, "item": item}})
    send({"method": "turn/completed", "params": {"threadId": "t1", "turn": done}})


def other_agent() -> None:
    about = {"threadId": "t2", "turnId": "u9"}
    item = {"type": "agentMessage", "id": "i9", "text": "the other agent"}
    done = {"id": "u9", "status": "completed", "items": []}
    send({"method": "item/completed", "params": {**about, "item": item}})
    send({"method": "turn/completed", "params": {"threadId": "t2", "turn": done}})


def main() -> None:
    thread = Thread()
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("id") == "q1" and "method" not in message:
            turn(thread, f" decided {message['result']['decision']}")
        if "id" not in message or "method" not in message:
            continue
        if UNLISTED is not None and message["method"] == "model/list":
            send({"id": message["id"], "error": {"code": -32000, "message": UNLISTED}})
            continue
        result = answer(message["method"], message.get("params") or {}, thread)
        send({"id": message["id"], "result": result})
        if message["method"] == "turn/start":
            text = message["params"]["input"][0].get("text", "")
            if text.startswith("edit "):
                ask(text.removeprefix("edit "))
            else:
                if text == "help":
                    other_agent()
                turn(thread)


if __name__ == "__main__":
    main()
